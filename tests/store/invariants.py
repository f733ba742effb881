"""What is true of every store between two transactions, asked in SQL past the store's own verbs."""

from __future__ import annotations

import json
from collections import defaultdict

from harness import Raw
from rota.core.status import STARTED, TERMINAL, TRANSITIONS, WAITING, Status

_STATUS_AFTER = {f"job.{status.lower()}": status for status in Status} | {"job.submitted": Status.QUEUED}


def check_store(raw: Raw) -> None:
    check_lanes(raw)
    check_runs(raw)
    check_locks(raw)
    check_edges(raw)
    check_events(raw)


def check_lanes(raw: Raw) -> None:
    """`lane.ready` is the number of ready jobs in it."""
    counted: dict[int, int] = dict(raw("SELECT lane, count(*) FROM job WHERE ready = 1 GROUP BY lane"))
    kept = {lane: ready for lane, ready in raw("SELECT id, ready FROM lane") if ready}
    assert kept == counted


def check_runs(raw: Raw) -> None:
    """A started job has one open run, nobody else has any; no worker has two (INV-003)."""
    started = {job for job, status in raw("SELECT id, status FROM job") if Status(status) in STARTED}
    open_runs = raw("SELECT job, worker FROM run WHERE status IS NULL")
    assert sorted(job for job, _ in open_runs) == sorted(started)
    assert len({worker for _, worker in open_runs}) == len(open_runs)
    for job_status, run_status in raw(
        "SELECT job.status, run.status FROM run JOIN job ON job.id = run.job WHERE run.status IS NOT NULL"
    ):
        assert job_status == run_status


def check_locks(raw: Raw) -> None:
    """Held by what runs, contended for by what waits, and never held against one another."""
    modes: dict[str, list[str]] = defaultdict(list)
    for key, mode, state, status in raw(
        "SELECT lock.key, lock.mode, lock.state, job.status FROM lock JOIN job ON job.id = lock.job"
    ):
        assert (state == "held") == (Status(status) in STARTED), (key, state, status)
        assert state != "contending" or Status(status) in WAITING, (key, state, status)
        if state == "held":
            modes[key].append(mode)
    assert all("exclusive" not in held or len(held) == 1 for held in modes.values()), modes


def check_edges(raw: Raw) -> None:
    counted: dict[int, int] = dict(raw("SELECT job, count(*) FROM edge WHERE state <> 'met' GROUP BY job"))
    kept = {job: unmet for job, unmet in raw("SELECT id, unmet FROM job") if unmet}
    assert kept == counted
    for state, status in raw("SELECT edge.state, job.status FROM edge JOIN job ON job.id = edge.chain"):
        assert (state == "open") == (Status(status) not in TERMINAL)


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
            assert status in TRANSITIONS[before], (job, before, status)
            assert said.get("from", before) == before
            assert before not in TERMINAL
        statuses[job] = status
    assert statuses == {job: Status(status) for job, status in raw("SELECT id, status FROM job")}
