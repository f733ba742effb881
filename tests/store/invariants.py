"""What is true of every store between two transactions, asked in SQL past the store's own verbs."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from harness import Raw
from rota.core.status import STARTED, TERMINAL, TRANSITIONS, WAITING, Status

_STATUS_AFTER = {f"job.{status.lower()}": status for status in Status} | {
    "job.submitted": Status.QUEUED,
    "job.rewound": Status.QUEUED,
}


def check_store(raw: Raw) -> None:
    check_lanes(raw)
    check_runs(raw)
    check_locks(raw)
    check_edges(raw)
    check_chains(raw)
    check_positions(raw)
    check_events(raw)
    check_groups(raw)


def check_lanes(raw: Raw) -> None:
    """A lane knows how many ready jobs are in it, and the rank of the first."""
    counted: dict[int, int] = defaultdict(int)
    first: dict[int, tuple[int, ...]] = {}
    for lane, *rank in raw(
        "SELECT lane, precedence, position, created_at, id FROM job WHERE ready = 1"
        " ORDER BY precedence, position, created_at, id"
    ):
        counted[lane] += 1
        first.setdefault(lane, tuple(rank))
    lanes = raw("SELECT id, ready, precedence, position, created_at, job FROM lane WHERE ready > 0")
    assert {lane: ready for lane, ready, *_ in lanes} == counted
    assert {lane: tuple(rank) for lane, _, *rank in lanes} == first


def check_runs(raw: Raw) -> None:
    """A started job has one open run, nobody else has any; no worker has two, be they jobs or slots (INV-003)."""
    started = {job for job, status in raw("SELECT id, status FROM job") if Status(status) in STARTED}
    open_runs = raw("SELECT job, worker FROM run WHERE status IS NULL")
    assert sorted(job for job, _ in open_runs) == sorted(started)
    workers = [worker for _, worker in open_runs]
    workers += [worker for (worker,) in raw("SELECT worker FROM slot WHERE worker IS NOT NULL AND finished_at IS NULL")]
    assert len(set(workers)) == len(workers)
    for job_status, run_status in raw(
        "SELECT job.status, run.status FROM run JOIN job ON job.id = run.job"
        " WHERE run.status IS NOT NULL AND run.id > coalesce(job.rewound_run, 0)"
    ):
        assert job_status == run_status


def check_locks(raw: Raw) -> None:
    """Held by what runs, contended for by what waits, never held against one another; in their job's place."""
    modes: dict[str, list[str]] = defaultdict(list)
    assert raw(
        "SELECT lock.job, lock.key FROM lock JOIN job ON job.id = lock.job WHERE lock.precedence <> job.precedence"
        " OR lock.position <> job.position OR lock.created_at <> job.created_at"
    ) == []  # fmt: skip
    for key, mode, state, status in raw(
        "SELECT lock.key, lock.mode, lock.state, job.status FROM lock JOIN job ON job.id = lock.job"
    ):
        assert (state == "held") == (Status(status) in STARTED), (key, state, status)
        assert state != "contending" or Status(status) in WAITING, (key, state, status)
        if state == "held":
            modes[key].append(mode)
    for key, mode, state, slot in raw(
        "SELECT lock.key, lock.mode, lock.state, slot.state FROM lock JOIN slot ON slot.id = -lock.job"
    ):
        assert (state == "held") == (slot in ("starting", "running")), (key, state, slot)
        assert state != "contending" or slot == "waiting", (key, state, slot)
        if state == "held":
            modes[key].append(mode)
    assert raw("SELECT * FROM lock WHERE job > 0 AND job NOT IN (SELECT id FROM job)") == []
    assert raw("SELECT * FROM lock WHERE job < 0 AND -job NOT IN (SELECT id FROM slot)") == []
    assert all("exclusive" not in held or len(held) == 1 for held in modes.values()), modes


def check_edges(raw: Raw) -> None:
    counted: dict[int, int] = dict(raw("SELECT job, count(*) FROM edge WHERE state <> 'met' GROUP BY job"))
    kept = {job: unmet for job, unmet in raw("SELECT id, unmet FROM job") if unmet}
    assert kept == counted
    # An edge follows its chain's last job for as long as the job that has it waits.
    for state, dependant, status in raw(
        "SELECT edge.state, job.status, last.status FROM edge JOIN job ON job.id = edge.job JOIN job AS last"
        " ON last.id = (SELECT max(member.id) FROM job AS member WHERE member.chain = edge.chain)"
    ):
        assert state != "open" or Status(status) not in TERMINAL
        assert state == "open" or Status(status) in TERMINAL or Status(dependant) not in WAITING


def check_chains(raw: Raw) -> None:
    """A chain is its jobs in order, each naming the one before. One that failed is final exactly when nobody went on
    by itself, and what follows it shares its lane."""
    chains: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in raw(
        "SELECT chain, id, retry_of, retried_as, attempt, status, permanently_failed, retries, spec, lane"
        " FROM job ORDER BY id"
    ):
        chains[row[0]].append(row[1:])
    for chain, jobs in chains.items():
        assert jobs[0][0] == chain
        for n, (job, retry_of, retried_as, attempt, status, is_final, _retries, _spec, *same) in enumerate(jobs):
            assert attempt == n + 1
            assert retry_of == (jobs[n - 1][0] if n else None)
            assert retried_as == (jobs[n + 1][0] if n + 1 < len(jobs) else None)
            assert same == list(jobs[0][8:])
            assert Status(status) in TERMINAL or n + 1 == len(jobs)
            follower = jobs[n + 1][6] if n + 1 < len(jobs) else 0
            assert status == "FAILED" or not is_final, job
            if status == "FAILED":
                assert not is_final or follower == 0, "a chain went on by itself after its final failure"
                assert is_final or retried_as is not None, "a failure that is not final has nobody to go on"


def check_positions(raw: Raw) -> None:
    """Whatever is submitted next stands behind all that wait at its priority."""
    last, upcoming = raw("SELECT max(position), max(id) + 1 FROM job")[0]
    assert last is None or last < 100 * upcoming


def check_events(raw: Raw) -> None:
    """Every change of status is an event, each along the table, and the last one is the status."""
    statuses: dict[int, Status] = {}
    for kind, job, data in raw("SELECT kind, job, data FROM event WHERE job IS NOT NULL ORDER BY seq"):
        if kind not in _STATUS_AFTER:
            continue
        status, said = _STATUS_AFTER[kind], json.loads(data)
        before = statuses.get(job)
        if before is None:
            assert kind == "job.submitted"
        else:
            is_rewind = kind == "job.rewound"
            assert status in TRANSITIONS[before] or (is_rewind and before is Status.QUEUED), (job, before, status)
            assert said.get("from", before) == before
            assert before not in TERMINAL or is_rewind
        statuses[job] = status
    assert statuses == {job: Status(status) for job, status in raw("SELECT id, status FROM job")}


def check_groups(raw: Raw) -> None:
    """A group is finished exactly when it is closed and every member has ended (INV-006); a chain stays in its group,
    and only a policy's word drops one."""
    open_groups = {
        group for (group,) in raw("SELECT id FROM job_group WHERE finished_at IS NULL AND closed_at IS NOT NULL")
    }
    waits = {group for (group,) in raw("SELECT job_group FROM job WHERE job_group IS NOT NULL AND finished_at IS NULL")}
    closed = {group for (group,) in raw("SELECT id FROM job_group WHERE closed_at IS NOT NULL")}
    assert open_groups == waits & closed
    assert raw("SELECT id FROM job WHERE job_group NOT IN (SELECT id FROM job_group)") == []
    assert raw(
        "SELECT job.id FROM job JOIN job AS first ON first.id = job.chain"
        " WHERE coalesce(job.job_group, 0) <> coalesce(first.job_group, 0)"
        " OR coalesce(job.sequence, 0) <> coalesce(first.sequence, 0)"
    ) == []  # fmt: skip
    assert raw("SELECT id FROM job WHERE dropped = 1 AND reason <> 'predecessor failed'") == []
