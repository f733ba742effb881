"""The state of one write transaction, and the requests that run in it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from rota.db.prefetch import PrefetchedJob
from rota.db.runs import OpenRun
from rota.db.session import Repositories, Session
from rota.engine.clear_operation import ClearOperation, ClearProgress, make_holds
from rota.engine.fact_cache import FactCache
from rota.engine.idempotency import IdempotentRequest
from rota.engine.metrics import EngineSample
from rota.executor.port import EnvironmentUpload, ExecutorOrder, PrefetchOrder, StartOrder
from rota.ids import JobId, ReservationId, RunId
from rota.kernel.artifacts import ArtifactPaths, Observations
from rota.kernel.backpressure import QueueLimits
from rota.kernel.breaker import BreakerPolicy
from rota.kernel.facts import Fact, FactValue
from rota.kernel.holds import Holds
from rota.kernel.pacing import DispatchInterval, PaceState, Tick
from rota.kernel.pools import ConcurrencyPolicy, PoolSizes
from rota.kernel.retry import RetryPolicies
from rota.kernel.tick import StartPlan
from rota.webhooks.model import WebhookPolicy

T = TypeVar("T")
NODE = "local"
"""The machine that this scheduler starts its jobs on."""
RandomSource = Callable[[], float]
"""Function that returns a new random number between 0 and 1 on each call."""


_CONTAINERS = frozenset((list, dict, set))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the configuration that decisions depend on. A reload replaces it as a whole."""

    pool_sizes: PoolSizes
    policy: ConcurrencyPolicy
    batch_size: int | None
    kill_after: timedelta
    start_timeout: timedelta
    spawn_delay: timedelta = timedelta()
    dispatch_interval: DispatchInterval | None = None
    retry: RetryPolicies = RetryPolicies()
    breaker: BreakerPolicy = BreakerPolicy()
    artifact_paths: ArtifactPaths = ArtifactPaths(jobs="", sentinels="")
    queue: QueueLimits = QueueLimits()
    webhooks: WebhookPolicy = WebhookPolicy()


class ProbeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Facts to probe for a job."""

    job: JobId
    facts: tuple[Fact, ...]
    is_undecided: bool
    """True: an evaluation needs the facts to decide. False: the job was chosen to start, and the facts are to be
    confirmed."""
    chain: JobId | None = None
    """Set after the job succeeded: the chain whose declared products are to be checked."""


class Effects(msgspec.Struct):
    """Everything that a turn wants to happen, or remembers until its end: it takes effect after the commit.

    A rollback to a mark restores every field, so that a request that is rolled back leaves nothing behind. A mark
    copies lists, sets and dicts, but not their contents: these must not change before the commit.

    Changes outside this class survive a rollback, where they stay true without the request: the fact cache, in which a
    discarded value costs only an extra probe, and what messages of the executor say about the executor.
    """

    orders: list[ExecutorOrder] = []
    starts: list[StartOrder | EnvironmentUpload] = []
    prefetch_order: PrefetchOrder | None = None
    """Prefetch order to send after the commit: jobs that the executor may start by itself."""
    offered: dict[RunId, PrefetchedJob] = {}
    """The offered jobs in order, as they will be once claimed."""
    accepted: set[RunId] = set()
    """Offered runs that the executor has started."""
    is_prefetch_withdrawn: bool = False
    """Whether the executor has confirmed that it starts no more offered jobs."""
    freed_workers: list[str] = []
    """Workers whose runs ended in this turn."""
    has_short_run: bool = False
    """Whether a short run succeeded in this turn."""
    plan: StartPlan | None = None
    """Jobs chosen to start; `None` before that, and where nothing may start."""
    manual_tick: Tick | None = None
    """Tick that a client requested."""
    tick_plan: StartPlan | None = None
    """All jobs that a tick chose; some of them may start in later turns."""
    pace: PaceState = PaceState()
    """Previous starts and ticks, including those of this turn."""
    next_breaker_check: datetime | None = None
    """Time of the next breaker transition."""
    open_runs: dict[RunId, OpenRun | None] = {}
    """Cache of open runs, since several messages may concern one run; `None` for a run that is not open."""
    observed: dict[Fact, FactValue] = {}
    """Fact values that this turn received; they enter the fact cache after the commit."""
    probe_numbers: dict[Fact, int] = {}
    """Numbers of the probes that observed these values."""
    changed_facts: set[Fact] = set()
    """Facts whose value changed: the jobs that depend on them are evaluated again."""
    answered_jobs: set[JobId] = set()
    """Jobs whose probe requests were answered in this turn."""
    waiting_jobs: dict[JobId, int] | None = None
    """Jobs whose probe requests are open after this turn, each with the probe number of the request. `None` if the turn
    chose no jobs."""
    probe_requests: list[ProbeRequest] = []
    """Facts to probe; submitted after the commit."""
    has_new_jobs: bool = False
    """Whether jobs were submitted in this turn."""
    has_reservations: bool = False
    """Whether a reservation was created or queued again."""
    has_webhook_urls: bool = False
    """Whether a submitted job names webhook URLs."""
    has_webhook_changes: bool = False
    """Whether the list of webhook endpoints must be loaded again."""
    has_deliveries: bool = False
    """Whether a delivery may be due."""
    has_watchers: bool = False
    """Whether an evaluated job depends on external facts."""
    on_commit: list[Callable[[], None]] = []
    """Callbacks for right after the commit, before any job starts: changes to files, wake-ups of threads. A callback
    reports its own errors."""
    retried_runs: list[RunId] = []
    """Runs that failed in this turn and are retried."""
    samples: list[EngineSample] = []
    """Metric samples to record after the commit."""
    clear_operations: list[ClearOperation] = []
    """Clear operations in progress, including those that this turn began and excluding those that it finished."""
    clear_progress: dict[ClearOperation, ClearProgress] = {}
    """Progress of this turn, by clear operation."""
    returned_clients: set[ReservationId] = set()
    """Reservations whose clients have reconnected."""

    def mark(self) -> Effects:
        """Return a copy of the present state, for `rollback_to`."""
        return Effects(*_copy_fields(self))

    def rollback_to(self, mark: Effects) -> None:
        """Restore the state of the mark.

        The cache of open runs is emptied instead: after a rollback, a run may be ended without a look into it."""
        for name, value in zip(self.__struct_fields__, _copy_fields(mark), strict=True):
            setattr(self, name, value)
        self.open_runs.clear()


def _copy_fields(effects: Effects) -> list[Any]:
    """Return the values of all fields, with a copy of each container."""
    return [value.copy() if type(value) in _CONTAINERS else value for value in msgspec.structs.astuple(effects)]


class Transaction(Repositories, msgspec.Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """Inputs and effects of a write transaction, with the repositories of its session. Orders are sent to the executor
    after its commit, never before."""

    session: Session
    settings: Settings
    now: datetime
    random_source: RandomSource
    fact_cache: FactCache = msgspec.field(default_factory=FactCache)
    hold_text: str | None = None
    """Text of the hold file, while it exists."""
    reservations_without_client_before: frozenset[ReservationId] = frozenset()
    """Absent clients at the beginning of the turn."""
    is_dry_run: bool = False
    """Whether the transaction will be rolled back."""
    effects: Effects = msgspec.field(default_factory=Effects)

    def __post_init__(self) -> None:
        self.session.share_repositories(self)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the changes to the store and to the effects if an exception leaves the context."""
        mark = self.effects.mark()
        try:
            with self.session.savepoint():
                yield
        except BaseException:
            self.effects.rollback_to(mark)
            raise

    @property
    def reservations_without_client(self) -> frozenset[ReservationId]:
        """Reservations that start only after their clients have reconnected."""
        return self.reservations_without_client_before - self.effects.returned_clients

    @property
    def holds(self) -> Holds:
        return make_holds(self.hold_text, self.effects.clear_operations, self.reservations_without_client)

    @property
    def observations(self) -> Observations:
        return Observations(observed=self._known_values, paths=self.settings.artifact_paths)

    @property
    def _known_values(self) -> Mapping[Fact, FactValue]:
        return ChainMap(self.effects.observed, self.fact_cache.observed)

    def record_observed(self, observed: Mapping[Fact, FactValue], probe_number: int) -> None:
        """Record the values of a probe, except for facts that a newer probe has observed."""
        effects, known = self.effects, self._known_values
        for fact, value in observed.items():
            if self.fact_cache.is_outdated(fact, probe_number) or probe_number < effects.probe_numbers.get(fact, 0):
                continue
            if fact not in known or known[fact] != value:
                effects.changed_facts.add(fact)
            effects.observed[fact], effects.probe_numbers[fact] = value, probe_number

    def invalidate_facts(self, facts: Iterable[Fact]) -> None:
        """Discard the observed values of these facts. After a rollback the only cost is an extra probe."""
        for fact in facts:
            self.effects.observed.pop(fact, None)
            self.fact_cache.invalidate(fact)

    def commit_facts(self) -> None:
        """Move the observed values into the fact cache after the commit."""
        effects = self.effects
        for fact, value in effects.observed.items():
            self.fact_cache.record(fact, value, effects.probe_numbers[fact])
        if effects.waiting_jobs is not None:
            self.fact_cache.waiting_jobs = effects.waiting_jobs
            return
        # An answer in a turn that chose no jobs has expired: the job must ask again when it is chosen next.
        for job in effects.answered_jobs:
            self.fact_cache.waiting_jobs.pop(job, None)

    def find_open_run(self, run: RunId) -> OpenRun | None:
        """Return the run if it is open."""
        open_runs = self.effects.open_runs
        if run not in open_runs:
            open_runs[run] = self.runs.find_open(run)
        return open_runs[run]


class TurnRequest(Generic[T]):
    """A function to run in the next transaction, and a callback for its result after the commit.

    `render`, if given, turns the result into the response at the end of the turn. It is called once for all requests of
    a turn that share it. A dry run gets its response in the same way and is rolled back.
    """

    def __init__(
        self,
        operation: Callable[[Transaction], T],
        on_done: Callable[[Any], None],
        render: Callable[[Transaction, Sequence[T]], Sequence[Any]] | None = None,
        *,
        is_dry_run: bool = False,
        idempotency: IdempotentRequest | None = None,
    ) -> None:
        self.operation = operation
        self.on_done = on_done
        self.render = render
        self.idempotency = idempotency
        """Set if repeats of the request must not run again; `operation` looks for a stored response first."""
        self.is_dry_run = is_dry_run
