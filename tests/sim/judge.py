"""Invariants after every step.

The judge reads the store with its own SQL. The processes in the memory of the simulated supervisor are the truth about
runs, and the referee computes independently which jobs may start and why the others wait.
"""

from __future__ import annotations

import sqlite3
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.db.decoding import to_micros
from rota.direct import queries
from rota.executor.port import AcknowledgeOrder, ExecutorOrder, PrefetchOrder, StartOrder, StopOrder
from rota.ids import JobId, ReservationId, RunId, format_job_id, parse_reservation_id
from rota.jobs.queries import render_jobs
from rota.jobs.schemas import WaitReason
from rota.kernel.events import Event
from rota.kernel.job import Job
from rota.kernel.pools import PoolSizes
from rota.kernel.reservations import ReservationState, lock_owner
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status, parse_status
from tests.db.invariants import check_store
from tests.engine.referee import Party, Referee, party_of_job, party_of_reservation, sum_demand
from tests.sim.accepted import SubmitChecker
from tests.sim.endings import EndChecker
from tests.sim.environment import ExternalFactChecker
from tests.sim.order import StartOrderChecker
from tests.sim.schedule import FireChecker
from tests.sim.template import TemplateChecker
from tests.sim.webhook import DeliveryChecker

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

_END_EVENTS = {f"job.{status.lower()}" for status in (*TERMINAL, Status.QUEUED)} | {
    "reservation.ended",
    "reservation.requeued",
}
_STATUS_BY_WAIT = {
    "dependencies": Status.WAITING_ON_DEPS,
    "pinned_head": Status.WAITING_ON_DEPS,
    "locks": Status.WAITING_ON_LOCKS,
}


class Judge:
    def __init__(self, simulation: Simulation, path: Path) -> None:
        self._sim = simulation
        self._path = path
        self.paused: set[str] = set()
        self.running: dict[JobId, Party] = {}
        """Jobs and reservations that have started and not ended, by the events."""
        self.new: list[Party] = []
        self._last_checked = 0
        self._stopped: set[RunId] = set()
        self._was_held = False
        self._waiting_before: set[JobId] = set()
        self._run_records: dict[int, list[Any]] = {}
        self._run_ends: dict[int, list[Any]] = {}
        self._start_order = StartOrderChecker(simulation, self)
        self.templates = TemplateChecker(self.run_sql)
        self._deliveries = DeliveryChecker(self.run_sql)
        self.submits = SubmitChecker(self.run_sql)
        self._external_facts = ExternalFactChecker(simulation, self.run_sql)
        self.ends = EndChecker(simulation, self.run_sql, self._external_facts)
        self.fires = FireChecker(simulation, self.run_sql)
        self._last_committed = 0
        self._failure: Exception | None = None

    def open(self) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None)

    def close(self) -> None:
        self._connection.close()

    def run_sql(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def damage(self, update: str) -> None:
        """Change a record past the constraints of the schema."""
        self._connection.execute("PRAGMA ignore_check_constraints = ON")
        self._connection.execute(update)
        self._connection.execute("PRAGMA ignore_check_constraints = OFF")

    # Checks during a step.

    def at_order(self, order: ExecutorOrder) -> None:
        """Each order that leaves the scheduler is on disk before."""
        match order:
            case StartOrder():
                assert self._sim.engine.silence is None, f"run-{order.run} is ordered from a silent supervisor"
                unread = [start.run for start in self._sim.connection.unread_starts if start.job == order.job]
                assert not unread, f"run-{order.run} is ordered although {unread} of the same job may still start"
                rows = (
                    self.run_sql(f"SELECT status FROM job WHERE id = {order.job}")
                    if order.job > 0
                    else self.run_sql(
                        f"SELECT 'RUNNING' FROM reservation WHERE id = {-order.job} AND run = {order.run}"
                    )
                )
                assert rows, f"run-{order.run} is started without a record"
                if order.job > 0:
                    runs = self.run_sql(f"SELECT job FROM run WHERE id = {order.run} AND finished_at IS NULL")
                    assert runs == [(order.job,)], f"run-{order.run} is started before its claim is on disk"
                    assert Status(rows[0][0]) in STARTED
            case PrefetchOrder():
                for start in order.starts:
                    rows = self.run_sql(f"SELECT status FROM prefetch JOIN job ON job.id = job WHERE run = {start.run}")
                    assert rows == [("QUEUED",)], f"run-{start.run} is offered before that is on disk: {rows}"
            case StopOrder():
                self._stopped.add(order.run)
            case AcknowledgeOrder():
                rows = self.run_sql(f"SELECT 1 FROM run WHERE id = {order.run} AND finished_at IS NULL")
                assert not rows, f"the end of run-{order.run} is acknowledged before it is on disk"

    def at_spawn(self, order: StartOrder) -> None:
        """A process that starts conflicts with no running process, whatever the store contains."""
        party, chain = self._party(order.job), self._chain(order.job)
        for child in self._sim.supervisor.running_children():
            other = child.order.job
            assert self._chain(other) != chain, f"two processes of chain {chain}: {order.job} and {other}"
            assert not party.conflicting_keys(self._party(other)), f"{order.job} and {other} hold the same key"
        for child in self._sim.supervisor.children_of(order.job):
            assert child.end is not None
            has_result = child.end.code is not None and child.order.run not in self._stopped
            since = (
                self.run_sql(f"SELECT rewound_run FROM job WHERE id = {order.job}")[0][0] or 0 if order.job > 0 else 0
            )
            assert not has_result or child.order.run <= since, f"{format_job_id(order.job)} runs again without a rewind"

    def at_commit(self) -> None:
        """Check the commit, and keep a failure for `check`: the engine would handle it as an error of the turn."""
        try:
            new = list(self._sim.reader.events.since(self._last_committed, 100_000))
            self._last_committed = new[-1][0] if new else self._last_committed
            events = [event for _, event in new]
            self._start_order.at_commit(events)
            self.templates.at_commit(events)
            self._deliveries.at_commit(events)
            self.submits.at_commit(events)
            self._external_facts.at_commit(events)
            self.ends.at_commit(events)
            self.fires.at_commit(events)
        except Exception as error:  # noqa: BLE001 - raised by `check`
            self._failure = self._failure or error

    def _party(self, owner: JobId) -> Party:
        if owner > 0:
            return party_of_job(self._sim.job(owner))
        reservation = self._sim.reader.reservations.find(ReservationId(-owner))
        assert reservation is not None
        return party_of_reservation(reservation)

    def _chain(self, owner: JobId) -> JobId:
        return self._sim.job(owner).chain if owner > 0 else owner

    def begin(self) -> None:
        self.new = []
        self._was_held = self._sim.engine.hold_text is not None
        reservations = self._sim.reader.reservations.list_open()
        self._waiting_before = {
            lock_owner(reservation.id) for reservation in reservations if reservation.state is ReservationState.WAITING
        }

    # Checks after a step.

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure
        assert self._sim.engine.store_error is None, self._sim.engine.store_error
        check_store(self.run_sql)
        self._replay_events()
        self.submits.check()
        self._check_run_records()
        self._check_due_times()
        self.templates.check()
        self._deliveries.check()
        self.fires.check()
        self._check_run_ends()
        self._check_silence()
        if self._sim.connection.is_idle and self._sim.engine.first_blocker is None:
            self._check_idle_state()

    def _replay_events(self) -> None:
        """Replay the new events in order."""
        new = list(self._sim.reader.events.since(self._last_checked, 100_000))
        for n, (seq, event) in enumerate(new):
            self._last_checked = seq
            if event.cause == "prefetch":
                self._remove_recovered([later for _, later in new[n + 1 :]])
            self._replay_event(event)

    def _remove_recovered(self, later: list[Event]) -> None:
        """Remove runs that end later in the same recovery.

        A prefetched run that started while the connection was lost is recorded with the run inventory, before the ends
        that freed its capacity. Only events of the recovery are between it and the report of the recovery."""
        recovery_events = takewhile(lambda event: event.cause in ("prefetch", "recovery"), later)
        if any(event.kind == "scheduler.recovered" for event in recovery_events):
            for event in later:
                if event.job is not None and event.kind in _END_EVENTS:
                    self.running.pop(event.job, None)

    def _replay_event(self, event: Event) -> None:
        job = event.job
        reservation = parse_reservation_id(str(event.data["reservation"])) if "reservation" in event.data else None
        match event.kind:
            case "scheduler.paused":
                self.paused.add(str(event.data["scope"]))
            case "scheduler.resumed":
                self.paused.discard(str(event.data["scope"]))
            case "job.rewound" if job is not None:
                self.running.pop(job, None)
            case "job.dispatched" if job is not None:
                self._check_start(party_of_job(self._sim.job(job)))
            case "reservation.started" if reservation is not None:
                record = self._sim.reader.reservations.find(reservation)
                assert record is not None
                self._check_start(party_of_reservation(record))
            case kind if kind in _END_EVENTS:
                owner = job if reservation is None else lock_owner(reservation)
                assert owner is not None
                self.running.pop(owner, None)

    def _check_start(self, party: Party) -> None:
        assert party.owner not in self.running, f"{party.owner} has started twice"
        assert not (self._was_held and self._sim.engine.hold_text), f"{party.owner} starts despite the hold file"
        assert not self.paused & set(party.scopes), f"{party.owner} is paused"
        for other in self.running.values():
            assert not party.conflicting_keys(other), f"{party.owner} and {other.owner} hold the same key"
        self.running[party.owner] = party
        self.new.append(party)
        total, limits = sum_demand(self.running.values()), PoolSizes(self._sim.sizes)
        for pool in party.pool_demand:
            size = limits.size(pool)
            assert size is None or total[pool] <= size, f"{party.owner} fills {pool} to {total[pool]}/{size}"

    def _check_due_times(self) -> None:
        """No due time is further away than its delay, however the clock was set."""
        now = to_micros(self._sim.clock.now())
        for due, delay in (
            ("job.not_before", "delay FROM job WHERE finished_at IS NULL AND not_before"),
            ("breaker.until", "until - opened_at FROM breaker WHERE state = 'open' AND until"),
            ("delivery.next_at", "delay FROM delivery WHERE next_at"),
            ("webhook.held_until", "hold_duration FROM webhook WHERE held_until"),
        ):
            for due_at, max_delay in self.run_sql(f"SELECT {due}, {delay} IS NOT NULL"):
                assert due_at - now <= max_delay, f"{due} is {due_at - now} µs away, expected at most {max_delay} µs"

    def _check_run_records(self) -> None:
        """Runs, and the specs of jobs that have run, never change (INV-001, INV-002)."""
        for run, *record in self.run_sql(
            "SELECT run.id, run.job, run.worker, run.started_at, spec.command, spec.params"
            " FROM run JOIN job ON job.id = run.job JOIN spec ON spec.id = job.spec"
        ):
            earlier = self._run_records.setdefault(run, record)
            assert earlier == record, f"run-{run} changed from {earlier} to {record}"

    def _check_run_ends(self) -> None:
        """The recorded end of a run matches the end of its process, and never changes."""
        for run, *end in self.run_sql("SELECT id, status, exit_code, error FROM run WHERE finished_at IS NOT NULL"):
            status, exit_code, error = self._run_ends.setdefault(run, end)
            assert parse_status(status) is not Status.UNREADABLE, f"run-{run} ended as {status}"
            assert end == [status, exit_code, error], f"run-{run} changed from {self._run_ends[run]} to {end}"
            child = self._sim.supervisor.children.get(RunId(run))
            assert child is not None, f"run-{run} is {status} without a process"
            assert child.end is not None, f"run-{run} is {status} and its process is alive"
            if child.end.code is not None:
                expected = ("COMPLETED" if child.end.code == 0 else "FAILED", child.end.code)
                assert (status, exit_code) == expected, (run, status, child.end)
            assert child.end.is_observed or status != Status.COMPLETED, f"run-{run} is {status} with an unobserved end"
            is_unknown = "crash recovery" in str(error).lower()
            assert (exit_code is None) is is_unknown, f"run-{run}: {error}, exit code {exit_code}"
            assert child.end.is_observed is not is_unknown, f"run-{run}: {error}, end observed: {child.end.is_observed}"

    def _check_silence(self) -> None:
        """Check that a supervisor is reported as silent only if it does not answer, and always if it left a start
        unread for too long."""
        silence, connection = self._sim.engine.silence, self._sim.connection
        assert silence is None or self._sim.supervisor.is_suspended or not connection.is_idle, silence
        since = connection.oldest_unread_start
        is_late = since is not None and since + 300 <= self._sim.clock.monotonic()
        assert silence is not None or not is_late, (
            f"a start is unread since {since}, and the supervisor is not reported as silent"
        )

    # Checks of an idle scheduler.

    def _check_idle_state(self) -> None:
        jobs, reservations = (
            self._sim.reader.jobs.find_all(self._sim.job_ids()),
            self._sim.reader.reservations.list_open(),
        )
        paused = self.paused | ({"global"} if self._sim.engine.hold_text is not None else set())
        referee = Referee(
            jobs, reservations, self._sim.sizes, paused, self._sim.clock.now(), self._external_facts.find_gate
        )
        running = {party.owner for party in referee.running}
        assert running == self.running.keys(), f"running {running}, by the events {set(self.running)}"
        alive = {child.order.job for child in self._sim.supervisor.running_children()}
        with_child = {party.owner for party in referee.running if party.owner > 0 or self._has_command(party.owner)}
        assert alive == with_child, f"alive {alive}, in the store {with_child}"
        self._check_reserved_capacity(referee)
        self._check_reservations(referee)
        self._check_jobs(referee, {job.id: job for job in jobs})
        self._check_idle_turn()

    def _check_reserved_capacity(self, referee: Referee) -> None:
        """No job took capacity that a waiting direct execution keeps, except in the step in which it was requested."""
        waiting = [
            reservation
            for reservation in referee.reservations
            if reservation.owner in self._waiting_before and referee.keeps_capacity(reservation)
        ]
        for job in self.new:
            for reservation in waiting if job.owner > 0 and job.owner in self.running else ():
                shared = {
                    pool for pool in job.pool_demand.keys() & reservation.pool_demand.keys() if referee.is_limited(pool)
                }
                assert not any(map(referee.is_overdrawn, shared)), f"{job.owner} went before {reservation.owner}"

    def _check_reservations(self, referee: Referee) -> None:
        views = queries.list_reservations(self._sim.reader, self._sim.view_context)[0]
        shown = {view.id: view for view in views}
        for reservation in referee.reservations:
            wait = shown[f"reservation-{-reservation.owner}"].wait
            assert wait is not None, f"{reservation.owner} is waiting without a reason"
            kind = referee.wait_kind(reservation)
            assert str(wait.kind) == kind, (reservation.owner, wait, kind)
            topics = referee.wait_topics(reservation)
            assert topics is None or list(wait.topics) == topics, (reservation.owner, wait, topics)

    def _has_command(self, owner: JobId) -> bool:
        reservation = self._sim.reader.reservations.find(ReservationId(-owner))
        return reservation is not None and reservation.command is not None

    def _check_jobs(self, referee: Referee, jobs: dict[JobId, Job]) -> None:
        waiting = [job for job in jobs.values() if job.status in WAITING]
        shown = {view.id: view for view in render_jobs(self._sim.reader, waiting, self._sim.view_context)}
        is_paced = bool(referee.startable)
        if is_paced and not self._has_open_breaker():
            startable = [(party.owner, shown[format_job_id(party.owner)].wait) for party in referee.startable]
            assert self._sim.engine.outlook.is_delayed(self._sim.clock.now()), f"{startable} could start now"
        for party in referee.jobs:
            assert not referee.has_unmeetable_edge(party), f"{party.owner} has an edge that cannot be met"
            kind, wait = referee.wait_kind(party), shown[format_job_id(party.owner)].wait
            shown_kind = None if wait is None else str(wait.kind)
            if wait is not None and "breaker" in str(wait.topics):
                continue
            if self._has_open_breaker() or (is_paced and kind in (None, "reservation", "capacity")):
                assert shown_kind in (None, "delay", "reservation", "capacity", "locks", "paused", kind), (
                    party.owner,
                    shown_kind,
                    kind,
                )
            else:
                assert shown_kind == kind, (party.owner, shown_kind, kind, wait)
                assert jobs[party.owner].status is _STATUS_BY_WAIT.get(str(kind), Status.QUEUED), (party.owner, kind)
                topics = self._expected_topics(referee, party, jobs[party.owner])
                assert wait is None or list(wait.topics) == topics, (party.owner, wait, topics)
        self._check_tick_explanations({party.owner: shown[format_job_id(party.owner)].wait for party in referee.jobs})

    def _expected_topics(self, referee: Referee, party: Party, job: Job) -> list[str]:
        topics = referee.wait_topics(party)
        if topics is not None:
            return topics
        pin = job.spec.pinned_head
        match referee.wait_kind(party):
            case "dependencies":
                return [f"artifact:{self._external_facts.find_missing(job)}"]
            case "pinned_head" if pin is not None:
                return [f"head:/repo/.git:{pin.branch}"]
            case _:
                return ["pause"] if self.paused & {"global", *party.scopes} else ["hold_file"]

    def _has_open_breaker(self) -> bool:
        return bool(self._sim.reader.breakers.list_all())

    def _check_tick_explanations(self, waits: dict[JobId, WaitReason | None]) -> None:
        """The explanation of a job says that it starts with the next tick if and only if it does."""
        by_tick = [
            job for job, wait in waits.items() if wait is None or " tick" in wait.detail or "`rota" in wait.detail
        ]
        if by_tick:
            would_dispatch = self._sim.dry_run_tick()["would_dispatch"]
            for job in by_tick:
                text = self._sim.explain_wait(job)["text"]
                assert ("starts with the next" in text) == (format_job_id(job) in would_dispatch), text

    def _check_idle_turn(self) -> None:
        """Another turn of an idle scheduler changes nothing."""
        before = (self.run_sql("PRAGMA data_version"), len(self._sim.connection.orders))
        self._sim.run_turns()
        assert (self.run_sql("PRAGMA data_version"), len(self._sim.connection.orders)) == before
