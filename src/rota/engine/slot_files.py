"""What ended direct executions leave: a row each, and a directory with what they wrote.

The rows go first, in turns of the engine; a directory whose number has no row is nobody's, whoever left it, and is
deleted. A row is there before its directory is made, so one that is about to be used is never taken for such.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from rota.ids import SlotId
from rota.store.session import Reader

log = logging.getLogger("rota.gc")


def remove_old(
    slots: Path, reader: Reader, until: datetime, remove: Callable[[Sequence[SlotId]], int], limit: int
) -> int:
    """How many rows went. `remove` takes a part of them in a turn of the engine."""
    removed = 0
    while old := reader.old_slots(until, limit):
        count = remove(old)
        removed += count
        if not count:
            break
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
