"""Faults between any two operations of the scheduler: it is killed, the disk is full, or the store is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from rota.db.database import Database
from rota.db.session import Reader, Session
from rota.db.store import Store
from rota.errors import StorageFull, StoreError

FaultKind = Literal["crash", "full", "busy"]


class Crash(BaseException):
    """The scheduler is killed: the exception is not caught, no response is sent, and uncommitted changes are lost."""


class Fault(msgspec.Struct, frozen=True):
    kind: FaultKind
    after: int
    """Number of operations that succeed before the fault."""


class FaultInjector:
    """Counts the operations, and injects the armed fault."""

    def __init__(self) -> None:
        self._fault: Fault | None = None
        self._remaining = 0
        self.crashes = 0
        self.on_commit: Callable[[], None] = lambda: None
        """Called after each commit, before a fault can follow it."""

    @contextmanager
    def armed(self, fault: Fault | None) -> Iterator[None]:
        self._fault, self._remaining = fault, 0 if fault is None else fault.after
        try:
            yield
        finally:
            self._fault = None

    def count_operation(self, *, is_write: bool) -> None:
        """Count an operation that is about to be executed, or was just executed, and raise the fault if it is due."""
        if self._fault is None or (self._fault.kind != "crash" and not is_write):
            return
        if self._remaining:
            self._remaining -= 1
            return
        match self._fault.kind:
            case "crash":
                self._fault = None
                self.crashes += 1
                raise Crash
            case "full":  # The disk stays full.
                raise StorageFull("the disk is full; nothing was stored")
            case "busy":
                self._fault = None
                raise StoreError("the database is locked")


class FaultyDatabase:
    """A database with a possible fault before each operation, and after a commit."""

    def __init__(self, inner: Database, faults: FaultInjector) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def rows(self, name: str, /, **values: Any) -> Any:
        self._faults.count_operation(is_write=False)
        return self._inner.rows(name, **values)

    def run(self, name: str, /, **values: Any) -> int:
        self._faults.count_operation(is_write=True)
        return self._inner.run(name, **values)

    def run_many(self, name: str, values: Any, /) -> int:
        self._faults.count_operation(is_write=True)
        return self._inner.run_many(name, values)

    def buffer(self, name: str, values: Any, /) -> None:
        self._faults.count_operation(is_write=True)
        self._inner.buffer(name, values)

    def flush(self) -> None:
        self._faults.count_operation(is_write=True)
        self._inner.flush()

    def begin(self) -> bool:
        self._faults.count_operation(is_write=True)
        return self._inner.begin()

    def commit(self) -> None:
        self._faults.count_operation(is_write=True)
        self._inner.commit()
        self._faults.on_commit()
        self._faults.count_operation(is_write=False)


class FaultyStore:
    def __init__(self, inner: Store, faults: FaultInjector) -> None:
        self._inner = inner
        self._faults = faults
        self.name = inner.name

    def session(self) -> Session:
        database: Any = FaultyDatabase(self._inner.session()._db, self._faults)
        return Session(database)

    def reader(self) -> Reader:
        return self._inner.reader()
