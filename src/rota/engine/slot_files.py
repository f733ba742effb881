"""What ended direct executions leave: a row each, and a directory with what they wrote.

The rows go first, in turns of the engine; a directory whose number has no row is nobody's, whoever left it, and is
deleted. A row is there before its directory is made, so one that is about to be used is never taken for such.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

from rota.engine import old_keys
from rota.ids import SlotId
from rota.store.gc import TOP
from rota.store.session import Reader

log = logging.getLogger("rota.gc")


def find_old(reader: Reader, until: datetime, without: Collection[str] = ()) -> list[SlotId]:
    """Those that no note names, but for the notes of some keys. A slot and its note come at once, and a note is looked
    for after the slot: one that is not found then has gone for good."""
    old = reader.old_slots(until, TOP)
    named = old_keys.named_slots(reader, without) if old else set()
    return [slot for slot in old if slot not in named]


def remove_old(
    slots: Path, reader: Reader, until: datetime, remove: Callable[[Sequence[SlotId]], int], limit: int
) -> int:
    """How many rows went. `remove` takes a part of them in a turn of the engine."""
    old = find_old(reader, until)
    removed = sum(remove(old[first : first + limit]) for first in range(0, len(old), limit))
    _sweep(slots, reader)
    return removed


def _sweep(slots: Path, reader: Reader) -> None:
    try:
        found = {SlotId(int(entry.name)): entry for entry in slots.iterdir() if entry.name.isdecimal()}
    except (FileNotFoundError, NotADirectoryError):
        return
    for slot in found.keys() - reader.has_slots(list(found)):
        try:
            shutil.rmtree(found[slot])
        except OSError as error:
            log.warning("what a direct execution left cannot be removed: %s: %s", error.filename, error.strerror)
