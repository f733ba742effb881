"""SQLite behind the `Database` port: WAL, `synchronous=FULL`, one writing connection, any number that read."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from rota.errors import StorageFull, StoreError
from rota.store import statement
from rota.store.database import Bulk, Row
from rota.store.sqlite.bulk import SqliteBulk

_IN = re.compile(r"@in\((\w+)\)")


def translate(text: str) -> str:
    """SQLite's words for the few in which the databases differ."""
    text = text.replace("@serial", "INTEGER PRIMARY KEY AUTOINCREMENT").replace("@int", "INTEGER")
    return _IN.sub(r"IN (SELECT value FROM json_each(:\1))", text.replace("@strict", "STRICT"))


@lru_cache(maxsize=1)
def _statements() -> Mapping[str, str]:
    return statement.load(translate)


def _bound(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lists travel as JSON: `@in` unfolds them."""
    for value in values.values():
        if isinstance(value, (list, tuple)):
            return {name: json.dumps(v) if isinstance(v, (list, tuple)) else v for name, v in values.items()}
    return values


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
    return StoreError(f"the database {path} cannot be used: {error}")


class SqliteDatabase:
    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self._path = path
        self._statements = _statements()
        self._depth = 0
        mode = "ro" if readonly else "rwc"
        try:
            if not readonly:
                path.touch(mode=0o600)
            self._connection = sqlite3.connect(
                f"file:{_escaped(path)}?mode={mode}", uri=True, isolation_level=None, cached_statements=256,
                check_same_thread=False,
            )  # fmt: skip
            self._connection.execute("PRAGMA busy_timeout = 10000")
            if not readonly:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise _trouble(error, path) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full(path) from error
            raise StoreError(f"the database {path} cannot be made: {error.strerror}") from error

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        try:
            return self._connection.execute(self._statements[name], _bound(values)).fetchall()
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def run(self, name: str, /, **values: Any) -> int:
        try:
            return self._connection.execute(self._statements[name], _bound(values)).rowcount
        except sqlite3.Error as error:
            raise _trouble(error, self._path) from error

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        try:
            return self._connection.executemany(self._statements[name], values).rowcount
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
        self._do("COMMIT")

    def rollback(self) -> None:
        # A full disk makes SQLite roll back by itself; asking again would be an error of its own.
        if self._connection.in_transaction:
            self._do("ROLLBACK")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._depth += 1
        name = f"s{self._depth}"
        self._do(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
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

    def bulk(self) -> Bulk:
        return SqliteBulk(self._connection)

    def close(self) -> None:
        self._connection.close()


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
