"""SQLite behind the `Database` port: WAL, `synchronous=FULL`, one writing connection, any number that read."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rota.errors import StorageFull, StoreAway, StoreError
from rota.store import statement
from rota.store.database import Bulk, Row
from rota.store.guard import REFUSAL
from rota.store.put_off import PuttingOff
from rota.store.sqlite.bulk import SqliteBulk
from rota.store.sqlite.checkpoint import LARGE, Checkpointer

SYNCHRONOUS = "FULL"
"""What was answered is on the disk. Only a crash of the machine shows the difference."""
_IN = re.compile(r"@in\((\w+)\)")
_VALUE = re.compile(r":(\w+)")
_REFUSAL = r"CREATE TRIGGER \g<name> BEFORE \g<event> WHEN \g<when> BEGIN SELECT RAISE(ABORT, \g<text>); END;"


def translate(text: str) -> str:
    """SQLite's words for the few in which the databases differ."""
    text = REFUSAL.sub(_REFUSAL, text)
    text = text.replace("@int", "INTEGER")
    return _IN.sub(r"IN (SELECT value FROM json_each(:\1))", text.replace("@strict", "STRICT"))


class Statement(NamedTuple):
    sql: str
    lists: tuple[str, ...]
    """The values that are lists: they travel as JSON, and `@in` unfolds them."""
    single: str
    """For lists of one value each, which are most: a plain comparison takes a quarter of the time."""

    def bound(self, values: dict[str, Any]) -> str:
        """Make the values fit, and say for which text."""
        if all(len(values[name]) == 1 for name in self.lists):
            for name in self.lists:
                values[name] = values[name][0]
            return self.single
        for name in self.lists:
            values[name] = json.dumps(values[name])
        return self.sql


def _statement(text: str) -> Statement:
    return Statement(translate(text), tuple(dict.fromkeys(_IN.findall(text))), translate(_IN.sub(r"= :\1", text)))


@lru_cache(maxsize=256)
def _by_number(sql: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The same with numbers for its values, and what puts them in this order: of many rows, to look for each value of
    each by name takes a fifth of the time."""
    first, *others = dict.fromkeys(_VALUE.findall(sql))
    numbers = {name: n for n, name in enumerate((first, *others), 1)}
    numbered = _VALUE.sub(lambda found: f"?{numbers[found[1]]}", sql)
    return numbered, itemgetter(first, *others) if others else lambda row: (row[first],)


@lru_cache(maxsize=1)
def _statements() -> Mapping[str, Statement]:
    return statement.load(_statement)


_PERHAPS_FULL = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""How SQLite calls it when there is no room for the files beside the database."""
_ROOM = 64 * 1024


def _is_full(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _ROOM


def _full(path: Path) -> StorageFull:
    return StorageFull(f"the disk that holds {path} is full; nothing was stored: free some space and try again")


def _trouble(error: sqlite3.Error, path: Path) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return error  # a broken invariant is a defect of the caller, not trouble with the database
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code in _PERHAPS_FULL and _is_full(path)):
        return _full(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"{path} is damaged or not a Rota database ({error}); restore it from a backup")
    if code == sqlite3.SQLITE_BUSY:
        return StoreAway(f"another program keeps {path} locked; nothing was stored: end it, or wait for it")
    return StoreError(f"the database {path} cannot be used: {error}")


class SqliteDatabase(PuttingOff):
    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        super().__init__()
        self._path = path
        self._statements = _statements()
        self._depth = 0
        address = f"file:{_escaped(path)}?mode={'ro' if readonly else 'rwc'}"
        self._checkpointer = None if readonly else Checkpointer(address)
        try:
            if not readonly:
                path.touch(mode=0o600)
            self._connection = sqlite3.connect(
                address, uri=True, isolation_level=None, cached_statements=256,
                check_same_thread=False,
            )  # fmt: skip
            self._execute = self._connection.execute
            self._connection.execute("PRAGMA busy_timeout = 10000")
            if not readonly:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {LARGE}")
                self._connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise _trouble(error, path) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full(path) from error
            raise StoreError(f"the database {path} cannot be made: {error.strerror}") from error

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        self.catch_up()
        found = self._statements[name]
        sql = found.bound(values) if found.lists else found.sql
        try:
            return self._execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def run(self, name: str, /, **values: Any) -> int:
        self.catch_up()
        found = self._statements[name]
        sql = found.bound(values) if found.lists else found.sql
        try:
            return self._execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        self.catch_up()
        if not values:
            return 0
        sql, in_order = _by_number(self._statements[name].sql)
        try:
            return self._connection.executemany(sql, map(in_order, values)).rowcount
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def script(self, text: str) -> None:
        """Several statements, for the schema."""
        part = ""
        try:
            for line in text.splitlines(keepends=True):
                part += line
                if sqlite3.complete_statement(part):
                    self._connection.execute(part)
                    part = ""
            if part.strip():
                self._connection.execute(part)
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def _do(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def begin(self) -> bool:
        self._do("BEGIN IMMEDIATE")
        return False  # there is no connection to lose

    def commit(self) -> None:
        self.catch_up()
        self._do("COMMIT")
        if self._checkpointer is not None:
            self._checkpointer.committed()

    def rollback(self) -> None:
        self._put_off = {}
        # A full disk makes SQLite roll back by itself; asking again would be an error of its own.
        if self._connection.in_transaction:
            self._do("ROLLBACK")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.catch_up()
        self._depth += 1
        name = f"s{self._depth}"
        self._do(f"SAVEPOINT {name}")
        try:
            yield
            self.catch_up()
        except BaseException:
            self._put_off = {}
            if self._connection.in_transaction:
                self._do(f"ROLLBACK TO {name}")
                self._do(f"RELEASE {name}")
            raise
        else:
            self._do(f"RELEASE {name}")
        finally:
            self._depth -= 1

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._do("BEGIN")
        try:
            yield
        finally:
            self.rollback()

    def own_epoch(self, epoch: int) -> None:
        """The lock on the home lasts as long as its scheduler: nobody can have raised another."""

    def fileno(self) -> int:
        return -1

    def hear(self) -> bool:
        return False

    def bulk(self) -> Bulk:
        self.catch_up()
        return SqliteBulk(self._connection)

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        self._connection.close()


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
