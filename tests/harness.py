"""A scheduler without processes: the real core, engine and store, with a fake clock, executor and probe."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rota.control import commands
from rota.control.commands import request_tick
from rota.control.queries import render_tick
from rota.db.store import Store
from rota.direct import queries as direct_queries
from rota.direct.commands import ReservationRequest, ReserveOutcome, release, reserve, withdraw
from rota.direct.schemas import ReservationView
from rota.engine.clear_operation import ClearOperation
from rota.engine.dispatch import StartOrders
from rota.engine.engine import Engine
from rota.engine.facts import Observation, filter_changed, find_watched_facts, probe_facts, record_observation
from rota.engine.idempotency import IdempotentRequest, StoredResponse
from rota.engine.requests import run_once
from rota.engine.transaction import ProbeRequest, Settings, Transaction, TurnRequest
from rota.executor.port import (
    AcknowledgeOrder,
    ExecutorMessage,
    ExecutorOrder,
    ExitReport,
    PingOrder,
    Pong,
    RunInventory,
    RunReport,
    StartConfirmation,
    StartOrder,
    StopOrder,
)
from rota.groups import queries as group_queries
from rota.groups.schemas import GroupView
from rota.ids import GroupId, JobId, ReservationId, RunId, format_group_id, format_job_id
from rota.jobs.cancel import cancel
from rota.jobs.explain import explain_wait
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight, needs_probe, run_preflight
from rota.jobs.queries import ViewContext, show_job
from rota.jobs.rewind import RewindReport, RewindSet, find_rewind_set, probe_rewind_facts, render_reports, rewind
from rota.jobs.schemas import JobView
from rota.jobs.submission import DefaultEnvironment, GroupRequest, Submission
from rota.jobs.submit import AcceptedSubmit, SubmitOutcome, collect_programs, find_missing_programs, submit
from rota.kernel.artifacts import ArtifactPaths, Observations
from rota.kernel.backpressure import QueueLimit, QueueLimits
from rota.kernel.breaker import BreakerPolicy
from rota.kernel.events import Event
from rota.kernel.facts import BranchHead, Fact, FactValue
from rota.kernel.job import Job
from rota.kernel.pacing import effective_batch_size
from rota.kernel.pools import PoolPolicy, PoolSizes
from rota.kernel.reservations import lock_owner
from rota.kernel.status import Status

START_DELAYS = (timedelta(seconds=1), timedelta(seconds=2))
DEFAULT_ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})
DEFAULT_POOLS = {"global": 1, "flow/*": 1, "resource/ollama": 1}

START_TIMEOUT = timedelta(days=3650)
"""Ten years: tests advance the clock far without confirming starts. Tests of a silent supervisor set five minutes."""

_MAX_TURNS = 10_000
"""Limit that fails the test of an engine that never becomes idle."""

Damage = Callable[[str], None]
"""Function that runs SQL without the CHECK constraints of the schema, to damage a record."""
SqlRunner = Callable[[str], list[tuple[Any, ...]]]
"""Function that runs SQL directly on the database, to damage records or test the schema. Each call is a transaction."""


class SchemaRefused(Exception):
    """A constraint of the schema refused the statement."""


@contextmanager
def sqlite_connection(path: Path) -> Iterator[SqlRunner]:
    """Provide a `SqlRunner` over one connection, for many statements in a row."""
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        connection.executescript("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF")

        def run(sql: str) -> list[tuple[Any, ...]]:
            try:
                rows = connection.execute(sql).fetchall()
                connection.commit()
            except sqlite3.IntegrityError as error:
                connection.rollback()
                raise SchemaRefused(str(error)) from error
            return rows

        yield run


def make_sqlite_runner(path: Path) -> SqlRunner:
    """Return a `SqlRunner` that opens a connection for each statement, and keeps no file open in between."""

    def run(sql: str) -> list[tuple[Any, ...]]:
        with sqlite_connection(path) as run_sql:
            return run_sql(sql)

    return run


class FakeClock:
    """A clock that advances only when a test says so."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.moment.timestamp()

    def advance(self, **duration: float) -> None:
        self.moment += timedelta(**duration)


class FakeExecutor:
    """An executor that keeps its orders and returns the messages in `inbox`."""

    def __init__(self) -> None:
        self.orders: list[ExecutorOrder] = []
        self.inbox: list[ExecutorMessage] = [RunInventory(runs=[])]
        self.pings: list[PingOrder] = []
        self.is_silent = False
        """Whether it ignores pings."""

    supervisor_pid = 77

    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        self.orders.extend(order for order in orders if not isinstance(order, PingOrder))
        self.pings += [order for order in orders if isinstance(order, PingOrder)]
        if not self.is_silent and any(isinstance(order, PingOrder) for order in orders):
            self.inbox.append(Pong())

    def receive(self) -> list[ExecutorMessage]:
        messages, self.inbox = self.inbox, []
        return messages

    supports_prefetch = False

    def withdraw(self, series: int, timeout: float) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...

    @property
    def starts(self) -> list[StartOrder]:
        return [order for order in self.orders if isinstance(order, StartOrder)]

    @property
    def stops(self) -> list[RunId]:
        return [order.run for order in self.orders if isinstance(order, StopOrder)]

    @property
    def acknowledged(self) -> list[RunId]:
        return [order.run for order in self.orders if isinstance(order, AcknowledgeOrder)]


class FakeProbe:
    """A probe with the facts that the test sets; other files and branches do not exist."""

    def __init__(self) -> None:
        self.values: dict[Fact, FactValue] = {}
        self.repository: str | None = "/repo/.git"
        self.probe_count = 0
        self.merging_repositories: set[str] = set()
        """Repositories with a merge in progress."""

    def observe(self, facts: Collection[Fact]) -> dict[Fact, FactValue]:
        self.probe_count += 1
        return {fact: self.values.get(fact, None if isinstance(fact, BranchHead) else False) for fact in facts}

    def find_repository(self, _directory: str) -> str | None:
        return self.repository

    def find_worktree_root(self, _directory: str) -> str | None:
        return None if self.repository is None else "/repo"

    def current_branch(self, _directory: str) -> str | None:
        return "main"

    def resolve_commit(self, _repository: str, rev: str) -> str | None:
        return rev.ljust(40, "0")

    def has_merge_in_progress(self, repository: str) -> bool:
        return repository in self.merging_repositories


class Scheduler:
    """A scheduler whose test plays the executor: it confirms starts and ends runs."""

    def __init__(
        self,
        store: Store,
        home: Path,
        pools: Mapping[str, int] | None = None,
        *,
        clock: FakeClock | None = None,
        executor: FakeExecutor | None = None,
    ) -> None:
        self.store = store
        self.home = home
        self.clock = clock or FakeClock()
        self.executor = executor or FakeExecutor()
        self.settings = Settings(
            pool_sizes=PoolSizes({**DEFAULT_POOLS, **(pools or {})}),
            policy=PoolPolicy(),
            batch_size=None,
            kill_after=timedelta(seconds=5),
            start_timeout=START_TIMEOUT,
            breaker=BreakerPolicy(start_delays=START_DELAYS),
            artifact_paths=ArtifactPaths(jobs=str(home / "jobs"), sentinels=str(home / "tmp/merge-conflicts")),
        )
        self.events: list[Event] = []
        self.probe = FakeProbe()
        self.probe_requests: list[ProbeRequest] = []
        """Open probe_requests of the engine. Each turn answers them from `probe`."""
        self.random_value = 0.5
        """Value of every random number; 0.5 gives no jitter."""
        self.start_engine()
        self.reader = store.reader()

    def start_engine(self, hold_text: str | None = None) -> None:
        """Start a new engine on the same store, as after a crash. `hold_text`: text of a hold file that exists then."""
        self.session = self.store.session()
        self.engine = Engine(
            open_session=lambda: self.session,
            executor=self.executor,
            clock=self.clock,
            settings=self.settings,
            start_orders=StartOrders(self.home, self.home / "jobs"),
            publish=self.events.extend,
            submit_probes=self.probe_requests.extend,
            random_source=lambda: self.random_value,
        )
        self.engine.hold_text = hold_text
        self.engine.start()
        self.run_turns()

    def crash(self, reports: Sequence[RunReport] = ()) -> None:
        """Restart with the store only; the executor reports these runs."""
        self.session.close()
        self.executor = FakeExecutor()
        self.executor.inbox = [RunInventory(runs=list(reports))]
        self.start_engine()

    def close(self) -> None:
        self.reader.close()
        self.session.close()

    def run_turns(self) -> None:
        """Take turns until the engine is idle."""
        self.engine.turn()
        self._run_until_idle()

    def _run_until_idle(self) -> None:
        for _ in range(_MAX_TURNS):
            if not self.engine.has_more and not self.probe_requests:
                return
            self.engine.turn(self._answer_probes())
        raise AssertionError(f"the engine is not idle after {_MAX_TURNS} turns")

    def _answer_probes(self) -> list[TurnRequest[None]]:
        """Return the requests that answer the open probe requests."""
        probe_requests, self.probe_requests[:] = list(self.probe_requests), []
        if not probe_requests:
            return []
        facts = {fact for probe_request in probe_requests for fact in probe_request.facts}
        observation = probe_facts(facts, self.probe, self.engine.fact_cache, probe_requests)
        return [TurnRequest(lambda tx: record_observation(tx, observation), lambda _: None)]

    def probe_watched_facts(self) -> Observation:
        return probe_facts(
            find_watched_facts(self.reader, self.settings.artifact_paths), self.probe, self.engine.fact_cache
        )

    def record_changed_facts(self) -> None:
        """Record the changed facts, as the prober does once a second."""
        changed = filter_changed(self.probe_watched_facts(), self.engine.fact_cache.observed)
        if changed.observed:
            self.run_request(lambda tx: record_observation(tx, changed))

    def run_request(self, operation: Any, render: Any = None) -> Any:
        """Run one request, together with answers to open probe requests. Return its response, or raise its refusal."""
        responses: list[Any] = []
        self.engine.turn([*self._answer_probes(), TurnRequest(operation, responses.append, render)])
        self._run_until_idle()
        if isinstance(responses[0], Exception):
            raise responses[0]
        return responses[0]

    def run_once(
        self, key: str, digest: str, operation: Any, render: Any = None, *, render_response: Any = None
    ) -> Any:
        """Run an idempotent request. By default, its stored response is the text of the result."""

        def render_text(result: object) -> StoredResponse:
            return StoredResponse(status=201, body=str(result).encode())

        idempotency = IdempotentRequest(key=key, digest=digest, render=render_response or render_text)
        responses: list[Any] = []
        request = TurnRequest(
            partial(run_once, idempotency=idempotency, operation=operation),
            responses.append,
            render,
            idempotency=idempotency,
        )
        self.engine.turn([*self._answer_probes(), request])
        self._run_until_idle()
        if isinstance(responses[0], Exception):
            raise responses[0]
        return responses[0]

    def submit(
        self, *command: str, after: Sequence[str | JobId] = (), locks: Sequence[str] = (), **fields: Any
    ) -> JobId:
        """Submit a job, return its id. `after` takes ids or `job-1:finished`; `locks` takes `key` or `key:shared`."""
        return self.submit_with_result(*command, after=after, locks=locks, **fields).jobs[0]

    def submit_with_result(
        self, *command: str, after: Sequence[str | JobId] = (), locks: Sequence[str] = (), **fields: Any
    ) -> AcceptedSubmit:
        """Submit a job and return the whole result."""
        outcome = self.try_submit(*command, after=after, locks=locks, **fields)
        assert isinstance(outcome, AcceptedSubmit), outcome
        return outcome

    def try_submit(
        self, *command: str, after: Sequence[str | JobId] = (), locks: Sequence[str] = (), **fields: Any
    ) -> SubmitOutcome:
        """Submit a job and return the outcome, which may be a refusal."""
        body = {
            "command": list(command) or ["true"],
            "after": [_parse_edge(edge) for edge in after],
            "locks": [_parse_lock(lock) for lock in locks],
            **fields,
        }
        jobs = [msgspec.convert(body, Submission)]
        preflight = self._run_preflight(jobs)

        def operation(tx: Transaction) -> SubmitOutcome:
            missing = find_missing_programs(collect_programs(jobs, DEFAULT_ENVIRONMENT))
            return submit(tx, jobs, DEFAULT_ENVIRONMENT, actor="tester", warnings=missing, preflight=preflight)

        outcome: SubmitOutcome = self.run_request(operation)
        return outcome

    def _run_preflight(self, jobs: Sequence[Submission]) -> Preflight:
        if not any(needs_probe(job) for job in jobs):
            return EMPTY_PREFLIGHT
        number = self.engine.fact_cache.begin_probe()
        return run_preflight(jobs, DEFAULT_ENVIRONMENT, self.probe, self.settings.artifact_paths, probe_number=number)

    def submit_group(self, *members: Mapping[str, Any], **group: Any) -> tuple[GroupId, list[JobId]]:
        """Submit a group; `group` are its fields. `after` of a member takes ids or local names with their policy."""
        outcome = self.try_submit_group(*members, **group)
        assert isinstance(outcome, AcceptedSubmit), outcome
        assert outcome.created_group is not None
        return outcome.created_group, outcome.jobs

    def try_submit_group(self, *members: Mapping[str, Any], **group: Any) -> SubmitOutcome:
        bodies = [
            {"command": ["true"], **member, "after": [_parse_edge(edge) for edge in member.get("after", ())]}
            for member in members
        ]
        jobs = [msgspec.convert(body, Submission) for body in bodies]
        request = msgspec.convert(group, GroupRequest)
        preflight = self._run_preflight(jobs)
        outcome: SubmitOutcome = self.run_request(
            lambda tx: submit(tx, jobs, DEFAULT_ENVIRONMENT, actor="tester", preflight=preflight, group_request=request)
        )
        return outcome

    def show_group(self, group: GroupId) -> GroupView:
        return group_queries.show_group(self.reader, format_group_id(group))

    def cancel(self, job: JobId) -> None:
        self.run_request(lambda tx: cancel(tx, job, actor="tester"))

    def reserve(self, *command: str, locks: Sequence[str] = (), **fields: Any) -> ReservationId:
        """Create a reservation for a command, or without one for a client that does the work itself."""
        body = {"command": list(command) or None, "locks": [_parse_lock(lock) for lock in locks], **fields}
        request = msgspec.convert(body, ReservationRequest)
        outcome: ReserveOutcome = self.run_request(lambda tx: reserve(tx, request, DEFAULT_ENVIRONMENT, actor="tester"))
        return outcome.reservation

    def withdraw(self, reservation: ReservationId, reason: str = "its client is gone") -> None:
        self.run_request(lambda tx: withdraw(tx, reservation, reason=reason))

    def release(self, reservation: ReservationId) -> None:
        self.run_request(lambda tx: release(tx, reservation, actor="tester"))

    def show_reservation(self, reservation: ReservationId) -> ReservationView:
        return direct_queries.show(self.reader, reservation, self.view_context)

    def end_reservation(self, reservation: ReservationId, code: int | None = 0, **fields: Any) -> None:
        self.end_run(lock_owner(reservation), code, **fields)

    def pause(self, scope: str = "global", by: str = "tester") -> dict[str, Any]:
        return msgspec.structs.asdict(self.run_request(lambda tx: commands.pause(tx, scope, actor=by)))

    def resume(self, scope: str = "global", by: str = "tester") -> dict[str, Any]:
        return msgspec.structs.asdict(self.run_request(lambda tx: commands.resume(tx, scope, actor=by)))

    def clear(self, scope: str = "global") -> int:
        """Clear a scope, and return the number of cleared jobs."""
        operation: ClearOperation = self.run_request(lambda tx: commands.clear(tx, scope, actor="tester"))
        return operation.completion.result(timeout=0)

    def set_hold_text(self, text: str | None) -> None:
        """Set the text of the hold file; `None` removes the file."""
        self.engine.hold_text = text
        self.run_turns()

    def find_rewind_set(self, job: JobId) -> RewindSet:
        return find_rewind_set(self.reader, job, self.view_context.observations)

    def rewind(self, job: JobId, *, rewind_set: RewindSet | None = None) -> RewindReport:
        """Rewind a job. Return the report, or raise the refusal."""
        jobs = rewind_set or self.find_rewind_set(job)
        facts = probe_rewind_facts(jobs, self.probe, self.engine.fact_cache.begin_probe())
        report: RewindReport = self.run_request(lambda tx: rewind(tx, jobs, facts, actor="tester"), render_reports)
        return report

    def receive(self, *messages: ExecutorMessage) -> None:
        """Receive messages of the executor."""
        self.executor.inbox.extend(messages)
        self.run_turns()

    def find_run(self, job: JobId) -> RunId:
        """Return the newest run of a job that the executor was ordered to start."""
        return next(start.run for start in reversed(self.executor.starts) if start.job == job)

    def confirm_start(self, job: JobId, pid: int = 4242) -> None:
        self.receive(StartConfirmation(run=self.find_run(job), pid=pid, start_time=1))

    def end_run(self, job: JobId, code: int | None = 0, **fields: Any) -> None:
        self.receive(ExitReport(run=self.find_run(job), at=self.clock.moment.timestamp(), code=code, **fields))

    def set_pools(self, **sizes: int) -> None:
        pool_sizes = PoolSizes(
            {**self.settings.pool_sizes.sizes, **{name.replace("__", "/"): n for name, n in sizes.items()}}
        )
        self.settings = msgspec.structs.replace(self.settings, pool_sizes=pool_sizes)
        self.engine.settings = self.settings
        self.run_turns()

    def configure(self, **fields: Any) -> None:
        """Change fields of the settings."""
        self.settings = msgspec.structs.replace(self.settings, **fields)
        self.engine.settings = self.settings
        self.run_turns()

    def tick(self, batch: int | None = None) -> dict[str, Any]:
        """Run a tick, as `rota tick` does."""
        operation = partial(request_tick, observation=self.probe_watched_facts(), batch_size=batch)
        result: dict[str, Any] = self.run_request(operation, _render_ticks)
        return result

    def dry_run_tick(self, batch: int | None = None) -> dict[str, Any]:
        responses: list[Any] = []
        operation = partial(request_tick, observation=self.probe_watched_facts(), batch_size=batch)
        self.engine.dry_run(TurnRequest(operation, responses.append, _render_ticks, is_dry_run=True))
        if isinstance(responses[0], Exception):
            raise responses[0]
        result: dict[str, Any] = responses[0]
        return result

    def set_queue_limits(self, total: QueueLimit | None = None, **flows: QueueLimit) -> None:
        queue = QueueLimits(total=total or QueueLimit(), flows=flows)
        self.settings = msgspec.structs.replace(self.settings, queue=queue)
        self.engine.settings = self.settings
        self.run_turns()

    def set_breaker_policy(self, **fields: Any) -> None:
        self.settings = msgspec.structs.replace(
            self.settings, breaker=BreakerPolicy(**{"start_delays": START_DELAYS, **fields})
        )
        self.engine.settings = self.settings
        self.run_turns()

    @property
    def view_context(self) -> ViewContext:
        return ViewContext(
            limits=self.settings.pool_sizes,
            batch_size=effective_batch_size(self.settings.batch_size, self.settings.dispatch_interval),
            now=self.clock.now(),
            jobs_directory=self.home / "jobs",
            breaker_policy=self.settings.breaker,
            observations=Observations(observed=self.engine.fact_cache.observed, paths=self.settings.artifact_paths),
            start_outlook=self.engine.outlook,
            queue_limits=self.settings.queue,
            hold_reason=self.engine.first_blocker,
            executor_silence=None if self.engine.silence is None else self.engine.silence.text,
            holds=self.engine.holds,
        )

    def job(self, job: JobId) -> Job:
        record = self.reader.jobs.find(job)
        assert record is not None
        return record

    def show_job(self, job: JobId) -> JobView:
        return show_job(self.reader, job, self.view_context)

    def explain_wait(self, job: JobId) -> dict[str, Any]:
        explanation: dict[str, Any] = msgspec.to_builtins(explain_wait(self.reader, job, self.view_context))
        return explanation

    def wait_detail(self, job: JobId) -> str | None:
        wait = self.show_job(job).wait
        return None if wait is None else str(wait.detail)

    def status(self, job: JobId) -> Status:
        return self.job(job).status

    def started_jobs(self) -> list[JobId]:
        """Return the jobs in the order of their start orders."""
        return [start.job for start in self.executor.starts]

    def drain(self, limit: int = 100_000) -> list[JobId]:
        """Let every run succeed immediately, until nothing runs. Return all started jobs in order."""
        ended: set[RunId] = set(self.executor.acknowledged)
        for _ in range(limit):
            running = [start for start in self.executor.starts if start.run not in ended]
            if not running:
                return self.started_jobs()
            ended.add(running[0].run)
            self.receive(ExitReport(run=running[0].run, at=self.clock.moment.timestamp(), code=0))
        raise AssertionError(f"jobs still run after {limit} ends")


def _render_ticks(tx: Transaction, results: Sequence[None]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(render_tick(tx))] * len(results)


def _parse_edge(edge: str | JobId) -> dict[str, str]:
    if isinstance(edge, int):
        return {"job": format_job_id(edge)}
    job, _, policy = edge.partition(":")
    return {"job": job, "policy": policy or "success"}


def _parse_lock(lock: str) -> dict[str, str]:
    key, _, mode = lock.partition(":")
    return {"key": key, "mode": mode or "exclusive"}
