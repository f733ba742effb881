"""`why` and `show`: the reason of a wait, down to its root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.errors import NotFound
from rota.executor.port import ConnectionLoss, StartFailure
from rota.ids import JobId
from rota.jobs.schemas import WaitReason
from rota.kernel.status import Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner


def test_running_job_shows_start_time_and_pid(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.clock.advance(seconds=12.5)
    ordered = "job-1 is RUNNING: its start was ordered 12s ago, and the supervisor has not confirmed it"
    assert scheduler.explain_wait(job)["text"] == ordered
    scheduler.confirm_start(job, pid=77)
    assert scheduler.explain_wait(job) == {
        "job": "job-1",
        "status": "RUNNING",
        "wait": None,
        "text": "job-1 is RUNNING: it runs as pid 77 since 2026-01-01 00:00:00 UTC",
        "warnings": [],
    }


def test_capacity_wait_names_pool_and_its_users(scheduler: Scheduler) -> None:
    scheduler.submit()
    job = scheduler.submit()
    why = scheduler.explain_wait(job)
    assert why["text"] == "job-2 is QUEUED: waiting on pool global (1/1), used by job-1"
    assert why["wait"] == {"kind": "capacity", "detail": "waiting on pool global (1/1)", "topics": ["pool:global"]}


def test_first_full_pool_in_order_gives_the_reason(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 9, "type__t": 1, "target__w": 1, "resource__r": 1})
    fields: dict[str, Any] = {"type": "t", "flow": "f", "target": "w", "pools": {"resource/r": 1}}
    scheduler.submit(**fields)
    for name, size in (("global", 1), ("type/t", 1), ("flow/f", 1), ("target/w", 1), ("resource/r", 1)):
        job = scheduler.submit(**fields)
        scheduler.set_pools(**{"global": 1 if name == "global" else 9})
        assert scheduler.wait_detail(job) == f"waiting on pool {name} (1/{size})"
        scheduler.set_pools(**{name.replace("/", "__"): -1})
        scheduler.cancel(job) if scheduler.status(job) is Status.QUEUED else None


def test_long_list_of_pool_users_is_shortened(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 8})
    for _ in range(8):
        scheduler.submit()
    text = scheduler.explain_wait(scheduler.submit())["text"]
    assert text.endswith("used by job-1, job-2, job-3, job-4, job-5 and 3 more")


def test_lock_wait_names_keys_and_holders(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.submit(locks=["a"])
    unlimited_scheduler.submit(locks=["a", "b"])
    job = unlimited_scheduler.submit(locks=["b"])
    assert (
        unlimited_scheduler.explain_wait(JobId(2))["text"]
        == "job-2 is WAITING_ON_LOCKS: waiting on locks: a (held by job-1)"
    )
    why = unlimited_scheduler.explain_wait(job)
    assert why["text"] == "job-3 is WAITING_ON_LOCKS: waiting on locks: b (others are before it)"
    assert why["wait"] == {"kind": "locks", "detail": "waiting on locks", "topics": ["lock:b"]}


def test_dependency_wait_is_explained_to_its_root(scheduler: Scheduler) -> None:
    scheduler.submit()
    scheduler.submit(locks=["k"])
    scheduler.submit(after=[JobId(2)])
    job = scheduler.submit(after=[JobId(3)])
    assert scheduler.explain_wait(job)["text"].split("\n") == [
        "job-4 is WAITING_ON_DEPS: waiting on job job-3",
        "  job-3 is WAITING_ON_DEPS: waiting on job job-2",
        "    job-2 is QUEUED: waiting on pool global (1/1), used by job-1",
    ]
    assert scheduler.explain_wait(job)["wait"] == {
        "kind": "dependencies",
        "detail": "waiting on job job-3",
        "topics": ["job:3"],
    }


def test_long_chain_of_explanations_is_truncated(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit()]
    for _ in range(20):
        jobs.append(scheduler.submit(after=[jobs[-1]]))
    assert len(scheduler.explain_wait(jobs[-1])["text"].split("\n")) == 5


def test_delay_names_its_end(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1.5s")
    assert scheduler.explain_wait(job)["text"] == "job-1 is QUEUED: not before 2026-01-01T00:00:01.500000Z"
    assert scheduler.show_job(job).wait == WaitReason(
        kind="delay", detail="not before 2026-01-01T00:00:01.500000Z", topics=[]
    )


def test_ended_job_shows_its_outcome(scheduler: Scheduler) -> None:
    done, bad = scheduler.submit(), scheduler.submit()
    blocked = scheduler.submit(after=[bad])
    scheduler.end_run(done)
    scheduler.end_run(bad, 3)
    assert [scheduler.explain_wait(job)["text"] for job in (done, bad, blocked)] == [
        "job-1 is COMPLETED: it has ended",
        "job-2 is FAILED: exit code 3",
        "job-3 is BLOCKED_BY_DEPENDENCY: dependency failed for job job-2 (FAILED)",
    ]
    assert scheduler.show_job(done).wait is None


def test_pool_warning_is_shown_until_the_job_ends(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=0)
    job = unlimited_scheduler.submit(pools={"resource/gpu": 2})
    assert unlimited_scheduler.explain_wait(job)["warnings"] == [
        "pool resource/gpu has size 0, the job draws 2: it cannot start until the pool grows"
    ]
    unlimited_scheduler.cancel(job)
    assert unlimited_scheduler.explain_wait(job)["warnings"] == []


def test_wait_names_missing_supervisor(scheduler: Scheduler) -> None:
    """No job starts without a supervisor. The list and `why` give the same reason."""
    scheduler.receive(ConnectionLoss(reason="killed"))
    job = scheduler.submit()
    assert scheduler.wait_detail(job) == "there is no supervisor; it is being started"
    assert scheduler.explain_wait(job)["text"] == "job-1 is QUEUED: there is no supervisor; it is being started"


def test_every_startable_job_names_what_holds_all_starts(scheduler: Scheduler) -> None:
    scheduler.receive(ConnectionLoss(reason="killed"))
    jobs = [scheduler.submit(), scheduler.submit()]
    assert {scheduler.wait_detail(job) for job in jobs} == {"there is no supervisor; it is being started"}


def test_pause_names_its_actor(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('global', 'ada', 0)")
    job = scheduler.submit()
    assert scheduler.started_jobs() == []
    assert scheduler.show_job(job).wait == WaitReason(kind="paused", detail="paused by ada", topics=["pause"])
    run_sql("DELETE FROM pause")
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job]


def test_paused_pool_holds_only_its_jobs(make_scheduler: Callable[..., Scheduler], run_sql: SqlRunner) -> None:
    scheduler = make_scheduler(**{"global": -1})
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('flow/a', 'ada', 0)")
    held, free = scheduler.submit(flow="a"), scheduler.submit(flow="b")
    assert scheduler.started_jobs() == [free]
    assert scheduler.wait_detail(held) == "paused by ada"


def test_gates_give_reasons_in_order(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """Order: after → delay → paused → locks → pools. A job that all of them hold names the first."""
    running = scheduler.submit(locks=["k"])
    slow = scheduler.submit(priority=5)
    job = scheduler.submit(after=[slow], delay="1h", locks=["k"])
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('global', 'ada', 0)")
    assert scheduler.wait_detail(job) == f"waiting on job job-{slow}"
    scheduler.cancel(slow)
    job = scheduler.submit(delay="1h", locks=["k"])
    assert scheduler.wait_detail(job) == "not before 2026-01-01T01:00:00Z"
    scheduler.clock.advance(hours=1)
    scheduler.run_turns()
    assert scheduler.wait_detail(job) == "paused by ada"
    run_sql("DELETE FROM pause")
    assert scheduler.wait_detail(job) == "waiting on locks"
    scheduler.cancel(running)
    next_job = scheduler.submit()
    assert scheduler.wait_detail(next_job) == "waiting on pool global (1/1)"


@pytest.mark.parametrize("method", ["show_job", "explain_wait"])
def test_unknown_job_is_not_found(scheduler: Scheduler, method: str) -> None:
    with pytest.raises(NotFound, match="no such job: job-99; `rota list --all` lists all jobs"):
        getattr(scheduler, method)(JobId(99))


def test_show_and_why_do_not_change_the_store(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    jobs: tuple[dict[str, Any], ...] = ({}, {}, {"delay": "1h"}, {"locks": ["k"]})
    for fields in jobs:
        scheduler.submit(**fields)
    before = [run_sql(f"SELECT * FROM {table}") for table in ("job", "run", "lock", "lane", "event")]
    for job in range(1, 5):
        scheduler.show_job(JobId(job))
        scheduler.explain_wait(JobId(job))
    assert [run_sql(f"SELECT * FROM {table}") for table in ("job", "run", "lock", "lane", "event")] == before
    assert isinstance(scheduler.executor, FakeExecutor)


def test_line_break_in_error_is_escaped(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="working directory does not exist: /a\n/b"))
    assert r"/a\n/b" in scheduler.explain_wait(job)["text"]
