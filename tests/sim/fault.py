"""What can go wrong between any two operations of the scheduler: it is killed, the disk is full, the store is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from rota.errors import StorageFull, StoreError
from rota.store.database import Database
from rota.store.port import Store
from rota.store.session import Reader, Session

Kind = Literal["crash", "full", "busy"]


class Crash(BaseException):
    """The scheduler is killed here: nothing catches it, nothing is told, and what was not committed is gone."""


class Fault(msgspec.Struct, frozen=True):
    kind: Kind
    after: int
    """How many operations still go well."""


class Faults:
    """Counts the operations, and is the fault when its time has come."""

    def __init__(self) -> None:
        self._fault: Fault | None = None
        self._left = 0
        self.crashes = 0
        self.committed: Callable[[], None] = lambda: None
        """Told of each commit, before anything can go wrong after it."""

    @contextmanager
    def armed(self, fault: Fault | None) -> Iterator[None]:
        self._fault, self._left = fault, 0 if fault is None else fault.after
        try:
            yield
        finally:
            self._fault = None

    def pass_by(self, *, writes: bool) -> None:
        """An operation is about to be done, or was just done."""
        if self._fault is None or (self._fault.kind != "crash" and not writes):
            return
        if self._left:
            self._left -= 1
            return
        match self._fault.kind:
            case "crash":
                self._fault = None
                self.crashes += 1
                raise Crash
            case "full":
                raise StorageFull("the disk is full; nothing was stored")  # and stays so
            case "busy":
                self._fault = None
                raise StoreError("the database is locked")


class FaultyDatabase:
    """The same verbs, with a fault before each, and after a commit."""

    def __init__(self, inner: Database, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def rows(self, name: str, /, **values: Any) -> Any:
        self._faults.pass_by(writes=False)
        return self._inner.rows(name, **values)

    def run(self, name: str, /, **values: Any) -> int:
        self._faults.pass_by(writes=True)
        return self._inner.run(name, **values)

    def run_many(self, name: str, values: Any, /) -> int:
        self._faults.pass_by(writes=True)
        return self._inner.run_many(name, values)

    def put_off(self, name: str, values: Any, /) -> None:
        self._faults.pass_by(writes=True)
        self._inner.put_off(name, values)

    def catch_up(self) -> None:
        self._faults.pass_by(writes=True)
        self._inner.catch_up()

    def begin(self) -> bool:
        self._faults.pass_by(writes=True)
        return self._inner.begin()

    def commit(self) -> None:
        self._faults.pass_by(writes=True)
        self._inner.commit()
        self._faults.committed()
        self._faults.pass_by(writes=False)


class FaultyStore:
    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self.name = inner.name

    def session(self) -> Session:
        database: Any = FaultyDatabase(self._inner.session()._db, self._faults)
        return Session(database)

    def reader(self) -> Reader:
        return self._inner.reader()
