"""Whatever happens to groups in whatever order: a group is over exactly when it is closed and all its chains are, its
status is what a naive look at the rows says, its end is told once, nobody starts over whom a policy has spoken, and
nobody outside takes what a policy skipped for a success."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Scheduler
from rota.command.group import add, cancel, close
from rota.command.retry import retry
from rota.command.rewind import look, reports, rewind, survey_group
from rota.command.submission import GroupWanted
from rota.core.event import Event
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.errors import Conflict, InvalidInput
from rota.executor.port import FailedToStart
from rota.ids import GroupId, JobId, show_group, show_job
from rota.store.sqlite.store import SqliteStore
from sample import sample
from store.invariants import check_store

FATES = {"stop": Status.CANCELLED, "skip": Status.SKIPPED}
DONE = (Status.COMPLETED, Status.SKIPPED)
edges = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["success", "finished", "failed"])), max_size=2)
members = st.lists(st.tuples(st.just([]) | edges, st.sampled_from([0, 1])), min_size=1, max_size=5)
modes = st.sampled_from(["parallel", "sequential"])
policies = st.sampled_from(["stop", "skip", "continue"])
OFTEN = ("end", "fail", "fail", "fail", "time")
SELDOM = (
    "batch", "outside", "outside", "join", "add", "close", "break", "cancel", "retry", "rewind", "cancel group",
    "rewind group", "crash",
)  # fmt: skip
steps = st.tuples(
    st.sampled_from(OFTEN) | st.sampled_from(SELDOM), st.integers(0, 50), members, modes, policies
)  # fmt: skip
first = st.tuples(st.just("batch"), st.just(0), members, modes, policies)
Step = tuple[str, int, list[tuple[list[tuple[int, str]], int]], str, str]


class Row(NamedTuple):
    id: JobId
    chain: JobId
    status: Status
    group: GroupId | None
    retries: int
    attempt: int
    has_started: bool
    is_final: bool
    is_dropped: bool

    def has_failed_as(self, status: Status) -> bool:
        return status is Status.BLOCKED_BY_DEPENDENCY or (status is Status.FAILED and self.is_final)


Edges = dict[JobId, list[tuple[JobId, str, int]]]
"""Of each job: the chain, the policy, and whether it is implied."""


class Play:
    def __init__(self, home: Path) -> None:
        self.scheduler = Scheduler(SqliteStore(home / "rota.db"), home, {"global": 3})
        self.path = home / "rota.db"
        self.statuses: dict[JobId, Status] = {}
        self.over: set[GroupId] = set()
        self.seen = 0

    def raw(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()

    # What happens.

    def step(self, what: str, number: int, wanted: Any, mode: str, policy: str) -> None:
        running = self.scheduler.reader.running_jobs()
        jobs, groups = sorted(self.statuses), self.scheduler.reader.list_groups(limit=99, with_ended=True)
        job = jobs[number % len(jobs)] if jobs else None
        group = show_group(groups[number % len(groups)]) if groups else None
        with suppress(Conflict, InvalidInput):
            if what == "batch":
                bodies = [
                    {
                        "local": f"m{n}",
                        "after": [f"m{other % len(wanted)}:{kind}" for other, kind in edges if other % len(wanted) < n]
                        + [f"job-{job}:success" for _ in range(job is not None and number % 7 == n)],
                        "retries": retries,
                    }
                    for n, (edges, retries) in enumerate(wanted)
                ]
                self.scheduler.submit_group(*bodies, mode=mode, on_failure=policy)
            elif what == "outside":
                after = [] if job is None else [f"job-{job}:{wanted[0][0][0][1] if wanted[0][0] else 'success'}"]
                self.scheduler.submit(after=after)
            elif what == "add":
                wish = GroupWanted(mode=mode, on_failure=policy)  # type: ignore[arg-type]
                self.scheduler.do(lambda work: add(work, wish, actor="me"))
            elif what == "time":
                self.scheduler.clock.advance(minutes=5)
                self.scheduler.turn()
            elif what == "crash":
                self.scheduler.crash()
            elif what in ("end", "fail", "break") and running:
                self.end(what, running[number % len(running)])
            elif group is not None and what in ("join", "close", "cancel group", "rewind group"):
                self.act_on_group(what, group, job if number % 3 == 0 else None)
            elif job is not None and what in ("cancel", "retry", "rewind"):
                self.act(what, job)

    def end(self, what: str, job: JobId) -> None:
        if what == "break":
            self.scheduler.say(FailedToStart(run=self.scheduler.run_of(job), error="no such program"))
        else:
            self.scheduler.end(job, int(what == "fail"))

    def act_on_group(self, what: str, group: str, after: JobId | None) -> None:
        if what == "join":
            edges = [] if after is None else [f"job-{after}:finished"]
            self.scheduler.submit(group=group, after=edges, retries=1)
        elif what == "close":
            self.scheduler.do(lambda work: close(work, group, actor="me"))
        elif what == "cancel group":
            self.scheduler.do(lambda work: cancel(work, group, actor="me"))
            for job in self.scheduler.reader.running_jobs() if after is None else ():
                if self.scheduler.job(job).stop_requested is not None:
                    self.scheduler.end(job, None, signal=15, ended_by="stop")
        else:
            area = survey_group(self.scheduler.reader, group, self.scheduler.sight.outside)
            sighted = look(area, self.scheduler.probe, self.scheduler.engine.known.begin())
            self.scheduler.do(lambda work: rewind(work, area, sighted, actor="me"), reports)

    def act(self, what: str, job: JobId) -> None:
        if what == "cancel":
            self.scheduler.cancel(job)
            if self.scheduler.status(job) in STARTED:
                self.scheduler.end(job, None, signal=15, ended_by="stop")
        elif what == "retry":
            self.scheduler.do(lambda work: retry(work, show_job(job), actor="me"))
        else:
            self.scheduler.rewind(job)

    # What is true afterwards.

    def check(self) -> None:
        assert self.scheduler.engine.trouble is None
        rows = {
            row[0]: Row(JobId(row[0]), JobId(row[1]), Status(row[2]), row[3], row[4], row[5], row[6] is not None,
                        bool(row[7]), bool(row[8]))
            for row in self.raw(
                "SELECT id, chain, status, job_group, retries, attempt, started_at, permanently_failed, dropped"
                " FROM job"
            )
        }  # fmt: skip
        last: dict[JobId, Row] = {}
        for row in sorted(rows.values()):
            last[row.chain] = row
        self.check_events(rows, last)
        self.check_groups(last)
        check_store(self.raw)

    def check_events(self, rows: dict[JobId, Row], last: dict[JobId, Row]) -> None:
        edges: Edges = defaultdict(list)
        for job, chain, policy, implied in self.raw("SELECT job, chain, policy, implied FROM edge"):
            edges[job].append((chain, policy, implied))
        policies = dict(self.raw("SELECT id, on_failure FROM job_group"))
        doomed: dict[JobId, set[Status]] = defaultdict(set)
        new, self.seen = self.scheduler.events[self.seen :], len(self.scheduler.events)
        for event in new:
            if event.group is not None:
                self.check_end_of(event, event.group)
            status = _status_after(event)
            if status is None or event.job is None:
                continue
            row = rows[event.job]
            if status is Status.DISPATCHED:
                assert event.job not in doomed, "started though its group's policy had spoken"
                assert all(self.is_met(edge, row, last) for edge in edges[event.job]), "started before its time"
            if status in TERMINAL and event.cause == "group":
                assert status in doomed[event.job], "ended by a policy that had nothing to say of it"
            self.statuses[event.job] = status
            if row.has_failed_as(status) and policies.get(row.group) in FATES:
                for other in self.spoken_over(row, rows, edges):
                    doomed[other].add(FATES[policies[row.group]])
        for job in doomed:
            assert rows[job].status in TERMINAL, "left though its group's policy has spoken"
        assert self.statuses == {row.id: row.status for row in rows.values()}

    def spoken_over(self, failed: Row, rows: dict[JobId, Row], edges: Edges) -> list[JobId]:
        """Who had not started when that one failed, and was not named to come after it all the same."""
        return [
            other.id
            for other in rows.values()
            if other.group == failed.group
            and other.retries == 0
            and self.statuses.get(other.id) in WAITING
            and not any(chain == failed.chain and policy != "success" and not i for chain, policy, i in edges[other.id])
        ]

    def is_met(self, edge: tuple[JobId, str, int], row: Row, last: dict[JobId, Row]) -> bool:
        chain, policy, _ = edge
        before = last[chain]
        status = self.statuses[before.id]
        if policy == "finished":
            return status in TERMINAL
        if policy == "failed":
            return status is Status.FAILED
        return status in DONE and not (before.is_dropped and before.group != row.group)

    def check_end_of(self, event: Event, group: GroupId) -> None:
        if event.kind == "group.finished":
            assert group not in self.over, "told twice of one end"
            self.over.add(group)
        elif event.kind == "group.reopened":
            self.over.discard(group)

    def check_groups(self, last: dict[JobId, Row]) -> None:
        for group, closed_at, cancelled_at, finished_at in self.raw(
            "SELECT id, closed_at, cancelled_at, finished_at FROM job_group"
        ):
            chains = [row for row in last.values() if row.group == group]
            is_over = closed_at is not None and all(row.status in TERMINAL for row in chains)
            assert (finished_at is not None) == is_over == (group in self.over)
            form = self.scheduler.group(group)
            assert form.status == naive_status(chains, is_over=is_over, is_cancelled=cancelled_at is not None)
            assert form.total == len(chains)
            assert form.jobs == [show_job(row.id) for row in sorted(chains, key=lambda row: self.place(row))]

    def place(self, row: Row) -> int:
        return int(self.raw(f"SELECT sequence FROM job WHERE id = {row.id}")[0][0])


def naive_status(chains: Sequence[Row], *, is_over: bool, is_cancelled: bool) -> str:
    if not is_over:
        return "RUNNING" if any(row.has_started or row.attempt > 1 for row in chains) else "QUEUED"
    if chains and all(row.status in DONE for row in chains):
        return "COMPLETED"
    if is_cancelled:
        return "CANCELLED"
    return "PARTIAL" if chains else "COMPLETED"


def _status_after(event: Event) -> Status | None:
    if event.kind in ("job.submitted", "job.rewound"):
        return Status.QUEUED
    name = event.kind.removeprefix("job.").upper()
    return Status(name) if event.kind.startswith("job.") and name in Status.__members__ else None


@settings(max_examples=sample(20))
@given(first, st.lists(steps, min_size=5, max_size=40))
def test_groups_hold_together_at_every_step(begin: Step, play: list[Step]) -> None:
    """INV-006, DEC-012."""
    with tempfile.TemporaryDirectory() as directory:
        one = Play(Path(directory))
        try:
            for step in [begin, *play]:
                one.step(*step)
                one.check()
        finally:
            one.scheduler.close()
