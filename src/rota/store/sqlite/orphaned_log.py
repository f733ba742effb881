"""Detection of an orphaned log: `rota.db-wal` has content, but `rota.db` is empty or missing.

SQLite deletes such a log when it opens the database, and it may hold the only copy of all records: a new scheduler that
is killed leaves all its records there. So every opening, including that of a reader, checks for it first.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rota.errors import StoreError

RECOVERY_HINT = (
    "restore a backup with `rota restore FILE --force`, or continue without the lost records with `rota up"
    " --accept-loss`, which starts the scheduler and ends all jobs that are still running"
)
_SUFFIXES = ("-wal", "-shm", "")


def find_orphaned_log(path: Path) -> str | None:
    """Return the state of both files, or None if the database has content or the log has none.

    The log is checked first: a running writer fills the first page of the database before it writes a log.
    """
    database = path.resolve()  # SQLite keeps the log next to the target of a symbolic link
    log = database.with_name(f"{database.name}-wal")
    length = _file_size(log)
    if not length or _file_size(database):
        return None
    state = "is empty" if database.exists() else "is gone"
    return f"{path} {state}, but {log} has {length:,} bytes, which may be its records"


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def refuse_orphaned_log(path: Path) -> None:
    """Refuse an orphaned log before SQLite opens the database, so that both files stay as they are."""
    if (state := find_orphaned_log(path)) is not None:
        raise StoreError(
            f"{state}; the database was not opened, because SQLite would delete the log. Keep a copy of both files;"
            f" then {RECOVERY_HINT} (this renames both files and deletes neither)"
        )


def rename_orphaned_log(path: Path, now: datetime) -> str | None:
    """Rename an orphaned log and the rest of its database, so that a new database can replace them. Return the state
    and the new name of the log, or None if there is no orphaned log."""
    if (state := find_orphaned_log(path)) is None:
        return None
    database = path.resolve()
    ending = f".lost-{now:%Y%m%dT%H%M%S%f}"
    for suffix in _SUFFIXES:
        file = database.with_name(f"{database.name}{suffix}")
        if file.exists():
            file.rename(f"{file}{ending}")
    return f"{state}; the log is now {database}-wal{ending}"
