"""Backups. A backup is one SQLite file with a snapshot of the records, whichever database the store uses."""

from __future__ import annotations

from pathlib import Path

from rota.store.copy import CopyProgress, copy_snapshot
from rota.store.port import Store
from rota.store.sqlite.backup import copy_file
from rota.store.sqlite.store import SqliteStore


def back_up_records(source: Store, target: Path, progress: CopyProgress) -> None:
    """Copy the records into a new file. A scheduler may use the source meanwhile; it is not blocked."""
    if isinstance(source, SqliteStore):
        copy_file(source.path, target, lambda done, total: progress("pages", done, total))
    else:
        copy_snapshot(source, SqliteStore(target), progress)
