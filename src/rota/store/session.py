"""Domain verbs of the store, over either database.

`Reader` only reads. `Session` reads and writes, in one write transaction at a time. A store has one `Session`, in the
scheduler's engine, and one `Reader` for each thread that reads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from rota.core.event import Event
from rota.store.breaker import BreakerRecords
from rota.store.control import ControlRecords
from rota.store.database import BulkTables, Database
from rota.store.due import DueTimeWriter
from rota.store.edit import EditWriter
from rota.store.event import EventRecords
from rota.store.finish import FinishWriter
from rota.store.gc import GcRecords, GcWriter
from rota.store.graph import GraphRecords
from rota.store.group import GroupRecords, GroupWriter
from rota.store.job_record import JobRecords
from rota.store.lock import LockRecords
from rota.store.move import QueueRecords
from rota.store.prefetch import PrefetchWriter
from rota.store.progress import ProgressRecords
from rota.store.reservation import ReservationRecords, ReservationWriter
from rota.store.retry import RetryWriter
from rota.store.rewind import RewindRecords, RewindWriter
from rota.store.schedule import ScheduleRecords, ScheduleWriter
from rota.store.template import TemplateRecords, TemplateWriter
from rota.store.webhook import WebhookRecords, WebhookWriter


class Reader(
    ReservationRecords,
    JobRecords,
    ControlRecords,
    BreakerRecords,
    GraphRecords,
    RewindRecords,
    GcRecords,
    QueueRecords,
    LockRecords,
    TemplateRecords,
    GroupRecords,
    ProgressRecords,
    WebhookRecords,
    ScheduleRecords,
    EventRecords,
):
    def __init__(self, database: Database) -> None:
        self._db = database

    def read_transaction(self) -> AbstractContextManager[None]:
        """Return a context in which every read sees the same snapshot of the database."""
        return self._db.read_transaction()

    def bulk_tables(self) -> BulkTables:
        return self._db.bulk_tables()

    def close(self) -> None:
        self._db.close()


class Session(
    FinishWriter,
    ReservationWriter,
    LockRecords,
    GraphRecords,
    RetryWriter,
    RewindWriter,
    EditWriter,
    WebhookWriter,
    GcWriter,
    GroupWriter,
    TemplateWriter,
    ScheduleWriter,
    PrefetchWriter,
    DueTimeWriter,
    JobRecords,
):
    def begin(self) -> None:
        """Begin a transaction. After a reconnect, mark every waiting job dirty, because notifications may have been
        lost."""
        if self._db.begin():
            self.wake_all_waiting()

    def commit(self) -> list[Event]:
        """Commit the transaction and return its events for the subscribers."""
        if self._events:
            self._write_events()
        self._db.commit()
        self._clear_id_caches()
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Send the buffered writes to the database, so that their errors surface here."""
        self._db.flush()

    def rollback(self) -> None:
        self._events = []
        self._clear_id_caches()
        self._db.rollback()

    def raise_epoch(self, min_epoch: int = 0) -> int:
        """Increment and return the epoch, a number that grows with every scheduler that opens the store.

        Writes and orders with an older epoch are refused. `min_epoch` is the highest epoch that the supervisor has
        seen; it may come from another store.
        """
        epoch = max(int(self.meta("epoch") or 0), min_epoch) + 1
        self.set_meta("epoch", str(epoch))
        self._db.set_fencing_epoch(epoch)
        return epoch

    def set_meta(self, key: str, value: str) -> None:
        self._db.run("set_meta", key=key, value=value)

    def fileno(self) -> int:
        return self._db.fileno()

    def poll_notifications(self) -> bool:
        return self._db.poll_notifications()

    def bulk_tables(self) -> BulkTables:
        return self._db.bulk_tables()

    def close(self) -> None:
        self._db.close()


AnyReader = Reader | Session
"""Either side of the store, for functions that only read."""
