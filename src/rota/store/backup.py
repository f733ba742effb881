"""A backup is one SQLite file, whichever database the store is on: the records as they are at one moment."""

from __future__ import annotations

from pathlib import Path

from rota.store.copy import Progress, copy_snapshot
from rota.store.port import Store
from rota.store.sqlite.backup import copy_file
from rota.store.sqlite.store import SqliteStore


def back_up_records(source: Store, target: Path, progress: Progress) -> None:
    """Into a new file. A scheduler may be at work on the source; it is not held up."""
    if isinstance(source, SqliteStore):
        copy_file(source.path, target, lambda done, total: progress("pages", done, total))
    else:
        copy_snapshot(source, SqliteStore(target), progress)
