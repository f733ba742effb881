"""The state of one write transaction, and the requests that run in it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.artifact import ArtifactPaths, Observations
from rota.core.backpressure import QueueLimits
from rota.core.breaker import BreakerPolicy
from rota.core.control import Holds
from rota.core.fact import Fact, FactValue
from rota.core.pacing import DispatchInterval, Tick
from rota.core.pool import ConcurrencyPolicy, PoolSizes
from rota.core.retry import RetryPolicies
from rota.core.tick import StartPlan
from rota.core.webhook import WebhookPolicy
from rota.engine.clear_operation import ClearOperation, ClearProgress, make_holds
from rota.engine.fact_cache import FactCache
from rota.engine.idempotency import IdempotentRequest
from rota.engine.metrics import EngineSample
from rota.executor.port import EnvironmentUpload, ExecutorOrder, PrefetchOrder, StartOrder
from rota.ids import JobId, ReservationId, RunId
from rota.store.claim import OpenRun
from rota.store.prefetch import PrefetchedJob
from rota.store.session import Session

T = TypeVar("T")
NODE = "local"
"""The machine that this scheduler starts its jobs on."""
RandomSource = Callable[[], float]
"""Function that returns a new random number between 0 and 1 on each call."""


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


class Transaction:
    """Write transaction. Orders are sent to the executor after its commit, never before."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        now: datetime,
        random_source: RandomSource,
        fact_cache: FactCache | None = None,
        hold_text: str | None = None,
        clear_operations: Sequence[ClearOperation] = (),
        absent_clients: frozenset[ReservationId] = frozenset(),
        runs: Mapping[RunId, OpenRun | None] = MappingProxyType({}),
    ) -> None:
        self.session = session
        self.settings = settings
        self.now = now
        self.random_source = random_source
        self.orders: list[ExecutorOrder] = []
        self.starts: list[StartOrder | EnvironmentUpload] = []
        self.prefetch: PrefetchOrder | None = None
        """Prefetch order to send after the commit: jobs that the executor may start by itself."""
        self.offered: dict[RunId, PrefetchedJob] = {}
        """The offered jobs in order, as they will be once claimed."""
        self.accepted: set[RunId] = set()
        """Offered runs that the executor has started."""
        self.is_prefetch_withdrawn = False
        """Whether the executor has confirmed that it starts no more offered jobs."""
        self.freed_workers: list[str] = []
        """Workers whose runs ended in this turn."""
        self.has_short_run = False
        """Whether a short run succeeded in this turn."""
        self.plan: StartPlan | None = None
        """Jobs chosen to start; `None` before that, and where nothing may start."""
        self.is_dry_run = False
        """Whether the transaction will be rolled back."""
        self.manual_tick: Tick | None = None
        """Tick that a client requested."""
        self.tick_plan: StartPlan | None = None
        """All jobs that a tick chose; some of them may start in later turns."""
        self._initial_runs = runs
        self.runs: dict[RunId, OpenRun | None] = dict(runs)
        """Cache of open runs, since several messages may concern one run; `None` for a run that is not open."""
        self.fact_cache = FactCache() if fact_cache is None else fact_cache
        self.observed: dict[Fact, FactValue] = {}
        """Fact values that this turn received; they enter the fact cache after the commit."""
        self.probe_numbers: dict[Fact, int] = {}
        """Numbers of the probes that observed these values."""
        self.changed_facts: set[Fact] = set()
        """Facts whose value changed: the jobs that depend on them are evaluated again."""
        self.answered_jobs: set[JobId] = set()
        """Jobs whose probe requests were answered in this turn."""
        self.waiting_jobs: dict[JobId, int] | None = None
        """Jobs whose probe requests are open after this turn, each with the probe number of the request. `None` if the
        turn chose no jobs."""
        self.probe_requests: list[ProbeRequest] = []
        """Facts to probe; submitted after the commit."""
        self.has_new_jobs = False
        """Whether jobs were submitted in this turn."""
        self.has_reservations = False
        """Whether a reservation was created or queued again."""
        self.has_webhook_urls = False
        """Whether a submitted job names webhook URLs."""
        self.has_webhook_changes = False
        """Whether the list of webhook endpoints must be loaded again."""
        self.has_deliveries = False
        """Whether a delivery may be due."""
        self.has_watchers = False
        """Whether an evaluated job depends on external facts."""
        self.on_commit: list[Callable[[], None]] = []
        """Callbacks for right after the commit, before any job starts: changes to files, wake-ups of threads. A
        callback reports its own errors."""
        self.retried_runs: list[RunId] = []
        """Runs that failed in this turn and are retried."""
        self.samples: list[EngineSample] = []
        """Metric samples to record after the commit."""
        self.hold_text = hold_text
        """Text of the hold file, while it exists."""
        self.clear_operations = list(clear_operations)
        """Clear operations in progress, including those that this turn began and excluding those that it finished."""
        self.clear_progress: dict[ClearOperation, ClearProgress] = {}
        """Progress of this turn, by clear operation."""
        self._initial_clear_operations = tuple(clear_operations)
        self._absent_clients = absent_clients
        self.returned_clients: set[ReservationId] = set()
        """Reservations whose clients have reconnected."""

    def reset(self) -> None:
        """Discard everything after a rollback."""
        self.orders.clear()
        self.accepted.clear()
        self.freed_workers.clear()
        self.is_prefetch_withdrawn = self.has_short_run = False
        self.manual_tick = None
        self.runs = dict(self._initial_runs)
        self.observed.clear()
        self.probe_numbers.clear()
        self.changed_facts.clear()
        self.answered_jobs.clear()
        self.waiting_jobs = None
        self.probe_requests.clear()
        self.has_new_jobs = False
        self.on_commit.clear()
        self.retried_runs.clear()
        self.samples.clear()
        self.clear_operations = list(self._initial_clear_operations)
        self.clear_progress.clear()
        self.returned_clients.clear()

    @property
    def absent_clients(self) -> frozenset[ReservationId]:
        """Reservations that start only after their clients have reconnected."""
        return self._absent_clients - self.returned_clients

    @property
    def holds(self) -> Holds:
        return make_holds(self.hold_text, self.clear_operations, self.absent_clients)

    @property
    def observations(self) -> Observations:
        return Observations(
            observed=ChainMap(self.observed, self.fact_cache.observed), paths=self.settings.artifact_paths
        )

    def record_observed(self, observed: Mapping[Fact, FactValue], probe_number: int) -> None:
        """Record the values of a probe, except for facts that a newer probe has observed."""
        known = ChainMap(self.observed, self.fact_cache.observed)
        for fact, value in observed.items():
            if self.fact_cache.is_outdated(fact, probe_number) or probe_number < self.probe_numbers.get(fact, 0):
                continue
            if fact not in known or known[fact] != value:
                self.changed_facts.add(fact)
            self.observed[fact], self.probe_numbers[fact] = value, probe_number

    def invalidate_facts(self, facts: Iterable[Fact]) -> None:
        """Discard the observed values of these facts. After a rollback the only cost is an extra probe."""
        for fact in facts:
            self.observed.pop(fact, None)
            self.fact_cache.invalidate(fact)

    def commit_facts(self) -> None:
        """Move the observed values into the fact cache after the commit."""
        for fact, value in self.observed.items():
            self.fact_cache.record(fact, value, self.probe_numbers[fact])
        if self.waiting_jobs is not None:
            self.fact_cache.waiting_jobs = self.waiting_jobs
            return
        # An answer in a turn that chose no jobs has expired: the job must ask again when it is chosen next.
        for job in self.answered_jobs:
            self.fact_cache.waiting_jobs.pop(job, None)

    def find_open_run(self, run: RunId) -> OpenRun | None:
        """Return the run if it is open."""
        if run not in self.runs:
            self.runs[run] = self.session.open_run(run)
        return self.runs[run]


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
