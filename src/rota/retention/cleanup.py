"""Removal of records other than jobs: idempotency keys, reservations, and input patches.

A final response of a key expires by its own age, a pending one by the state of its reservation.

    reservation waits or runs    kept: a repeated request must not create a second reservation
    reservation has ended        expires by the time of that end; the reservation, its result, is kept as long
    reservation is gone          expires by its own age

A pending response is removed before its reservation, so the two never keep each other forever.

The rows of ended reservations are removed first, in turns of the engine; then every directory with output and without a
row is deleted. A row is created before its directory, so a directory about to be used always has a row.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from rota.db.session import AnyReader, Reader
from rota.engine.idempotency import PENDING_STATUS, decode_pending
from rota.engine.transaction import Transaction
from rota.ids import ReservationId
from rota.retention.repository import MAX_ID

log = logging.getLogger("rota.gc")

MIN_AGE_SECONDS = 3600.0
"""Seconds that an unused patch is kept: it is written before the submit that refers to it is stored. A submit of the
same content writes it again."""


def find_expired_keys(reader: Reader, until: datetime) -> list[str]:
    old = reader.responses.old_keys(until)
    kept = _find_active_keys(reader, dict(reader.responses.with_status(PENDING_STATUS)), until)
    return [key for key in old if key not in kept]


def remove_expired_keys(tx: Transaction, keys: Sequence[str], until: datetime) -> int:
    """Remove the keys that are still expired: a request may have used one again since."""
    pending = dict(tx.responses.for_keys(keys, PENDING_STATUS))
    kept = _find_active_keys(tx, pending, until)
    return tx.responses.remove_old([key for key in keys if key not in kept], until)


def referenced_reservations(reader: Reader, except_keys: Collection[str] = ()) -> set[ReservationId]:
    """Return the reservations that pending responses refer to, except for those of some keys."""
    return {
        decode_pending(body.encode()).reservation
        for key, body in reader.responses.with_status(PENDING_STATUS)
        if key not in except_keys
    }


def _find_active_keys(reader: AnyReader, pending: dict[str, str], until: datetime) -> set[str]:
    """Return the keys whose reservation has not ended before `until`."""
    reservations = {key: decode_pending(body.encode()).reservation for key, body in pending.items()}
    recent = reader.reservations.recent(list(reservations.values()), until)
    return {key for key, reservation in reservations.items() if reservation in recent}


def find_expired_reservations(
    reader: Reader, until: datetime, except_keys: Collection[str] = ()
) -> list[ReservationId]:
    """Return the old reservations to which no pending response refers, except for those of some keys.

    A reservation and its pending response are stored together, and the responses are read after the reservations: a
    response that is missing by then has been removed for good."""
    old = reader.reservations.old(until, MAX_ID)
    referenced = referenced_reservations(reader, except_keys) if old else set()
    return [reservation for reservation in old if reservation not in referenced]


def remove_expired_reservations(
    directory: Path,
    reader: Reader,
    until: datetime,
    remove_rows: Callable[[Sequence[ReservationId]], int],
    batch_size: int,
) -> int:
    """Remove expired reservations, and return the number of rows. `remove_rows` runs in a turn of the engine."""
    old = find_expired_reservations(reader, until)
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


def remove_unused_patches(directory: Path, list_used: Callable[[], Collection[str]]) -> int:
    """Remove old unused patches, and return the number of bytes. Call `list_used` only if there are old patches."""
    try:
        old = [path for path in directory.glob("*.patch") if _is_old_patch(path)]
    except OSError:
        return 0
    unused = set(old) - {directory / f"{digest}.patch" for digest in list_used()} if old else set()
    return sum(_remove_patch(path) for path in sorted(unused))


def _is_old_patch(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > MIN_AGE_SECONDS
    except OSError:
        return False


def _remove_patch(path: Path) -> int:
    """Remove a patch: rename it, check its age again, and restore it if it was written again since."""
    renamed = path.with_suffix(".removed")
    with suppress(OSError):
        path.rename(renamed)
        if not _is_old_patch(renamed):
            with suppress(FileExistsError):
                os.link(renamed, path)
            renamed.unlink()
            return 0
        size = renamed.stat().st_size
        renamed.unlink()
        return size
    return 0
