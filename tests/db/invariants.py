"""Invariants of every store between two transactions, checked in SQL without the store's own methods."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from rota.kernel.status import STARTED, TERMINAL, TRANSITIONS, WAITING, Status, parse_status
from tests.harness import SqlRunner

_STATUS_AFTER = {f"job.{status.lower()}": status for status in Status if status is not Status.UNREADABLE} | {
    "job.submitted": Status.QUEUED,
    "job.rewound": Status.QUEUED,
}


def check_store(run_sql: SqlRunner) -> None:
    check_lanes(run_sql)
    check_runs(run_sql)
    check_locks(run_sql)
    check_edges(run_sql)
    check_chains(run_sql)
    check_positions(run_sql)
    check_events(run_sql)
    check_groups(run_sql)


def check_lanes(run_sql: SqlRunner) -> None:
    """Check that each lane has the number of its ready jobs and the rank of the first."""
    counted: dict[int, int] = defaultdict(int)
    first: dict[int, tuple[int, ...]] = {}
    for lane, *rank in run_sql(
        "SELECT lane, precedence, position, created_at, id FROM job WHERE ready = 1"
        " ORDER BY precedence, position, created_at, id"
    ):
        counted[lane] += 1
        first.setdefault(lane, tuple(rank))
    lanes = run_sql("SELECT id, ready_count, precedence, position, created_at, job FROM lane WHERE ready_count > 0")
    assert {lane: ready for lane, ready, *_ in lanes} == counted
    assert {lane: tuple(rank) for lane, _, *rank in lanes} == first


def check_runs(run_sql: SqlRunner) -> None:
    """Check that exactly the started jobs have an open run, and that no worker has two jobs or reservations
    (INV-003)."""
    statuses = {job: parse_status(status) for job, status in run_sql("SELECT id, status FROM job")}
    started = [job for job, status in statuses.items() if status in STARTED]
    open_runs = run_sql("SELECT job, worker FROM run WHERE finished_at IS NULL")
    readable = [job for job, _ in open_runs if statuses[job] is not Status.UNREADABLE]
    assert sorted(readable) == sorted(started)
    workers = [worker for _, worker in open_runs]
    reservations = run_sql("SELECT worker FROM reservation WHERE worker IS NOT NULL AND finished_at IS NULL")
    workers += [worker for (worker,) in reservations]
    assert len(set(workers)) == len(workers)
    for job_status, run_status in run_sql(
        "SELECT job.status, run.status FROM run JOIN job ON job.id = run.job"
        " WHERE run.finished_at IS NOT NULL AND run.id > coalesce(job.rewound_run, 0)"
    ):
        assert job_status == run_status or Status.UNREADABLE in map(parse_status, (job_status, run_status))


def check_locks(run_sql: SqlRunner) -> None:
    """Check that running jobs hold their locks, that only waiting jobs contend, that held locks do not conflict, and
    that each lock has the rank of its job."""
    modes: dict[str, list[str]] = defaultdict(list)
    assert (
        run_sql(
            "SELECT lock.job, lock.key FROM lock JOIN job ON job.id = lock.job WHERE lock.precedence <> job.precedence"
            " OR lock.position <> job.position OR lock.created_at <> job.created_at"
        )
        == []
    )
    for key, mode, state, status in run_sql(
        "SELECT lock.key, lock.mode, lock.state, job.status FROM lock JOIN job ON job.id = lock.job"
    ):
        if parse_status(status) is not Status.UNREADABLE:
            assert (state == "held") == (Status(status) in STARTED), (key, state, status)
            assert state != "contending" or Status(status) in WAITING, (key, state, status)
        if state == "held":
            modes[key].append(mode)
    for key, mode, state, reservation in run_sql(
        "SELECT lock.key, lock.mode, lock.state, reservation.state"
        " FROM lock JOIN reservation ON reservation.id = -lock.job"
    ):
        assert (state == "held") == (reservation in ("starting", "running")), (key, state, reservation)
        assert state != "contending" or reservation == "waiting", (key, state, reservation)
        if state == "held":
            modes[key].append(mode)
    assert run_sql("SELECT * FROM lock WHERE job > 0 AND job NOT IN (SELECT id FROM job)") == []
    assert run_sql("SELECT * FROM lock WHERE job < 0 AND -job NOT IN (SELECT id FROM reservation)") == []
    assert all("exclusive" not in held or len(held) == 1 for held in modes.values()), modes


def check_edges(run_sql: SqlRunner) -> None:
    unmet_edges: dict[int, int] = dict(run_sql("SELECT job, count(*) FROM edge WHERE state <> 'met' GROUP BY job"))
    stored = {job: unmet for job, unmet in run_sql("SELECT id, unmet_edges FROM job") if unmet}
    assert stored == unmet_edges
    # While a job waits, its edges follow the last job of each predecessor's chain.
    for state, dependent, status in run_sql(
        "SELECT edge.state, job.status, last.status FROM edge JOIN job ON job.id = edge.job JOIN job AS last"
        " ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = edge.chain)"
    ):
        if parse_status(status) is not Status.UNREADABLE:
            assert state != "open" or Status(status) not in TERMINAL
            assert state == "open" or Status(status) in TERMINAL or parse_status(dependent) not in WAITING


def check_chains(run_sql: SqlRunner) -> None:
    """Check that the jobs of a chain are linked in order and share a lane, and that a failure is final exactly if no
    automatic retry follows it."""
    chains: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in run_sql(
        "SELECT chain, id, retry_of, retried_as, attempt, status, permanently_failed, retries, spec, lane"
        " FROM job ORDER BY id"
    ):
        chains[row[0]].append(row[1:])
    for chain, jobs in chains.items():
        assert jobs[0][0] == chain
        for n, (job, retry_of, retried_as, attempt, status, is_final, _retries, _spec, *lane) in enumerate(jobs):
            assert attempt == n + 1
            assert retry_of == (jobs[n - 1][0] if n else None)
            assert retried_as == (jobs[n + 1][0] if n + 1 < len(jobs) else None)
            assert lane == list(jobs[0][8:])
            assert parse_status(status) in TERMINAL | {Status.UNREADABLE} or n + 1 == len(jobs)
            follower = jobs[n + 1][6] if n + 1 < len(jobs) else 0
            assert status == "FAILED" or not is_final, job
            if status == "FAILED":
                assert not is_final or follower == 0, "a chain has an automatic retry after its final failure"
                assert is_final or retried_as is not None, "a failure that is not final has no retry"


def check_positions(run_sql: SqlRunner) -> None:
    """Check that the next submitted job gets a position behind all waiting jobs of its priority."""
    last, upcoming = run_sql("SELECT max(position), max(id) + 1 FROM job")[0]
    assert last is None or last < 100 * upcoming


def check_events(run_sql: SqlRunner) -> None:
    """Check that every status change has an event, follows the transition table, and that the last one gives the
    status."""
    statuses: dict[int, Status] = {}
    for kind, job, data in run_sql("SELECT kind, job, data FROM event WHERE job IS NOT NULL ORDER BY seq"):
        if kind not in _STATUS_AFTER:
            continue
        status, details = _STATUS_AFTER[kind], json.loads(data)
        before = statuses.get(job)
        if before is None:
            assert kind == "job.submitted"
        else:
            is_rewind = kind == "job.rewound"
            if parse_status(details.get("from", before)) is Status.UNREADABLE:  # the record was damaged by the test
                details["from"] = before = Status.UNREADABLE
            assert status in TRANSITIONS[before] or (is_rewind and before is Status.QUEUED), (job, before, status)
            assert details.get("from", before) == before
            assert before not in TERMINAL or is_rewind
        statuses[job] = status
    stored = {job: parse_status(status) for job, status in run_sql("SELECT id, status FROM job")}
    assert {job: status for job, status in statuses.items() if stored[job] is not Status.UNREADABLE} == {
        job: status for job, status in stored.items() if status is not Status.UNREADABLE
    }


def check_groups(run_sql: SqlRunner) -> None:
    """Check that a group is finished exactly if it is closed and every member has ended (INV-006), that a chain stays
    in its group, and that only the group's policy drops members."""
    open_groups = {
        group for (group,) in run_sql("SELECT id FROM job_group WHERE finished_at IS NULL AND closed_at IS NOT NULL")
    }
    active_groups = {
        group for (group,) in run_sql("SELECT job_group FROM job WHERE job_group IS NOT NULL AND finished_at IS NULL")
    }
    closed = {group for (group,) in run_sql("SELECT id FROM job_group WHERE closed_at IS NOT NULL")}
    assert open_groups == active_groups & closed
    assert (
        run_sql(
            "SELECT job.id FROM job JOIN job AS first ON first.id = job.chain"
            " WHERE coalesce(job.job_group, 0) <> coalesce(first.job_group, 0)"
            " OR coalesce(job.sequence, 0) <> coalesce(first.sequence, 0)"
        )
        == []
    )
    assert run_sql("SELECT id FROM job WHERE dropped = 1 AND reason <> 'predecessor failed'") == []
