"""Simulation of one plan."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from rota.clock import SET_BACK_THRESHOLD
from rota.db.session import Reader
from rota.db.sqlite.store import SqliteStore
from rota.engine import breaker, control, dispatch
from rota.engine.facts import probe_facts, record_observation
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import Conflict, InvalidInput, NotFound, QueueFull, StorageFull, StoreError
from rota.groups import commands as group_commands
from rota.ids import JobId, format_group_id, format_job_id, parse_group_id
from rota.jobs.edit import EditRequest, edit
from rota.jobs.move import MoveRequest, move, reorder
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight, needs_probe, run_preflight
from rota.jobs.retry import retry
from rota.jobs.submission import GroupRequest, Submission
from rota.kernel import prefetch
from rota.kernel.breaker import BreakerPolicy
from rota.kernel.facts import BranchHead, Fact, FileExists
from rota.kernel.job import WorkspaceSpec
from rota.kernel.pools import PoolSizes
from rota.kernel.reservations import ReservationState
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.kernel.status import ACTIVE, TERMINAL, WAITING, Status
from rota.schedules import commands as schedule_commands
from rota.schedules.timer import ScheduleTimer
from tests.harness import START_DELAYS
from tests.sim.clock import SimClock
from tests.sim.fault import Crash, FaultInjector, FaultyStore
from tests.sim.judge import Judge
from tests.sim.plan import Plan, Step
from tests.sim.schedule import NAMES, ScheduleSteps
from tests.sim.supervisor import SimConnection, Supervisor
from tests.sim.template import ENVIRONMENT
from tests.sim.webhook import JOB_WEBHOOK_URL, WebhookSteps

T = TypeVar("T")
MEMORY = Path("/dev/shm")
REPOSITORY = "/repo/.git"
MAIN = BranchHead(REPOSITORY, "main")
FACTS: dict[str, Fact] = {
    "file:/a": FileExists("/a"),
    "file:/b": FileExists("/b"),
    "plan_branch:c (c)": BranchHead(REPOSITORY, "c"),
}
OIDS = ("1" * 40, "2".ljust(8, "2").ljust(40, "0"))
SIZES = (-1, 0, 1, 1, 2, 2, 3)
WEIGHTS = (("resource/gpu", 1), ("resource/gpu", 2), ("resource/gpu", 9), ("global", 2), ("global", 9))
SCOPES = ("global", "flow/a", "resource/gpu")
REFUSED = (Conflict, InvalidInput, NotFound, QueueFull, StorageFull, StoreError)
TURN_LIMITS = (
    (dispatch, "EVALUATE_BATCH_SIZE"),
    (dispatch, "MAX_EVALUATE_BATCHES"),
    (dispatch, "MAX_LANES"),
    (control, "MAX_CLEARED_PER_TURN"),
    (breaker, "MAX_PROBE_CANDIDATES"),
    (prefetch, "PREFETCH_DEPTH"),
)
"""Limits of a single turn. With low limits, everything takes many turns."""
_MAX_ROUNDS = 3000
"""Maximum number of turns until the scheduler is idle."""


class Simulation(ScheduleSteps, WebhookSteps):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(f"set-up {plan.seed}")
        self.completed_steps: Counter[str] = Counter()
        """Number of steps of each kind that were not refused."""
        self._has_crashed = False
        self.step_results: list[str] = []
        """Result of each step."""
        self._monkeypatch = pytest.MonkeyPatch()
        if self.random.random() < 0.3:
            for module, name in TURN_LIMITS:
                self._monkeypatch.setattr(module, name, 1)
        self.directory = Path(tempfile.mkdtemp(prefix="rota-sim-", dir=MEMORY if MEMORY.is_dir() else None))
        self.faults = FaultInjector()
        self.sizes = {"global": self.random.choice(SIZES), "flow/*": 1, "resource/ollama": 1, "resource/gpu": 2}
        self._latency = self.random.choice((0.0, 0.0, 3.0))
        clock = self.sim_clock = SimClock()
        store = SqliteStore(self.directory / "rota.db")
        self.judge = Judge(self, self.directory / "rota.db")
        self.supervisor = Supervisor(clock, plan.seed, self.judge.at_spawn)
        super().__init__(
            FaultyStore(store, self.faults), self.directory, self.sizes, clock=clock, executor=self._connect()
        )
        self.judge.open()
        self.faults.on_commit = self.judge.at_commit
        self.schedule_timer = self._make_timer()
        policy = RetryPolicy(base=timedelta(seconds=1))
        failures = self.random.choice((None, None, 3))
        self.configure(
            retry=RetryPolicies(default=policy),
            breaker=BreakerPolicy(failures=failures, start_delays=START_DELAYS),
            start_timeout=timedelta(minutes=5),
        )
        self.probe.values[MAIN] = OIDS[0]

    def _make_timer(self) -> ScheduleTimer:
        return ScheduleTimer(
            clock=self.clock,
            read=self.read,
            run_in_turn=self.run_in_turn,
            run_preflight=self._prepare_jobs,
            default_environment=ENVIRONMENT,
            changed=asyncio.Event(),
        )

    def _connect(self) -> SimConnection:
        connection = SimConnection(self.supervisor, self._latency)
        connection.inbox.clear()
        connection.on_send = self.judge.at_order
        self.supervisor.connect(connection)
        return connection

    @property
    def connection(self) -> SimConnection:
        assert isinstance(self.executor, SimConnection)
        return self.executor

    # Run.

    def run(self) -> None:
        for step in self.plan.steps:
            self.step(step)
        self.finish_all()

    def step(self, step: Step) -> None:
        self.judge.begin()
        with self.faults.armed(step.fault):
            try:
                getattr(self, f"do_{step.kind}")(random.Random(step.number))
                self.completed_steps[step.kind] += 1
                self.step_results.append("done")
            except REFUSED as error:
                self.step_results.append(f"refused: {error}")
            except Crash:
                self.step_results.append("killed")
                self.restart_after_crash()
        if self.engine.store_error is not None:
            self.clock.advance(seconds=1)
            self.run_turns()
        self.process_external_changes()
        self.judge.check()

    def restart_after_crash(self) -> None:
        """Start the next scheduler, which may be killed too."""
        hold_text = self.engine.hold_text
        while True:
            self._has_crashed = False
            self.session.close()
            self.probe_requests.clear()
            self.executor = self._connect()
            try:
                self.start_engine(hold_text)
                self.schedule_timer = self._make_timer()
                return
            except Crash:
                continue

    def run_turns(self) -> None:
        self.engine.turn(self._answer_probes())
        self._run_until_idle()

    def _run_until_idle(self) -> None:
        for _ in range(_MAX_ROUNDS):
            self.connection.execute_due_orders()
            if self.engine.store_error is not None:
                return
            if not (self.connection.is_ready or self.engine.has_more or self.probe_requests or self._is_due()):
                return
            self.engine.turn(self._answer_probes())
        raise AssertionError("the scheduler does not become idle")

    def _answer_probes(self) -> list[TurnRequest[None]]:
        """Return the requests that answer the open probe requests. If an answer cannot be stored, its requests stay
        open."""
        probe_requests, self.probe_requests[:] = list(self.probe_requests), []
        if not probe_requests:
            return []
        facts = {fact for probe_request in probe_requests for fact in probe_request.facts}
        observation = probe_facts(facts, self.probe, self.engine.fact_cache, probe_requests)

        def on_done(result: object) -> None:
            if isinstance(result, Exception):
                self.probe_requests.extend(probe_requests)

        return [TurnRequest(lambda tx: record_observation(tx, observation), on_done)]

    def _is_due(self) -> bool:
        engine = self.engine
        is_due = engine.next_due is not None and engine.next_due <= self.clock.now()
        return is_due or (engine.next_deadline is not None and engine.next_deadline <= self.clock.monotonic())

    def process_external_changes(self) -> None:
        """Record changed facts, and fire due schedules."""
        with suppress(*REFUSED):
            self.record_changed_facts()
        self.fire_due_schedules()

    def fire_due_schedules(self) -> None:
        async def fire_until_idle() -> None:
            for _ in range(_MAX_ROUNDS):
                if await self.schedule_timer.fire_due() != 0.0:
                    return
            raise AssertionError("the schedule timer does not become idle")

        if self.judge.run_sql("SELECT 1 FROM schedule LIMIT 1"):
            try:
                asyncio.run(fire_until_idle())
            except REFUSED:
                self.schedule_timer = self._make_timer()  # decide again which times are late
                raise

    async def read(self, view: Callable[[Reader], T]) -> T:
        with self.reader.read_transaction():
            return view(self.reader)

    async def run_in_turn(self, operation: Callable[[Transaction], T]) -> T:
        """Run a request. Schedules fire concurrently: after a crash, every other request crashes too."""
        if self._has_crashed:
            raise Crash
        try:
            result: T = self.run_request(operation)
        except Crash:
            self._has_crashed = True
            raise
        return result

    async def _prepare_jobs(self, jobs: Sequence[Submission]) -> tuple[Preflight, Sequence[WorkspaceSpec | None]]:
        if not any(map(needs_probe, jobs)):
            return EMPTY_PREFLIGHT, ()
        return run_preflight(
            jobs,
            ENVIRONMENT,
            self.probe,
            self.settings.artifact_paths,
            probe_number=self.engine.fact_cache.begin_probe(),
        ), ()

    # Selection of objects.

    def job_ids(self) -> list[JobId]:
        return [JobId(job) for (job,) in self.judge.run_sql("SELECT id FROM job ORDER BY id")]

    def waiting_jobs(self) -> list[JobId]:
        return [job.id for job in self.reader.jobs.find_all(self.job_ids()) if job.status in WAITING]

    def choose_job(self, jobs: Sequence[JobId], rng: random.Random) -> JobId:
        if not jobs:
            raise Conflict("there is no such job")
        return jobs[rng.randrange(len(jobs))]

    def choose_group(self, rng: random.Random, *, with_ended: bool = False) -> str:
        """Return the id of an existing group. Create an open one if there is none."""
        groups = self.reader.groups.list_ids(limit=99, with_ended=with_ended)
        if not groups:
            request = msgspec.convert({"mode": rng.choice(("parallel", "sequential"))}, GroupRequest)
            groups = [self.run_request(lambda tx: group_commands.create_group(tx, request, actor="tester"))]
        return format_group_id(groups[rng.randrange(len(groups))])

    # Steps of users.

    def random_demand(self, rng: random.Random) -> dict[str, Any]:
        """Return fields of jobs and direct executions, with few different values so that they conflict."""
        return {
            "flow": rng.choice((None, None, None, "a", "b")),
            # 9 is above every size: refused, or never started once a closed or unlimited pool gets a size.
            "pools": rng.choice(({}, {}, *({pool: weight} for pool, weight in WEIGHTS))),
            "locks": rng.choice(((), (), ("k",), ("k:shared",), ("k", "l:shared"))),
        }

    def random_fields(self, rng: random.Random) -> dict[str, Any]:
        names = list(FACTS)
        needs = rng.sample(names, rng.choice((0, 0, 0, 1)))
        produces = [name for name in rng.sample(names, rng.choice((0, 0, 0, 1))) if name not in needs]
        return {
            "needs": needs,
            "produces": produces,
            "missing_producer": rng.choice(("wait", "block", None, None)),
            "pin": rng.choice((None, None, None, None, "main", f"main@{'2' * 8}")),
            "unique": rng.choice((None, None, None, "u")),
            "priority": rng.choice((0, 0, 0, 5)),
            "delay": rng.choice(("0s", "0s", "0s", "1s", "7s")),
            "retries": rng.choice((0, 0, 1, 2)),
            "timeout": rng.choice((None, None, "10s")),
            "type": rng.choice((None, "x", "y")),
            "webhooks": rng.choice(([], [JOB_WEBHOOK_URL])),
        }

    def random_edges(self, rng: random.Random) -> list[str]:
        jobs = self.job_ids()
        count = min(len(jobs), rng.choice((0, 0, 1, 2)))
        return [f"job-{job}:{rng.choice(('success', 'finished', 'failed'))}" for job in rng.sample(jobs, count)]

    def do_submit(self, rng: random.Random) -> None:
        for _ in range(rng.choice((1, 1, 2, 4))):
            demand = self.random_demand(rng)
            phase: dict[str, Any] = {"phase": "p", "parallelizable": rng.random() < 0.5} if demand["flow"] else {}
            fields = {"after": self.random_edges(rng), **demand, **self.random_fields(rng), **phase}
            with suppress(InvalidInput):
                self.judge.submits.record_response(self.try_submit(**fields), fields)

    def do_flood(self, rng: random.Random) -> None:
        """Submit many jobs of one kind without dependencies."""
        fields: dict[str, Any] = {"retries": rng.choice((0, 1)), "priority": rng.choice((0, 0, 5))}
        for _ in range(rng.choice((3, 6, 12))):
            self.judge.submits.record_response(self.try_submit(**fields), fields)

    def do_group(self, rng: random.Random) -> None:
        count = rng.choice((1, 2, 3, 5))
        members = []
        for n in range(count):
            after = [f"m{other}:{rng.choice(('success', 'finished'))}" for other in range(n) if rng.random() < 0.3]
            member = self.random_fields(rng) | {"local": f"m{n}", "after": after, "unique": None}
            members.append({**member, "flow": rng.choice((None, "a"))})
        with self.judge.submits.expecting_members(count):
            outcome = self.try_submit_group(
                *members,
                mode=rng.choice(("parallel", "sequential")),
                on_failure=rng.choice(("stop", "continue", "skip")),
            )
        self.judge.submits.record_response(outcome, *members)

    def do_join_group(self, rng: random.Random) -> None:
        if rng.random() < 0.4:
            request = msgspec.convert({"mode": rng.choice(("parallel", "sequential"))}, GroupRequest)
            self.run_request(lambda tx: group_commands.create_group(tx, request, actor="tester"))
        fields: dict[str, Any] = {"group": self.choose_group(rng, with_ended=rng.random() < 0.2), "retries": 1}
        with self.judge.submits.expecting_members(1):
            outcome = self.try_submit(**fields)
        self.judge.submits.record_response(outcome, fields)

    def do_close_group(self, rng: random.Random) -> None:
        name = self.choose_group(rng)
        self.run_request(lambda tx: group_commands.close(tx, name, actor="tester"))

    def do_cancel_group(self, rng: random.Random) -> None:
        name = self.choose_group(rng, with_ended=rng.random() < 0.2)
        with self.judge.ends.expecting_cancel(self.judge.ends.chains_of(parse_group_id(name))):
            self.run_request(lambda tx: group_commands.cancel(tx, name, actor="tester"))

    def do_reserve(self, rng: random.Random) -> None:
        self.reserve(*(["true"] if rng.random() < 0.7 else []), **self.random_demand(rng))

    def do_finish_reservation(self, rng: random.Random) -> None:
        """Release or withdraw a reservation. Create one without a command if there is none."""
        reservations = [reservation.id for reservation in self.reader.reservations.list_open()] or [
            self.reserve(**self.random_demand(rng))
        ]
        reservation = reservations[rng.randrange(len(reservations))]
        self.release(reservation) if rng.random() < 0.5 else self.withdraw(reservation)

    def do_cancel(self, rng: random.Random) -> None:
        """Cancel a job: mostly an active one, and often while it is being started."""
        statuses = rng.choice(
            (TERMINAL, ACTIVE, ACTIVE, frozenset({Status.DISPATCHED}), frozenset({Status.DISPATCHED}))
        )
        candidates = [job.id for job in self.reader.jobs.find_all(self.job_ids()) if job.status in statuses]
        job = self.choose_job(candidates or self.job_ids(), rng)
        with self.judge.ends.expecting_cancel([self.job(job).chain]):
            self.cancel(job)

    def do_damage_record(self, rng: random.Random) -> None:
        damage = rng.choice((self._damage_job, self._damage_run, self._damage_edges, self._damage_lock))
        damage(rng)

    def _damage_run(self, rng: random.Random) -> None:
        """Give an open run an unknown status, which its end replaces."""
        runs = self.judge.run_sql("SELECT id FROM run WHERE finished_at IS NULL")
        run = self.choose_job([JobId(run) for (run,) in runs], rng)
        self.judge.damage(f"UPDATE run SET status = 'ODD' WHERE id = {run}")
        if rng.random() < 0.5:
            self.restart_after_crash()
        self.run_turns()

    def _damage_edges(self, rng: random.Random) -> None:
        """Give the edges of a waiting job an unknown state. They follow their predecessors nevertheless, and are
        repaired when a chain ends or the scheduler starts."""
        active = self.judge.run_sql("SELECT id FROM job WHERE finished_at IS NULL")
        predecessor = self.choose_job([JobId(job) for (job,) in active], rng)
        fields: dict[str, Any] = {"after": [f"job-{predecessor}:finished", *self.random_edges(rng)]}
        self.judge.submits.record_response(self.try_submit(**fields), fields)
        job = self.job_ids()[-1]
        with self.faults.armed(None):  # The checks after the step expect valid edges.
            if rng.random() < 0.5:
                self.judge.damage(f"UPDATE edge SET state = 'odd' WHERE job = {job} AND state = 'open'")
                self.run_turns()
                self.pass_time(rng.choice((3, 60, 600)))
                unresolved = self.judge.run_sql(
                    "SELECT edge.job FROM edge JOIN job ON job.chain = edge.chain WHERE edge.state = 'odd'"
                    " AND edge.chain NOT IN (SELECT chain FROM job WHERE finished_at IS NULL)"
                )
                assert unresolved == [], f"job-{job} still waits for a chain that has ended"
            else:
                self.judge.damage(f"UPDATE edge SET state = 'odd' WHERE job = {job}")
            self.restart_after_crash()
            self.run_turns()
        assert self.judge.run_sql("SELECT 1 FROM edge WHERE state = 'odd'") == []

    def _damage_lock(self, rng: random.Random) -> None:
        """Give a lock an unknown state while the scheduler is down. Its start repairs it."""
        owners = self.judge.run_sql("SELECT DISTINCT job FROM lock")
        owner = self.choose_job([JobId(owner) for (owner,) in owners], rng)
        with self.faults.armed(None):
            self.judge.damage(f"UPDATE lock SET state = 'odd' WHERE job = {owner}")
            self.restart_after_crash()
            self.run_turns()
        assert self.judge.run_sql("SELECT 1 FROM lock WHERE state = 'odd'") == []

    def _damage_job(self, rng: random.Random) -> None:
        """Give a waiting job an unknown status. All other jobs continue, and a cancel ends the damaged one."""
        independent = self.judge.run_sql(
            "SELECT id FROM job WHERE finished_at IS NULL AND started_at IS NULL AND job_group IS NULL"
            " AND id NOT IN (SELECT job FROM prefetch) AND chain NOT IN (SELECT chain FROM edge)"
            " AND chain NOT IN (SELECT chain FROM product)"
        )
        damaged = self.choose_job([JobId(job) for (job,) in independent], rng)
        with self.faults.armed(None):  # The step crashes by itself, and the record is valid again at its end.
            update = f"UPDATE job SET status = 'PARKED', dirty = (ready = 0) WHERE id = {damaged}"
            self.judge.damage(f"{update} AND finished_at IS NULL")  # dirty, as a start of the scheduler marks it
            if rng.random() < 0.3:
                self.restart_after_crash()
            self.run_turns()
            self.pass_time(rng.choice((0, 10, 600)))  # long enough for the job to start otherwise
            for _ in range(rng.choice((1, 3))):
                with suppress(*REFUSED):
                    self.judge.submits.record_response(self.try_submit(), {})
            assert damaged in self.reader.jobs.list_ids(list(ACTIVE), limit=10_000)
            assert "PARKED" in str(self.show_job(damaged).unreadable)
            assert self.engine.store_error is None, self.engine.store_error
            with self.judge.ends.expecting_cancel([self.job(damaged).chain]):
                self.cancel(damaged)

    def do_retry(self, rng: random.Random) -> None:
        job = self.choose_job(self.job_ids(), rng)
        self.run_request(lambda tx: retry(tx, format_job_id(job), actor="tester"))

    def do_rewind(self, rng: random.Random) -> None:
        self.rewind(self.choose_job(self.job_ids(), rng))

    def do_move(self, rng: random.Random) -> None:
        job, other = self.choose_job(self.waiting_jobs(), rng), self.choose_job(self.waiting_jobs(), rng)
        target = rng.choice(({"first": True}, {"last": True}, {"to": 2}, None))
        if target is None:
            order = list(dict.fromkeys([format_job_id(job), format_job_id(other)]))
            self.run_request(lambda tx: reorder(tx, order, actor="tester"))
        else:
            self.run_request(lambda tx: move(tx, job, MoveRequest(**target), actor="tester"))

    def do_edit(self, rng: random.Random) -> None:
        """Edit a job. The command and the params of a job that has run are fixed."""
        job = self.choose_job(self.job_ids() if rng.random() < 0.3 else self.waiting_jobs(), rng)
        changes: list[dict[str, Any]] = [
            {"priority": 5},
            {"priority": 0},
            {"delay": "4s"},
            {"delay": None},
            {"params": {"n": f"{rng.random():.3f}"}},
            {"command": ["echo", str(rng.random())]},
            *[{"set_params": self.random_params(rng)}] * 3,
        ]
        request = EditRequest(**rng.choice(changes))
        with self.judge.templates.expecting_edit(request):
            self.run_request(lambda tx: edit(tx, job, request, actor="tester"))

    def do_pause(self, rng: random.Random) -> None:
        self.pause(rng.choice(SCOPES))

    def do_resume(self, rng: random.Random) -> None:
        self.resume(min(self.judge.paused, default=rng.choice(SCOPES)))

    def do_set_hold_file(self, rng: random.Random) -> None:
        self.set_hold_text(rng.choice(("backup", None, None)))

    def do_clear(self, rng: random.Random) -> None:
        scope = rng.choice(SCOPES)
        with suppress(TimeoutError), self.judge.ends.expecting_clear(scope):  # continues when the store is usable again
            self.clear(scope)

    def do_resize_pool(self, rng: random.Random) -> None:
        pool = rng.choice(("global", "global", "flow/a", "flow/*", "resource/gpu"))
        self.sizes[pool] = rng.choice(SIZES)
        self.configure(pool_sizes=PoolSizes(dict(self.sizes)))

    def do_set_pacing(self, rng: random.Random) -> None:
        self.configure(
            dispatch_interval=rng.choice((None, None, "manual")),
            batch_size=rng.choice((None, 1, 2)),
            spawn_delay=timedelta(seconds=rng.choice((0, 0, 3))),
        )

    def do_tick(self, rng: random.Random) -> None:
        """Run a tick, and compare it with its dry run."""
        batch = rng.choice((None, 1, 3))
        dry_run = self.dry_run_tick(batch)
        result = self.tick(batch)
        assert result["dispatched"] + result["would_dispatch"] == dry_run["would_dispatch"]
        assert (result["skipped"], result["reason"]) == (dry_run["skipped"], dry_run["reason"])

    # Steps of the environment.

    def do_change_facts(self, rng: random.Random) -> None:
        if rng.random() < 0.4:
            self.probe.values[MAIN] = rng.choice((*OIDS, None))
            return
        fact = FACTS[rng.choice(list(FACTS))]
        self.probe.values[fact] = not self.probe.values.get(fact)

    def do_pass_time(self, rng: random.Random) -> None:
        self.pass_time(rng.choice((0.5, 1, 3, 10, 60, 600)))

    def do_set_clock(self, rng: random.Random) -> None:
        """Set the wall clock. Smaller changes back than the threshold are not detected. A change back is detected
        without an event, a change forward at the next turn."""
        seconds = rng.choice((-86_400, -7200, -60, -2 * SET_BACK_THRESHOLD, 1, 60, 7200))
        self.set_clock(seconds)
        if seconds > 0 or self.engine.is_clock_set_back:
            self.run_turns()

    def set_clock(self, seconds: float) -> None:
        self.sim_clock.adjust(seconds)
        if seconds < 0:
            self.judge.fires.set_clock_back(timedelta(seconds=-seconds))

    def do_set_latency(self, rng: random.Random) -> None:
        self.connection.latency = rng.choice((0.0, 0.0, 0.5, 3.0))

    def do_repeat_messages(self, rng: random.Random) -> None:
        self.connection.repeats_messages = rng.random() < 0.5

    def do_disconnect(self, _rng: random.Random) -> None:
        self.connection.disconnect()
        self.run_turns()

    def do_kill_supervisor(self, _rng: random.Random) -> None:
        self.supervisor.kill()
        self.do_disconnect(_rng)

    def do_suspend(self, rng: random.Random) -> None:
        """Suspend the supervisor, mostly long enough to be detected."""
        self.supervisor.suspend()
        self.pass_time(rng.choice((0.5, 10, 200, 400, 700)))

    def do_continue(self, _rng: random.Random) -> None:
        if not self.supervisor.is_suspended:
            raise Conflict("it is not suspended")
        self.supervisor.resume()
        self.run_turns()

    def do_crash(self, rng: random.Random) -> None:
        """Crash and restart, possibly after a while. Meanwhile no process observes ends, due times and clock
        changes."""
        self.clock.advance(seconds=rng.choice((0, 0, 5, 600)))
        self.set_clock(rng.choice((0, 0, 0, -3600, -60)))
        self.restart_after_crash()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and stop at each due time."""
        end = self.clock.monotonic() + seconds
        for _ in range(_MAX_ROUNDS):
            now = self.clock.monotonic()
            if now >= end:
                return
            self.clock.advance(seconds=max(0.001, min(self._next_due_time(now), end) - now))
            if self.engine.store_error is not None:
                self.clock.advance(seconds=1)
                self.run_turns()
            self._run_until_idle()
            self.fire_due_schedules()
        raise AssertionError("too many due times")

    def _next_due_time(self, now: float) -> float:
        engine = self.engine
        due_times = [self.supervisor.next_end, self.connection.next_due, engine.next_deadline]
        if engine.next_due is not None:
            due_times.append(now + (engine.next_due - self.clock.now()).total_seconds())
        first = self.reader.schedules.first_due()
        if first is not None:
            due_times.append(now + (first[2] - self.clock.now()).total_seconds())
        return min((at for at in due_times if at is not None), default=now + 1e9)

    # The end.

    def finish_all(self) -> None:
        """Check that no job is stuck: with unlimited capacity and all facts true, every waiting job runs to its end."""
        for name in NAMES:
            with suppress(NotFound, Conflict):
                self.run_request(partial(schedule_commands.remove, name=name, actor="tester"))
        for scope in sorted(self.judge.paused):
            self.resume(scope)
        self.set_hold_text(None)
        self.supervisor.resume()
        self.connection.latency, self.connection.repeats_messages = 0.0, False
        self.sizes = dict.fromkeys(self.sizes, -1)
        self.configure(
            pool_sizes=PoolSizes(dict(self.sizes)),
            dispatch_interval=None,
            batch_size=None,
            spawn_delay=timedelta(),
            breaker=BreakerPolicy(failures=None, start_delays=START_DELAYS),
        )
        for round_ in range(60):
            self.judge.begin()
            for fact in FACTS.values():
                self.probe.values[fact] = True
            self.probe.values[MAIN] = OIDS[round_ % 2]
            self.process_external_changes()
            for reservation in self.reader.reservations.list_open():
                if reservation.command is None and reservation.state is ReservationState.RUNNING:
                    self.release(reservation.id)
            self.pass_time(1000)
            self.process_external_changes()  # requeued jobs need a recent observation
            self.judge.check()
            if (
                not self.waiting_jobs()
                and not self.reader.reservations.list_open()
                and not self.supervisor.running_children()
            ):
                break
        stuck = {format_job_id(job): self.wait_detail(job) for job in self.waiting_jobs()}
        assert (stuck, self.reader.reservations.list_open(), self.supervisor.running_children()) == ({}, [], [])

    def close(self) -> None:
        self._monkeypatch.undo()
        super().close()
        self.judge.close()
        shutil.rmtree(self.directory)
