"""The store's domain verbs, over either database.

`Reader` looks; `Session` looks and changes, inside one write transaction at a time. There is one `Session`
to a store, in the scheduler's engine; readers are as many as there are threads that look.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from rota.core.event import Event
from rota.store.ahead import Foreseeing
from rota.store.breaker import BreakerRecords
from rota.store.control import ControlRecords
from rota.store.database import Bulk, Database
from rota.store.edit import Editing
from rota.store.event import EventRecords
from rota.store.finish import Finishing
from rota.store.gc import Collecting, GcRecords
from rota.store.graph import GraphRecords
from rota.store.group import Grouping, GroupRecords
from rota.store.lock import LockRecords
from rota.store.move import QueueRecords
from rota.store.progress import ProgressRecords
from rota.store.record import Records
from rota.store.retry import Retrying
from rota.store.rewind import Rewinding, RewindRecords
from rota.store.schedule import Firing, ScheduleRecords
from rota.store.slot import Serving, SlotRecords
from rota.store.template import TemplateRecords, Templating
from rota.store.webhook import HookRecords, Telling


class Reader(
    SlotRecords, Records, ControlRecords, BreakerRecords, GraphRecords, RewindRecords, GcRecords, QueueRecords,
    LockRecords, TemplateRecords, GroupRecords, ProgressRecords, HookRecords, ScheduleRecords, EventRecords,
):  # fmt: skip
    def __init__(self, database: Database) -> None:
        self._db = database

    def reading(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment."""
        return self._db.reading()

    def bulk(self) -> Bulk:
        return self._db.bulk()

    def close(self) -> None:
        self._db.close()


class Session(
    Finishing, Serving, LockRecords, GraphRecords, Retrying, Rewinding, Editing, Telling, Collecting, Grouping,
    Templating, Firing, Foreseeing, Records,
):  # fmt: skip
    def begin(self) -> None:
        """After a reconnect every waiting job is looked at again, so that no wake-up can be lost for good."""
        if self._db.begin():
            self.stir_all_waiting()

    def commit(self) -> list[Event]:
        """Make it durable; what happened is returned for those who listen."""
        if self._events:
            self._write_events()
        self._db.commit()
        self._forget_numbers()
        events, self._events = self._events, []
        return events

    def catch_up(self) -> None:
        """Store what was put off, so that what is wrong with it is known."""
        self._db.catch_up()

    def rollback(self) -> None:
        self._events = []
        self._forget_numbers()
        self._db.rollback()

    def raise_epoch(self) -> int:
        """A number that grows with every scheduler that opens the store: later messages of earlier ones lose."""
        epoch = int(self.meta("epoch") or 0) + 1
        self.set_meta("epoch", str(epoch))
        self._db.own_epoch(epoch)
        return epoch

    def set_meta(self, key: str, value: str) -> None:
        self._db.run("set_meta", key=key, value=value)

    def fileno(self) -> int:
        return self._db.fileno()

    def hear(self) -> bool:
        return self._db.hear()

    def bulk(self) -> Bulk:
        return self._db.bulk()

    def close(self) -> None:
        self._db.close()


Looking = Reader | Session
"""Whoever can be asked what there is."""
