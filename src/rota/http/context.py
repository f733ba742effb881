"""Shared context of the handlers. The daemon makes its parts, and runs the loops among them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from rota.blocking import BlockingCalls
from rota.clock import Clock
from rota.config import Config
from rota.control.schemas import SchedulerProcess
from rota.db.store import ReaderPool
from rota.direct.leases import LeaseMonitor
from rota.engine.calls import EngineCalls
from rota.engine.fact_cache import FactCache
from rota.engine.metrics import EngineMetrics
from rota.engine.transaction import Settings, Transaction
from rota.events.feed import EventFeed
from rota.events.hub import Hub
from rota.home import Home
from rota.http.sse import StreamLimit
from rota.http.trace import current_trace
from rota.jobs.queries import ViewContext, add_policies, render_stored_jobs
from rota.jobs.schemas import JobView
from rota.jobs.submission import DefaultEnvironment
from rota.jobs.submit import AcceptedSubmit, DeferredSubmit, DelayWarning, SubmitOutcome, find_delays, warn_of_ended
from rota.jobs.submit_preparation import SubmitPreparer
from rota.kernel.artifacts import Observations
from rota.kernel.holds import Holds
from rota.kernel.pacing import StartOutlook, effective_batch_size
from rota.probe.port import Probe
from rota.retention.collector import RetentionCollector
from rota.webhooks.delivery import WebhookSender
from rota.work.reader import WorkReader


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
        clock: Clock,
        engine: EngineCalls,
        readers: ReaderPool,
        hub: Hub,
        feed: EventFeed,
        leases: LeaseMonitor,
        sender: WebhookSender,
        submit_preparer: SubmitPreparer,
        schedules_changed: asyncio.Event,
        control: DaemonControl,
        actor: str,
        default_environment: DefaultEnvironment,
        probe: Probe,
        fact_cache: FactCache,
        blocking_calls: BlockingCalls,
        work: WorkReader,
        metrics: EngineMetrics,
        max_streams: int,
    ) -> None:
        self.home = home
        self.clock = clock
        self.run_in_turn = engine.run_in_turn
        self.run_and_render = engine.run_and_render
        self.run_once = engine.run_once
        self.dry_run = engine.dry_run
        self.read = readers.read
        self.hub = hub
        self.feed = feed
        self.leases = leases
        self.sender = sender
        self.submit_preparer = submit_preparer
        self.schedules_changed = schedules_changed
        self.control = control
        self.actor = actor
        self._default_environment = default_environment
        self.probe = probe
        self.fact_cache = fact_cache
        self.blocking_calls = blocking_calls
        self.work = work
        self.metrics = metrics
        self.stream_limit = StreamLimit(max_streams)
        self._jobs = home.jobs

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
            job_views[job] = add_policies(tx, job_views[job], new[job].to_job(tx.now), view_context)
        return [
            (outcome, None if isinstance(outcome, DeferredSubmit) else job_views[outcome.jobs[0]], delayed)
            for outcome, delayed in self.render_batch(tx, results)
        ]

    def render_batch(
        self, tx: Transaction, results: Sequence[SubmitOutcome]
    ) -> list[tuple[SubmitOutcome, DelayWarning | None]]:
        delayed = find_delays(tx, results)
        return list(zip([warn_of_ended(tx, outcome) for outcome in results], delayed, strict=True))
