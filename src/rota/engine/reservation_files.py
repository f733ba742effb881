"""Retention of ended reservations: their rows, and the directories with their output.

The rows are removed first, in turns of the engine; then every directory without a row is deleted. A row is created
before its directory, so a directory about to be used always has a row.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

from rota.engine import expired_keys
from rota.ids import ReservationId
from rota.store.gc import MAX_ID
from rota.store.session import Reader

log = logging.getLogger("rota.gc")


def find_expired(reader: Reader, until: datetime, except_keys: Collection[str] = ()) -> list[ReservationId]:
    """Return the old reservations to which no pending response refers, except for those of some keys.

    A reservation and its pending response are stored together, and the responses are read after the reservations: a
    response that is missing by then has been removed for good."""
    old = reader.reservations.old(until, MAX_ID)
    referenced = expired_keys.referenced_reservations(reader, except_keys) if old else set()
    return [reservation for reservation in old if reservation not in referenced]


def remove_expired(
    directory: Path,
    reader: Reader,
    until: datetime,
    remove_rows: Callable[[Sequence[ReservationId]], int],
    batch_size: int,
) -> int:
    """Remove expired reservations, and return the number of rows. `remove_rows` runs in a turn of the engine."""
    old = find_expired(reader, until)
    removed = sum(remove_rows(old[first : first + batch_size]) for first in range(0, len(old), batch_size))
    _remove_orphaned_directories(directory, reader)
    return removed


def _remove_orphaned_directories(directory: Path, reader: Reader) -> None:
    try:
        directories = {ReservationId(int(entry.name)): entry for entry in directory.iterdir() if entry.name.isdecimal()}
    except (FileNotFoundError, NotADirectoryError):
        return
    for reservation in directories.keys() - reader.reservations.existing(list(directories)):
        try:
            shutil.rmtree(directories[reservation])
        except OSError as error:
            log.warning("cannot remove the files of a reservation: %s: %s", error.filename, error.strerror)
