"""Whole SQLite files: copied while somebody writes, looked through, and given what else a restore needs.

The copy is SQLite's online backup from inside one reading transaction. Without that transaction every commit of the
writer would start it over, and under load it would never end; with it the writer goes on as before, and only its
journal grows meanwhile. VACUUM INTO would do as well, in half as much time again, but cannot say how far it is.

Beside the store's tables a backup has two of its own: `backup` says what it is, `backup_file` holds files in parts.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from rota.errors import InvalidInput, StoreError
from rota.store.sqlite.database import _escaped, _trouble
from rota.store.sqlite.schema import check as check_schema

PART = 1 << 20
_PAGES = 2000
"""Pages between two words on how far it is."""
_TABLES = (
    "CREATE TABLE backup (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE backup_file (path TEXT, part INTEGER, content BLOB NOT NULL, PRIMARY KEY (path, part)) STRICT",
)
_FREE_PAGES = 1000
"""Empty pages that a restored store may keep; it uses them up by itself."""
_MAGIC = b"SQLite format 3\0"


@contextmanager
def _opened(path: Path, options: str) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"file:{_escaped(path)}?{options}", uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 10000")
            yield connection
    except sqlite3.Error as error:
        raise _trouble(error, path) from error


def _still(path: Path) -> str:
    """For a file that nobody writes: nothing need be made beside it, so it may lie on a read-only disk."""
    return "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"  # noqa: PTH110


def copy_file(source: Path, target: Path, progress: Callable[[int, int], None], *, is_still: bool = False) -> None:
    """All of it as it is at one moment, into a file that needs no other beside it. It is not synced yet."""
    target.touch(mode=0o600)
    with _opened(source, _still(source) if is_still else "mode=ro") as here, _opened(target, "mode=rwc") as there:
        there.execute("PRAGMA synchronous = OFF")  # it is synced once, when it is whole
        here.execute("BEGIN")
        here.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it is that moment
        here.backup(there, pages=_PAGES, progress=lambda _, left, total: progress(total - left, total))
        there.execute("PRAGMA journal_mode = DELETE")


def look_through(path: Path) -> None:
    """Refuses what is no store of Rota, or is damaged, or is of a newer version."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InvalidInput(f"{path} is not a backup of Rota: it is not a database at all")
    with _opened(path, _still(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"meta", "job", "run", "sequence"} <= tables:
            raise InvalidInput(f"{path} is not a backup of Rota: it is a database of something else")
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreError(f"{path} is damaged ({found}); use another backup")
    check_schema(path)


class Archive:
    """What a backup holds beside the records. To write, the tables are made first; to read, there may be none."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def make(self, about: Mapping[str, str]) -> None:
        for table in _TABLES:
            self._connection.execute(table)
        self._connection.executemany("INSERT INTO backup VALUES (?, ?)", about.items())

    def add(self, path: str, part: int, content: bytes) -> None:
        self._connection.execute("INSERT INTO backup_file VALUES (?, ?, ?)", (path, part, content))

    def about(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT key, value FROM backup")) if self._has("backup") else {}

    def files(self) -> list[str]:
        if not self._has("backup_file"):
            return []
        return [path for (path,) in self._connection.execute("SELECT DISTINCT path FROM backup_file ORDER BY path")]

    def parts(self, path: str) -> Iterator[bytes]:
        rows = self._connection.execute("SELECT content FROM backup_file WHERE path = ? ORDER BY part", (path,))
        while row := rows.fetchone():
            yield row[0]

    def count(self, table: str) -> int:
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    def drop(self) -> None:
        """Only the records are left, in about the room that they need."""
        for table in ("backup", "backup_file"):
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")
        self._connection.execute("COMMIT")
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        if free > _FREE_PAGES:
            self._connection.execute("VACUUM")

    def _has(self, table: str) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())


@contextmanager
def archive(path: Path, *, writes: bool = False) -> Iterator[Archive]:
    with _opened(path, "mode=rw" if writes else _still(path)) as connection:
        if writes:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
        yield Archive(connection)
        if connection.in_transaction:
            connection.execute("COMMIT")


def fold(path: Path) -> None:
    """Take what lies in the journal beside it into the file itself."""
    with _opened(path, "mode=rw") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Numbers:
    """What has been given out: after a restore it is not given out again where that can be known."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        """The last id of each noun."""
        self.epoch = 0

    def have(self, noun: str, last: int) -> None:
        self.ids[noun] = max(last, self.ids.get(noun, 0))

    def raise_to(self, others: Numbers) -> None:
        """Whatever either of them has given out."""
        for noun, last in others.ids.items():
            self.have(noun, last)
        self.epoch = max(self.epoch, others.epoch)


_NUMBERED = {"event": ("event", "seq"), "group": ("job_group", "id")}
"""Where a noun's numbers stand, if not in `id` of a table of its name."""


def numbers_in(path: Path) -> Numbers:
    numbers = Numbers()
    with _opened(path, "mode=ro") as connection:
        for noun, following in connection.execute("SELECT noun, next FROM sequence").fetchall():
            table, column = _NUMBERED.get(noun, (noun, "id"))
            ((last,),) = connection.execute(f"SELECT max({column}) FROM {table}")
            numbers.have(noun, max(last or 0, following - 1))
        for (epoch,) in connection.execute("SELECT value FROM meta WHERE key = 'epoch'"):
            numbers.epoch = int(epoch)
    return numbers
