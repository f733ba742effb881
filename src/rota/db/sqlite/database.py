"""SQLite driver: WAL, `synchronous=FULL`, one writing connection, any number of readers.

It never opens a database with an orphaned log: `rota.db-wal` has content, but `rota.db` is empty or missing. SQLite
deletes such a log when it opens the database, and it may hold the only copy of all records: a new scheduler that is
killed leaves all its records there. So every opening, including that of a reader, checks for it first.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rota.db import statements
from rota.db.database import BulkTables, Row, SupersededError, WriteBuffer
from rota.db.sqlite.bulk import SqliteBulkTables
from rota.db.sqlite.checkpoint import AUTOCHECKPOINT_PAGES, Checkpointer
from rota.db.statements import REFUSE_DIRECTIVE
from rota.errors import StorageFull, StoreError, StoreUnavailable

SYNCHRONOUS = "FULL"
"""Every commit is synced to disk before a response. The difference shows only in a crash of the machine."""
RECOVERY_HINT = (
    "restore a backup with `rota restore FILE --force`, or continue without the lost records with `rota up"
    " --accept-loss`, which starts the scheduler and ends all jobs that are still running"
)

_FILE_SUFFIXES = ("-wal", "-shm", "")
_MIN_FREE_BYTES = 64 * 1024
_DISK_FULL_CODES = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""Codes that SQLite also reports if the disk has no room for its companion files."""
_LIST_PARAMETER = re.compile(r"@in\((\w+)\)")
_PARAMETER = re.compile(r":(\w+)")
_REFUSE_TRIGGER = r"CREATE TRIGGER \g<name> BEFORE \g<event> WHEN \g<when> BEGIN SELECT RAISE(ABORT, \g<text>); END;"


class SqliteDatabase(WriteBuffer):
    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        refuse_orphaned_log(path)
        super().__init__()
        self._path = path
        self._statements = _load_statements()
        self._depth = 0
        self._epoch: str | None = None
        address = f"file:{escape_path(path)}?mode={'ro' if readonly else 'rwc'}"
        self._checkpointer = None if readonly else Checkpointer(address)
        try:
            if not readonly:
                path.touch(mode=0o600)
            self._connection = sqlite3.connect(
                address, uri=True, isolation_level=None, cached_statements=256, check_same_thread=False
            )
            self._connection.text_factory = _decode_text
            self._execute = self._connection.execute
            self._connection.execute("PRAGMA busy_timeout = 10000")
            if not readonly:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
                self._connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise translate_error(error, path) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _disk_full_error(path) from error
            raise StoreError(f"the database {path} cannot be created: {error.strerror}") from error

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        self.flush()
        entry = self._statements[name]
        sql = entry.bind(values) if entry.list_parameters else entry.sql
        try:
            return self._execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error

    def run(self, name: str, /, **values: Any) -> int:
        self.flush()
        entry = self._statements[name]
        sql = entry.bind(values) if entry.list_parameters else entry.sql
        try:
            return self._execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        self.flush()
        if not values:
            return 0
        sql, order_values = _number_parameters(self._statements[name].sql)
        try:
            return self._connection.executemany(sql, map(order_values, values)).rowcount
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error

    def run_script(self, text: str) -> None:
        """Execute the statements of a schema script."""
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
            raise translate_error(error, self._path) from error

    def _execute_control(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error

    def begin(self) -> bool:
        self._execute_control("BEGIN IMMEDIATE")
        if self._epoch is not None and self.rows("get_meta", key="epoch") != [(self._epoch,)]:
            self.rollback()
            raise SupersededError(f"another scheduler has taken over {self._path}; this one stops")
        return False  # there is no connection to lose

    def commit(self) -> None:
        self.flush()
        self._execute_control("COMMIT")
        if self._checkpointer is not None:
            self._checkpointer.on_commit()

    def rollback(self) -> None:
        self._buffered = {}
        # SQLite rolls back by itself on a full disk; a second rollback would be an error.
        if self._connection.in_transaction:
            self._execute_control("ROLLBACK")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.flush()
        self._depth += 1
        name = f"s{self._depth}"
        self._execute_control(f"SAVEPOINT {name}")
        try:
            yield
            self.flush()
        except BaseException:
            self._buffered = {}
            if self._connection.in_transaction:
                self._execute_control(f"ROLLBACK TO {name}")
                self._execute_control(f"RELEASE {name}")
            raise
        else:
            self._execute_control(f"RELEASE {name}")
        finally:
            self._depth -= 1

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        self._execute_control("BEGIN")
        try:
            yield
        finally:
            self.rollback()

    def set_fencing_epoch(self, epoch: int) -> None:
        """Refuse transactions under another epoch: the lock file of the home may have been removed."""
        self._epoch = str(epoch)

    def fileno(self) -> int:
        return -1

    def poll_notifications(self) -> bool:
        return False

    def bulk_tables(self) -> BulkTables:
        self.flush()
        return SqliteBulkTables(self._connection, lambda error: translate_error(error, self._path))

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        self._connection.close()


def _decode_text(stored: bytes) -> str:
    """Decode damaged text too: one value that is not UTF-8 must not hide the other records."""
    return stored.decode(errors="replace")


def escape_path(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class SqliteStatement(NamedTuple):
    sql: str
    list_parameters: tuple[str, ...]
    """Names of the list parameters. Lists are sent as JSON, and `@in` unpacks them."""
    single_value_sql: str
    """SQL for lists with one value, the usual case. A plain comparison takes a quarter of the time."""

    def bind(self, values: dict[str, Any]) -> str:
        """Convert the lists among the values in place and return the SQL that fits them."""
        if all(len(values[name]) == 1 for name in self.list_parameters):
            for name in self.list_parameters:
                values[name] = values[name][0]
            return self.single_value_sql
        for name in self.list_parameters:
            values[name] = json.dumps(values[name])
        return self.sql


def translate_statement(text: str) -> str:
    """Replace the words that differ between the databases by SQLite's."""
    text = REFUSE_DIRECTIVE.sub(_REFUSE_TRIGGER, text)
    text = text.replace("@int", "INTEGER")
    return _LIST_PARAMETER.sub(r"IN (SELECT value FROM json_each(:\1))", text.replace("@strict", "STRICT"))


def _parse_statement(text: str) -> SqliteStatement:
    return SqliteStatement(
        translate_statement(text),
        tuple(dict.fromkeys(_LIST_PARAMETER.findall(text))),
        translate_statement(_LIST_PARAMETER.sub(r"= :\1", text)),
    )


@lru_cache(maxsize=256)
def _number_parameters(sql: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """Return the SQL with numbered parameters, and a function that orders the values of a row. Binding by position
    saves a fifth of the time for many rows."""
    first, *others = dict.fromkeys(_PARAMETER.findall(sql))
    numbers = {name: n for n, name in enumerate((first, *others), 1)}
    numbered = _PARAMETER.sub(lambda match: f"?{numbers[match[1]]}", sql)
    return numbered, itemgetter(first, *others) if others else lambda row: (row[first],)


@lru_cache(maxsize=1)
def _load_statements() -> Mapping[str, SqliteStatement]:
    return statements.load_statements(_parse_statement)


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
    for suffix in _FILE_SUFFIXES:
        file = database.with_name(f"{database.name}{suffix}")
        if file.exists():
            file.rename(f"{file}{ending}")
    return f"{state}; the log is now {database}-wal{ending}"


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def translate_error(error: sqlite3.Error, path: Path) -> Exception:
    if isinstance(error, sqlite3.IntegrityError):
        return error  # a broken invariant is a defect of the caller, not a failure of the database
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code in _DISK_FULL_CODES and _is_disk_full(path)):
        return _disk_full_error(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"{path} is damaged or not a Rota database ({error}); restore it from a backup")
    if code == sqlite3.SQLITE_BUSY:
        return StoreUnavailable(
            f"another program has locked {path}; nothing was stored: close that program, or try again later"
        )
    return StoreError(f"the database {path} cannot be used: {error}")


def _is_disk_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES


def _disk_full_error(path: Path) -> StorageFull:
    return StorageFull(f"the disk that holds {path} is full; nothing was stored: free some space and try again")
