"""Whole SQLite files: copying during writes, validation, and the other files of a backup.

The copy uses SQLite's online backup inside one read transaction. Without the transaction every commit of the writer
would restart it, and under load it would never end. With it the writer is not disturbed, and only the log grows
meanwhile. VACUUM INTO takes half as much time again and cannot report progress.

A backup has two tables besides those of the store: `backup` describes it, and `backup_file` holds files in parts.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from rota.db.ids import IdWatermarks
from rota.db.sqlite.database import escape_path, refuse_orphaned_log, translate_error
from rota.db.sqlite.store import check_file_schema as check_schema
from rota.errors import InvalidInput, StoreError

PART_BYTES = 1 << 20
_PAGES_PER_STEP = 2000
"""Pages between two progress reports."""
_TABLES = (
    "CREATE TABLE backup (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE backup_file (path TEXT, part INTEGER, content BLOB NOT NULL, PRIMARY KEY (path, part)) STRICT",
)
_MAX_FREE_PAGES = 1000
"""Empty pages that a restored store may keep. It reuses them."""
_MAGIC = b"SQLite format 3\0"


@contextmanager
def _connect(path: Path, options: str) -> Iterator[sqlite3.Connection]:
    refuse_orphaned_log(path)
    try:
        with closing(
            sqlite3.connect(f"file:{escape_path(path)}?{options}", uri=True, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA busy_timeout = 10000")
            yield connection
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def _read_options(path: Path) -> str:
    """Return the options for a file without a writer. An immutable file needs no companion files, so it may be on a
    read-only disk."""
    return "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"  # noqa: PTH110


def copy_file(source: Path, target: Path, progress: Callable[[int, int], None], *, is_immutable: bool = False) -> None:
    """Copy a snapshot of the database into a single file. The file is not synced."""
    target.touch(mode=0o600)
    with (
        _connect(source, _read_options(source) if is_immutable else "mode=ro") as reader,
        _connect(target, "mode=rwc") as writer,
    ):
        writer.execute("PRAGMA synchronous = OFF")  # the caller syncs it once, when it is complete
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # starts the snapshot
        reader.backup(
            writer, pages=_PAGES_PER_STEP, progress=lambda _, remaining, total: progress(total - remaining, total)
        )
        writer.execute("PRAGMA journal_mode = DELETE")


def remove_file(path: Path) -> None:
    """Remove a database and its companion files."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def validate_backup(path: Path) -> None:
    """Refuse a file that is not a Rota store, is damaged, or has a newer schema."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InvalidInput(f"{path} is not a backup of Rota: it is not a SQLite database")
    with _connect(path, _read_options(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"meta", "job", "run", "sequence"} <= tables:
            raise InvalidInput(f"{path} is not a backup of Rota: it has no tables of Rota")
        result = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if result != "ok":
            raise StoreError(f"{path} is damaged ({result}); use another backup")
    check_schema(path)


class Archive:
    """Tables of a backup besides those of the store. They must be created before writing; for reading they may be
    missing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def create(self, metadata: Mapping[str, str]) -> None:
        for table in _TABLES:
            self._connection.execute(table)
        self._connection.executemany("INSERT INTO backup VALUES (?, ?)", metadata.items())

    def add(self, path: str, part: int, content: bytes) -> None:
        self._connection.execute("INSERT INTO backup_file VALUES (?, ?, ?)", (path, part, content))

    def metadata(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT key, value FROM backup")) if self._has_table("backup") else {}

    def files(self) -> list[str]:
        if not self._has_table("backup_file"):
            return []
        return [path for (path,) in self._connection.execute("SELECT DISTINCT path FROM backup_file ORDER BY path")]

    def parts(self, path: str) -> Iterator[bytes]:
        rows = self._connection.execute("SELECT content FROM backup_file WHERE path = ? ORDER BY part", (path,))
        while row := rows.fetchone():
            yield row[0]

    def count_rows(self, table: str) -> int:
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    def remove_archive_tables(self) -> None:
        """Drop the tables of the archive and free their space, so that only the records remain."""
        for table in ("backup", "backup_file"):
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")
        self._connection.execute("COMMIT")
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        if free > _MAX_FREE_PAGES:
            self._connection.execute("VACUUM")

    def _has_table(self, table: str) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())


@contextmanager
def open_archive(path: Path, *, is_writable: bool = False) -> Iterator[Archive]:
    with _connect(path, "mode=rw" if is_writable else _read_options(path)) as connection:
        if is_writable:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
        yield Archive(connection)
        if connection.in_transaction:
            connection.execute("COMMIT")


def checkpoint_wal(path: Path) -> None:
    """Move the content of the log into the database file."""
    with _connect(path, "mode=rw") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_ID_COLUMNS = {"event": ("event", "seq"), "group": ("job_group", "id")}
"""Table and id column of the entities that do not use `id` in a table of their name."""


def read_file_watermarks(path: Path) -> IdWatermarks:
    watermarks = IdWatermarks()
    with _connect(path, "mode=ro") as connection:
        for entity, next_id in connection.execute("SELECT entity, next FROM sequence").fetchall():
            table, column = _ID_COLUMNS.get(entity, (entity, "id"))
            ((last,),) = connection.execute(f"SELECT max({column}) FROM {table}")
            watermarks.raise_id(entity, max(last or 0, next_id - 1))
        for (epoch,) in connection.execute("SELECT value FROM meta WHERE key = 'epoch'"):
            watermarks.epoch = int(epoch)
    return watermarks
