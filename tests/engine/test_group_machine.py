"""State machine of groups: a group has ended exactly when it is closed and all its chains have ended, its status equals
that of a naive model, its end is reported once, no member starts after a policy has dropped it, and no job outside
the group takes a member skipped by a policy for a success."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.db.sqlite.store import SqliteStore
from rota.errors import Conflict, InvalidInput
from rota.executor.port import StartFailure
from rota.groups.commands import cancel, close, create_group
from rota.ids import GroupId, JobId, format_group_id, format_job_id
from rota.jobs.retry import retry
from rota.jobs.rewind import find_group_rewind_set, probe_rewind_facts, render_reports, rewind
from rota.jobs.submission import GroupRequest
from rota.kernel.events import Event
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status
from tests.db.invariants import check_store
from tests.harness import Scheduler
from tests.sample import sample

OUTCOMES = {"stop": Status.CANCELLED, "skip": Status.SKIPPED}
DONE = (Status.COMPLETED, Status.SKIPPED)
edges = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["success", "finished", "failed"])), max_size=2)
members = st.lists(st.tuples(st.just([]) | edges, st.sampled_from([0, 1])), min_size=1, max_size=5)
modes = st.sampled_from(["parallel", "sequential"])
policies = st.sampled_from(["stop", "skip", "continue"])
FREQUENT = ("end", "fail", "fail", "fail", "time")
RARE = (
    "batch",
    "outside",
    "outside",
    "join",
    "add",
    "close",
    "break",
    "cancel",
    "retry",
    "rewind",
    "cancel group",
    "rewind group",
    "crash",
)
steps = st.tuples(st.sampled_from(FREQUENT) | st.sampled_from(RARE), st.integers(0, 50), members, modes, policies)
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
"""For each job its edges: chain, policy, and whether it is implied."""


class GroupModel:
    def __init__(self, home: Path) -> None:
        self.scheduler = Scheduler(SqliteStore(home / "rota.db"), home, {"global": 3})
        self.path = home / "rota.db"
        self.statuses: dict[JobId, Status] = {}
        self.ended_groups: set[GroupId] = set()
        self.checked_events = 0
        self.dropped_if_requeued: dict[JobId, set[Status]] = {}
        """Claimed members that a policy drops if their start fails, with the status they then get."""

    def run_sql(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()

    # Steps.

    def step(self, action: str, number: int, request: Any, mode: str, policy: str) -> None:
        running = self.scheduler.reader.jobs.running()
        jobs, groups = sorted(self.statuses), self.scheduler.reader.groups.list_ids(limit=99, with_ended=True)
        job = jobs[number % len(jobs)] if jobs else None
        group = format_group_id(groups[number % len(groups)]) if groups else None
        with suppress(Conflict, InvalidInput):
            if action == "batch":
                bodies = [
                    {
                        "local": f"m{n}",
                        "after": [
                            f"m{other % len(request)}:{kind}" for other, kind in edges if other % len(request) < n
                        ]
                        + [f"job-{job}:success" for _ in range(job is not None and number % 7 == n)],
                        "retries": retries,
                    }
                    for n, (edges, retries) in enumerate(request)
                ]
                self.scheduler.submit_group(*bodies, mode=mode, on_failure=policy)
            elif action == "outside":
                after = [] if job is None else [f"job-{job}:{request[0][0][0][1] if request[0][0] else 'success'}"]
                self.scheduler.submit(after=after)
            elif action == "add":
                group_request = GroupRequest(mode=mode, on_failure=policy)  # type: ignore[arg-type]
                self.scheduler.run_request(lambda tx: create_group(tx, group_request, actor="me"))
            elif action == "time":
                self.scheduler.clock.advance(minutes=5)
                self.scheduler.run_turns()
            elif action == "crash":
                self.scheduler.crash()
            elif action in ("end", "fail", "break") and running:
                self.end(action, running[number % len(running)])
            elif group is not None and action in ("join", "close", "cancel group", "rewind group"):
                self.act_on_group(action, group, job if number % 3 == 0 else None)
            elif job is not None and action in ("cancel", "retry", "rewind"):
                self.act(action, job)

    def end(self, action: str, job: JobId) -> None:
        if action == "break":
            self.scheduler.receive(StartFailure(run=self.scheduler.find_run(job), error="no such program"))
        else:
            self.scheduler.end_run(job, int(action == "fail"))

    def act_on_group(self, action: str, group: str, after: JobId | None) -> None:
        if action == "join":
            edges = [] if after is None else [f"job-{after}:finished"]
            self.scheduler.submit(group=group, after=edges, retries=1)
        elif action == "close":
            self.scheduler.run_request(lambda tx: close(tx, group, actor="me"))
        elif action == "cancel group":
            self.scheduler.run_request(lambda tx: cancel(tx, group, actor="me"))
            for job in self.scheduler.reader.jobs.running() if after is None else ():
                if self.scheduler.job(job).stop_requested is not None:
                    self.scheduler.end_run(job, None, signal=15, ended_by="stop")
        else:
            area = find_group_rewind_set(self.scheduler.reader, group, self.scheduler.view_context.observations)
            facts = probe_rewind_facts(area, self.scheduler.probe, self.scheduler.engine.fact_cache.begin_probe())
            self.scheduler.run_request(lambda tx: rewind(tx, area, facts, actor="me"), render_reports)

    def act(self, action: str, job: JobId) -> None:
        if action == "cancel":
            self.scheduler.cancel(job)
            if self.scheduler.status(job) in STARTED:
                self.scheduler.end_run(job, None, signal=15, ended_by="stop")
        elif action == "retry":
            self.scheduler.run_request(lambda tx: retry(tx, format_job_id(job), actor="me"))
        else:
            self.scheduler.rewind(job)

    # Checks.

    def check(self) -> None:
        assert self.scheduler.engine.store_error is None
        rows = {
            row[0]: Row(
                JobId(row[0]),
                JobId(row[1]),
                Status(row[2]),
                row[3],
                row[4],
                row[5],
                row[6] is not None,
                bool(row[7]),
                bool(row[8]),
            )
            for row in self.run_sql(
                "SELECT id, chain, status, job_group, retries, attempt, started_at, permanently_failed, dropped"
                " FROM job"
            )
        }
        last: dict[JobId, Row] = {}
        for row in sorted(rows.values()):
            last[row.chain] = row
        self.check_events(rows, last)
        self.check_groups(last)
        check_store(self.run_sql)

    def check_events(self, rows: dict[JobId, Row], last: dict[JobId, Row]) -> None:
        edges: Edges = defaultdict(list)
        for job, chain, policy, implied in self.run_sql("SELECT job, chain, policy, implied FROM edge"):
            edges[job].append((chain, policy, implied))
        policies = dict(self.run_sql("SELECT id, on_failure FROM job_group"))
        doomed: dict[JobId, set[Status]] = defaultdict(set)
        new, self.checked_events = self.scheduler.events[self.checked_events :], len(self.scheduler.events)
        for event in new:
            if event.group is not None:
                self.check_group_end(event, event.group)
            status = _status_after(event)
            if status is None or event.job is None:
                continue
            row = rows[event.job]
            if status is Status.DISPATCHED:
                self.dropped_if_requeued.pop(event.job, None)
                assert event.job not in doomed, "started although the policy of its group dropped it"
                assert all(self.is_met(edge, row, last) for edge in edges[event.job]), "started before its time"
            if status in TERMINAL and event.cause == "group":
                allowed = doomed[event.job] | self.dropped_if_requeued.get(event.job, set())
                assert status in allowed, "ended by a policy that did not apply to it"
            self.statuses[event.job] = status
            if row.has_failed_as(status) and policies.get(row.group) in OUTCOMES:
                self.drop_members(row, rows, edges, OUTCOMES[policies[row.group]], doomed)
        for job in doomed:
            assert rows[job].status in TERMINAL, "left although the policy of its group dropped it"
        assert self.statuses == {row.id: row.status for row in rows.values()}

    def drop_members(
        self, failed: Row, rows: dict[JobId, Row], edges: Edges, outcome: Status, doomed: dict[JobId, set[Status]]
    ) -> None:
        for other in self.dropped_members(failed, rows, edges, WAITING):
            doomed[other].add(outcome)
        for other in self.dropped_members(failed, rows, edges, STARTED):
            self.dropped_if_requeued.setdefault(other, set()).add(outcome)

    def dropped_members(
        self, failed: Row, rows: dict[JobId, Row], edges: Edges, statuses: Collection[Status]
    ) -> list[JobId]:
        """Return the members with one of these statuses at the failure and no explicit edge to the failed one."""
        return [
            other.id
            for other in rows.values()
            if other.group == failed.group
            and other.retries == 0
            and self.statuses.get(other.id) in statuses
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

    def check_group_end(self, event: Event, group: GroupId) -> None:
        if event.kind == "group.finished":
            assert group not in self.ended_groups, "one end was reported twice"
            self.ended_groups.add(group)
        elif event.kind == "group.reopened":
            self.ended_groups.discard(group)

    def check_groups(self, last: dict[JobId, Row]) -> None:
        for group, closed_at, cancelled_at, finished_at in self.run_sql(
            "SELECT id, closed_at, cancelled_at, finished_at FROM job_group"
        ):
            chains = [row for row in last.values() if row.group == group]
            is_over = closed_at is not None and all(row.status in TERMINAL for row in chains)
            assert (finished_at is not None) == is_over == (group in self.ended_groups)
            shown = self.scheduler.show_group(group)
            assert shown.status == naive_status(chains, is_over=is_over, is_cancelled=cancelled_at is not None)
            assert shown.total == len(chains)
            assert shown.jobs == [
                format_job_id(row.id) for row in sorted(chains, key=lambda row: self.sequence_of(row))
            ]

    def sequence_of(self, row: Row) -> int:
        return int(self.run_sql(f"SELECT sequence FROM job WHERE id = {row.id}")[0][0])


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
        model = GroupModel(Path(directory))
        try:
            for step in [begin, *play]:
                model.step(*step)
                model.check()
        finally:
            model.scheduler.close()
