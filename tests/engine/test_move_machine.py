"""State machine of submits, moves, edits, ends, cancels and crashes, against a model of plain lists.

The store keeps a job's rank with the job, with each of its locks and, for the first, with its lane, and makes new gaps
when they are used up. The model keeps a list for each priority and goes down it. A difference means a copy of a rank
that was not updated, a job that was passed without permission, or a lost wake-up.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from rota.db.sqlite.store import SqliteStore
from rota.executor.port import RunReport, StartOrder
from rota.ids import JobId, format_job_id
from rota.jobs.edit import EditRequest, edit
from rota.jobs.move import MoveRequest, move, reorder
from rota.jobs.queries import list_queue
from rota.kernel.status import Status
from tests.db.invariants import check_store
from tests.harness import Scheduler, make_sqlite_runner
from tests.sample import sample

MEMORY = Path("/dev/shm")
picks = st.integers(0, 1000)
lock_sets = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["shared", "exclusive"]), max_size=2)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.run_sql = make_sqlite_runner(self.directory / "rota.db")
        self.lines: dict[int, list[JobId]] = {0: [], 1: []}
        self.locks: dict[JobId, dict[str, str]] = {}
        self.delayed: dict[JobId, Any] = {}
        self.running: list[JobId] = []

    @initialize(room=st.sampled_from([0, 1, 2, -1]))
    def begin(self, room: int) -> None:
        self.room = room
        self.scheduler = Scheduler(SqliteStore(self.directory / "rota.db"), self.directory, {"global": room})

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.close()
        shutil.rmtree(self.directory)

    # Operations.

    @rule(priority=st.sampled_from([0, 0, 1]), locks=lock_sets, kind=st.sampled_from("xy"), waits=st.booleans())
    def submit(self, priority: int, locks: dict[str, str], kind: str, waits: bool) -> None:
        job = self.scheduler.submit(
            priority=priority,
            type=kind,
            locks=[f"{key}:{mode}" for key, mode in locks.items()],
            delay="1h" if waits and not locks else None,
        )
        self.lines[priority].append(job)
        self.locks[job] = locks
        if waits and not locks:
            self.delayed[job] = self.scheduler.clock.moment + timedelta(hours=1)
        self.check()

    @precondition(lambda self: self.waiting())
    @rule(pick=picks, other=picks, where=st.sampled_from(["first", "last", "to", "before", "after"]))
    def move(self, pick: int, other: int, where: str) -> None:
        self.move_job(self.waiting()[pick % len(self.waiting())], other, where)
        self.check()

    @precondition(lambda self: any(len(line) > 2 for line in self.lines.values()))
    @rule(pick=picks, where=st.sampled_from(["last", "before", "after", "to"]), count=st.integers(5, 12))
    def exhaust_gap(self, pick: int, where: str, count: int) -> None:
        """Move jobs between the same two, or to the end, until there is no gap."""
        line = next(line for line in self.lines.values() if len(line) > 2)
        for n in range(count):
            if len(line) > 2:
                self.move_job(line[0 if where in ("last", "after") else -1], pick + n % 2, where)
                self.start()
        self.check()

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), priority=st.sampled_from([0, 1]))
    def reorder(self, data: st.DataObject, priority: int) -> None:
        line = self.lines[priority]
        if not line:
            return
        order = data.draw(st.lists(st.sampled_from(line), unique=True, min_size=1))
        self.scheduler.run_request(lambda tx: reorder(tx, [format_job_id(job) for job in order], actor="ann"))
        places = sorted(line.index(job) for job in order)
        for place, job in zip(places, order, strict=True):
            line[place] = job
        self.check()

    @precondition(lambda self: self.waiting())
    @rule(pick=picks, priority=st.sampled_from([0, 1]))
    def prioritise(self, pick: int, priority: int) -> None:
        """Change the priority. The job keeps its position, which decides its place among the others."""
        job = self.waiting()[pick % len(self.waiting())]
        self.scheduler.run_request(lambda tx: edit(tx, job, EditRequest(priority=priority), actor="ann"))
        old_line = next(line for line in self.lines.values() if job in line)
        if old_line is not self.lines[priority]:
            old_line.remove(job)
            ranks = {other.id: (other.position, other.created_at, other.id) for other in self.jobs()}
            behind = [n for n, other in enumerate(self.lines[priority]) if ranks[other] > ranks[job]]
            self.lines[priority].insert(behind[0] if behind else len(self.lines[priority]), job)
        self.check()

    @precondition(lambda self: self.waiting())
    @rule(pick=picks, delay=st.sampled_from([None, "1h", "10s"]))
    def delay(self, pick: int, delay: str | None) -> None:
        job = self.waiting()[pick % len(self.waiting())]
        self.scheduler.run_request(lambda tx: edit(tx, job, EditRequest(delay=delay), actor="ann"))
        self.delayed.pop(job, None)
        if delay:
            hours = timedelta(hours=1) if delay == "1h" else timedelta(seconds=10)
            self.delayed[job] = self.scheduler.clock.moment + hours
        self.check()

    @precondition(lambda self: self.waiting())
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        job = self.waiting()[pick % len(self.waiting())]
        self.scheduler.cancel(job)
        next(line for line in self.lines.values() if job in line).remove(job)
        self.check()

    @precondition(lambda self: self.running)
    @rule(pick=picks)
    def end(self, pick: int) -> None:
        job = self.running.pop(pick % len(self.running))
        self.scheduler.end_run(job)
        self.check()

    @rule(seconds=st.sampled_from([1, 10, 3600]))
    def pass_time(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.run_turns()
        self.check()

    @rule(room=st.sampled_from([0, 1, 2, -1]))
    def resize(self, room: int) -> None:
        self.room = room
        self.scheduler.set_pools(**{"global": room})
        self.check()

    @rule()
    def crash(self) -> None:
        runs: dict[JobId, Any] = dict(self.run_sql("SELECT job, id FROM run WHERE status IS NULL"))
        self.scheduler.crash([RunReport(run=runs[job], pid=1) for job in self.running])
        self.scheduler.executor.orders.extend(self.adopted_starts(runs))
        self.check()

    # The model.

    def adopted_starts(self, runs: dict[JobId, Any]) -> list[Any]:
        """Return start orders of adopted runs, so that the harness can end them."""
        return [
            StartOrder(
                run=runs[job],
                job=job,
                argv=(),
                cwd="/",
                environment_id=1,
                overlay={},
                directory="/",
                timeout=None,
                idle_timeout=None,
                kill_after=1.0,
                skip_if=None,
            )
            for job in self.running
        ]

    def move_job(self, job: JobId, pick: int, where: str) -> None:
        line = next(line for line in self.lines.values() if job in line)
        others = [other for other in line if other != job]
        if where in ("before", "after") and not others:
            return
        anchor = others[pick % len(others)] if others else job
        place = pick % len(line)
        index = {
            "first": 0,
            "last": len(others),
            "to": place,
            "before": others.index(anchor) if others else 0,
            "after": others.index(anchor) + 1 if others else 0,
        }[where]
        fields = {
            "first": True,
            "last": True,
            "to": place + 1,
            "before": format_job_id(anchor),
            "after": format_job_id(anchor),
        }
        request = msgspec.convert({where: fields[where]}, MoveRequest)
        result = self.scheduler.run_request(lambda tx: move(tx, job, request, actor="ann"))
        others.insert(index, job)
        assert result.has_moved == (others != line)
        line[:] = others

    def waiting(self) -> list[JobId]:
        return [*self.lines[1], *self.lines[0]]

    def jobs(self) -> list[Any]:
        return self.scheduler.reader.jobs.find_all(
            [JobId(job) for (job,) in self.run_sql("SELECT id FROM job ORDER BY id")]
        )

    def contenders(self) -> list[JobId]:
        """Return the jobs that only locks and pools hold, in their order."""
        now = self.scheduler.clock.moment
        return [job for job in self.waiting() if job not in self.delayed or self.delayed[job] <= now]

    def is_locked_out(self, job: JobId) -> bool:
        before = self.contenders()[: self.contenders().index(job)]
        return any(
            "exclusive" in (mode, self.locks[other][key])
            for key, mode in self.locks[job].items()
            for other in (*self.running, *before)
            if key in self.locks[other]
        )

    def start(self) -> None:
        while self.room < 0 or len(self.running) < self.room:
            free = [job for job in self.contenders() if not self.is_locked_out(job)]
            if not free:
                return
            next(line for line in self.lines.values() if free[0] in line).remove(free[0])
            self.running.append(free[0])

    def check(self) -> None:
        self.start()
        check_store(self.run_sql)
        stored = self.jobs()
        assert {job.id for job in stored if job.started_at and not job.finished_at} == set(self.running)
        page = list_queue(self.scheduler.reader, self.scheduler.view_context, limit=1000)
        assert [(form.id, form.place) for form in page.jobs] == [
            (format_job_id(job), place) for line in (self.lines[1], self.lines[0]) for place, job in enumerate(line, 1)
        ]
        locked_out = {job for job in self.contenders() if self.is_locked_out(job)}
        assert {job.id for job in stored if job.status is Status.WAITING_ON_LOCKS} == locked_out
        assert self.run_sql("SELECT id FROM job WHERE dirty = 1") == []


def test_rank_copies_follow_and_order_equals_plain_lists() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=sample(10), stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
