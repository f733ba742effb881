"""The two sides of a store, over either database, and their repositories.

`Reader` only reads. `Session` reads and writes, in one write transaction at a time. A store has one `Session`, in the
scheduler's engine, and one `Reader` for each thread that reads. Both have one repository for each noun, and a
repository that writes extends the one that reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rota.db.artifacts import ArtifactRecords, Artifacts
from rota.db.breakers import BreakerRecords, Breakers
from rota.db.chains import ChainRecords, Chains
from rota.db.database import BulkTables, Database
from rota.db.edges import EdgeRecords, Edges
from rota.db.events import EventRecords, Events
from rota.db.groups import GroupRecords, Groups
from rota.db.ids import IdRecords, Ids, Meta, MetaRecords
from rota.db.job_records import JobRecords
from rota.db.jobs import Jobs
from rota.db.lanes import LaneRecords, Lanes, PauseRecords, Pauses
from rota.db.locks import LockRecords, Locks
from rota.db.prefetch import Prefetch
from rota.db.queue import Queue
from rota.db.queue_reads import QueueRecords
from rota.db.reservations import ReservationRecords, Reservations
from rota.db.responses import ResponseRecords, Responses
from rota.db.runs import RunRecords, Runs
from rota.graph.repository import GraphRecords
from rota.kernel.events import Event
from rota.retention.repository import Retention, RetentionRecords
from rota.schedules.repository import ScheduleRecords, Schedules
from rota.templates.repository import TemplateRecords, Templates
from rota.webhooks.repository import WebhookRecords, Webhooks


class AnyReader:
    """Repositories that read. A reader, a session and a transaction have them."""

    artifacts: ArtifactRecords
    breakers: BreakerRecords
    chains: ChainRecords
    edges: EdgeRecords
    events: EventRecords
    graph: GraphRecords
    groups: GroupRecords
    ids: IdRecords
    jobs: JobRecords
    lanes: LaneRecords
    locks: LockRecords
    meta: MetaRecords
    pauses: PauseRecords
    queue: QueueRecords
    reservations: ReservationRecords
    responses: ResponseRecords
    retention: RetentionRecords
    runs: RunRecords
    schedules: ScheduleRecords
    templates: TemplateRecords
    webhooks: WebhookRecords


class Repositories(AnyReader):
    """Repositories that read and write. A session makes them, and its transactions have the same."""

    artifacts: Artifacts
    breakers: Breakers
    chains: Chains
    edges: Edges
    events: Events
    groups: Groups
    ids: Ids
    jobs: Jobs
    lanes: Lanes
    locks: Locks
    meta: Meta
    pauses: Pauses
    prefetch: Prefetch
    queue: Queue
    reservations: Reservations
    responses: Responses
    retention: Retention
    runs: Runs
    schedules: Schedules
    templates: Templates
    webhooks: Webhooks


REPOSITORIES = tuple(sorted(AnyReader.__annotations__ | Repositories.__annotations__))


class Reader(AnyReader):
    def __init__(self, database: Database) -> None:
        self._db = database
        self.meta = MetaRecords(database)
        self.ids = IdRecords(database, self.meta)
        self.events = EventRecords(database)
        self.responses = ResponseRecords(database)
        self.artifacts = ArtifactRecords(database)
        self.edges = EdgeRecords(database)
        self.locks = LockRecords(database)
        self.lanes = LaneRecords(database)
        self.pauses = PauseRecords(database)
        self.breakers = BreakerRecords(database)
        self.reservations = ReservationRecords(database)
        self.runs = RunRecords(database)
        self.queue = QueueRecords(database, self.artifacts, self.edges, self.locks, self.pauses, self.reservations)
        self.jobs = JobRecords(database, self.artifacts)
        self.chains = ChainRecords(database)
        self.groups = GroupRecords(database)
        self.graph = GraphRecords(database, self.artifacts)
        self.templates = TemplateRecords(database)
        self.schedules = ScheduleRecords(database)
        self.webhooks = WebhookRecords(database)
        self.retention = RetentionRecords(database)

    def read_transaction(self) -> AbstractContextManager[None]:
        """Return a context in which every read sees the same snapshot of the database."""
        return self._db.read_transaction()

    def bulk_tables(self) -> BulkTables:
        return self._db.bulk_tables()

    def close(self) -> None:
        self._db.close()


class Session(Repositories):
    def __init__(self, database: Database) -> None:
        self._db = database
        self.meta = Meta(database)
        self.ids = ids = Ids(database, self.meta)
        self.events = events = Events(database, ids)
        self.responses = Responses(database)
        self.artifacts = Artifacts(database, ids, events)
        self.edges = Edges(database, self.artifacts)
        self.locks = Locks(database)
        self.lanes = Lanes(database)
        self.pauses = Pauses(database, events)
        self.breakers = Breakers(database, events, self.lanes)
        self.reservations = Reservations(database, ids, events, self.locks)
        self.runs = Runs(database, ids, events, self.edges, self.locks)
        self.queue = Queue(
            database, ids, events, self.artifacts, self.edges, self.locks, self.pauses, self.reservations, self.runs
        )
        self.prefetch = Prefetch(database, self.runs)
        self.jobs = Jobs(database, ids, events, self.artifacts, self.locks, self.runs, self.queue)
        self.chains = Chains(database, ids, events, self.artifacts, self.edges)
        self.groups = Groups(database, ids, events, self.artifacts, self.edges, self.locks)
        self.graph = GraphRecords(database, self.artifacts)
        self.templates = Templates(database, ids, events)
        self.schedules = Schedules(database, ids, events)
        self.webhooks = Webhooks(database, ids, events)
        self.retention = Retention(database, ids, events, self.breakers)
        self._repositories = {name: getattr(self, name) for name in REPOSITORIES}

    def share_repositories(self, transaction: Repositories) -> None:
        """Give a transaction the repositories of this session."""
        vars(transaction).update(self._repositories)

    def begin(self) -> None:
        """Begin a transaction. After a reconnect, mark every waiting job dirty, because notifications may have been
        lost."""
        if self._db.begin():
            self.queue.wake_all()

    def commit(self) -> list[Event]:
        """Commit the transaction and return its events for the subscribers."""
        self.events.write()
        self._db.commit()
        self.ids.clear()
        return self.events.take()

    def flush(self) -> None:
        """Send the buffered writes to the database, so that their errors surface here."""
        self._db.flush()

    def rollback(self) -> None:
        self.events.discard()
        self.ids.clear()
        self._db.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Return a context that undoes its own changes, events and ids, and only these, if an exception leaves it."""
        kept = len(self.events.pending)
        try:
            with self._db.savepoint():
                yield
        except BaseException:
            self.events.discard(kept)
            self.ids.clear()
            raise

    def raise_epoch(self, min_epoch: int = 0) -> int:
        """Increment and return the epoch, a number that grows with every scheduler that opens the store.

        Writes and orders with an older epoch are refused. `min_epoch` is the highest epoch that the supervisor has
        seen; it may come from another store.
        """
        epoch = max(int(self.meta.get("epoch") or 0), min_epoch) + 1
        self.meta.set("epoch", str(epoch))
        self._db.set_fencing_epoch(epoch)
        return epoch

    def fileno(self) -> int:
        return self._db.fileno()

    def poll_notifications(self) -> bool:
        return self._db.poll_notifications()

    def bulk_tables(self) -> BulkTables:
        return self._db.bulk_tables()

    def close(self) -> None:
        self._db.close()
