"""Shared context of the handlers: access to the engine, readers of the store, and notification of changes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from rota.api.batching import RequestBatcher
from rota.api.client_leases import LeaseMonitor
from rota.api.feed import EventFeed
from rota.api.hub import Hub
from rota.api.sse import StreamLimit
from rota.api.trace import current_trace
from rota.blocking import BlockingCalls
from rota.clock import Clock
from rota.command.backpressure import DeferredSubmit, DelayWarning
from rota.command.submission import DefaultEnvironment
from rota.command.submit import AcceptedSubmit, SubmitOutcome, find_delays, warn_of_ended
from rota.config import Config
from rota.core.artifact import Observations
from rota.core.control import Holds
from rota.core.pacing import StartOutlook, effective_batch_size
from rota.engine.fact_cache import FactCache
from rota.engine.idempotency import IdempotentRequest, StoredResponse
from rota.engine.loop import EngineLoop
from rota.engine.metrics import EngineMetrics
from rota.engine.requests import run_once
from rota.engine.retention import RetentionCollector
from rota.engine.transaction import Settings, Transaction, TurnRequest
from rota.engine.webhook_sender import WebhookSender
from rota.home import Home
from rota.probe.port import Probe
from rota.receiver.http import HttpMessagePoster
from rota.store.port import Store
from rota.store.session import Reader
from rota.view.job import ViewContext, add_policies, render_stored_jobs
from rota.wire.job import JobView
from rota.wire.scheduler import SchedulerProcess

T = TypeVar("T")
U = TypeVar("U")
_READER_THREADS = 2


class DaemonControl(Protocol):
    """Interface of the daemon process to the API."""

    @property
    def config(self) -> Config: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def first_blocker(self) -> str | None:
        """First reason why no job starts; None if jobs start."""
        ...

    @property
    def blockers(self) -> list[str]:
        """All reasons why no job starts."""
        ...

    @property
    def executor_silence(self) -> str | None:
        """Notice that the supervisor does not answer, with advice; None if it does."""
        ...

    @property
    def start_outlook(self) -> StartOutlook:
        """Earliest start of a job that nothing else holds."""
        ...

    @property
    def holds(self) -> Holds: ...

    @property
    def collector(self) -> RetentionCollector: ...

    def check_config(self) -> None:
        """Reload the configuration if the file has changed. An invalid file is reported and otherwise ignored."""
        ...

    async def check_hold_file(self, *, wakes_engine: bool = True) -> None:
        """Read the hold file, if one is configured. `wakes_engine`: a change triggers a turn."""
        ...

    def reload(self) -> None:
        """Reload the configuration from disk. Raises if it is invalid."""
        ...

    def set_pool(self, name: str, size: int) -> None: ...
    def stop(self, grace: timedelta | None, *, kills: bool) -> timedelta:
        """Begin to stop, and return the grace period of running jobs. `kills`: kill the jobs that still run after
        it."""
        ...

    def process_status(self) -> SchedulerProcess:
        """Return the part of the status that describes the process."""
        ...


class Context:
    """Everything that handlers share."""

    def __init__(
        self,
        *,
        home: Home,
        store: Store,
        clock: Clock,
        engine: EngineLoop,
        hub: Hub,
        control: DaemonControl,
        actor: str,
        default_environment: DefaultEnvironment,
        probe: Probe,
        fact_cache: FactCache,
        metrics: EngineMetrics,
        max_streams: int,
    ) -> None:
        self.home = home
        self.clock = clock
        self.hub = hub
        self.control = control
        self.actor = actor
        self._default_environment = default_environment
        self.probe = probe
        self.fact_cache = fact_cache
        self.metrics = metrics
        self.feed = EventFeed(hub.loop, self.read)
        self.stream_limit = StreamLimit(max_streams)
        self.leases = LeaseMonitor(self.run_in_turn, lambda: control.config.direct)
        self.sender = WebhookSender(
            clock=clock,
            read_store=self.read,
            run_in_turn=self.run_in_turn,
            post=HttpMessagePoster(),
            policy=lambda: control.settings.webhooks,
        )
        self.blocking_calls = BlockingCalls()
        """Calls to a file system, which may not answer."""
        self.schedules_changed = asyncio.Event()
        """Set when a schedule may have become due at a different time."""
        self._jobs = home.jobs
        self._store = store
        self._engine = engine
        self._threads = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="rota-reader")
        self._local = threading.local()
        self._readers: list[Reader] = []
        self._results: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._is_wakeup_scheduled = False
        self._batcher: RequestBatcher[TurnRequest[Any]] = RequestBatcher(hub.loop, engine.submit)

    @property
    def default_environment(self) -> DefaultEnvironment:
        """Default environment of a job. While a request is handled, it includes the trace of the request."""
        trace = current_trace()
        return msgspec.structs.replace(self._default_environment, trace=trace) if trace else self._default_environment

    def view_context(self) -> ViewContext:
        settings = self.control.settings
        return ViewContext(
            limits=settings.pool_sizes,
            batch_size=effective_batch_size(settings.batch_size, settings.dispatch_interval),
            breaker_policy=settings.breaker,
            now=self.clock.now(),
            jobs_directory=self._jobs,
            hold_reason=self.control.first_blocker,
            executor_silence=self.control.executor_silence,
            start_outlook=self.control.start_outlook,
            holds=self.control.holds,
            observations=Observations(observed=self.fact_cache.observed, paths=settings.artifact_paths),
            queue_limits=settings.queue,
        )

    async def run_in_turn(self, operation: Callable[[Transaction], T]) -> T:
        """Run `operation` in the engine's next transaction, and return its result after the commit."""
        result: T = await self._submit_request(operation, None)
        return result

    async def run_and_render(
        self, operation: Callable[[Transaction], T], render: Callable[[Transaction, Sequence[T]], Sequence[U]]
    ) -> U:
        """Run `operation` like `run_in_turn`, and return its result as `render` shows it at the end of the turn."""
        rendered: U = await self._submit_request(operation, render)
        return rendered

    async def dry_run(
        self, operation: Callable[[Transaction], T], render: Callable[[Transaction, Sequence[T]], Sequence[U]]
    ) -> U:
        """Run and render `operation`, then roll it back."""
        rendered: U = await self._submit_request(operation, render, is_dry_run=True)
        return rendered

    async def run_once(
        self,
        idempotency: IdempotentRequest,
        operation: Callable[[Transaction], T],
        render: Callable[[Transaction, Sequence[T]], Sequence[U]],
    ) -> U | StoredResponse:
        """Run and render `operation` at most once for an idempotency key. A repeated request gets the stored
        response."""
        return await self._submit_request(  # type: ignore[no-any-return]
            partial(run_once, idempotency=idempotency, operation=operation), render, idempotency=idempotency
        )

    async def _submit_request(
        self,
        operation: Callable[[Transaction], T],
        render: Callable[[Transaction, Sequence[T]], Sequence[Any]] | None,
        *,
        is_dry_run: bool = False,
        idempotency: IdempotentRequest | None = None,
    ) -> Any:
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Any] = loop.create_future()

        def on_done(result: Any) -> None:
            self._results.append((response, result))
            if not self._is_wakeup_scheduled:  # one wake-up for all results of a turn
                self._is_wakeup_scheduled = True
                loop.call_soon_threadsafe(self._deliver_results)

        self._batcher.add(TurnRequest(operation, on_done, render, is_dry_run=is_dry_run, idempotency=idempotency))
        return await response

    def _deliver_results(self) -> None:
        self._is_wakeup_scheduled = False
        while self._results:
            response, result = self._results.popleft()
            if response.done():
                continue
            if isinstance(result, Exception):
                response.set_exception(result)
            else:
                response.set_result(result)

    def render_submitted(
        self, tx: Transaction, results: Sequence[SubmitOutcome]
    ) -> list[tuple[SubmitOutcome, JobView | None, DelayWarning | None]]:
        """Return each outcome with its job, or with the job that has its unique key, and the warning about a deep
        queue."""
        new = {job.id: job for outcome in results if isinstance(outcome, AcceptedSubmit) for job in outcome.new_jobs}
        first_jobs = [outcome.jobs[0] for outcome in results if not isinstance(outcome, DeferredSubmit)]
        view_context = self.view_context()
        job_views = dict(render_stored_jobs(tx, first_jobs, new, view_context)) if first_jobs else {}
        for job in new.keys() & job_views.keys():
            job_views[job] = add_policies(tx.session, job_views[job], new[job].to_job(tx.now), view_context)
        return [
            (outcome, None if isinstance(outcome, DeferredSubmit) else job_views[outcome.jobs[0]], delayed)
            for outcome, delayed in self.render_batch(tx, results)
        ]

    def render_batch(
        self, tx: Transaction, results: Sequence[SubmitOutcome]
    ) -> list[tuple[SubmitOutcome, DelayWarning | None]]:
        delayed = find_delays(tx, results)
        return list(zip([warn_of_ended(tx, outcome) for outcome in results], delayed, strict=True))

    async def read(self, view: Callable[[Reader], T]) -> T:
        """Run a view in a reader thread, in one read transaction."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, view)

    def _read(self, view: Callable[[Reader], T]) -> T:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._store.reader()
            self._readers.append(reader)
        with reader.read_transaction():
            return view(reader)

    def close(self) -> None:
        self._threads.shutdown()
        for reader in self._readers:
            reader.close()
