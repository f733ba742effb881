"""The circuit breaker of a type or target: opening, holding, probing, closing and restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rota.control.commands import reset_breaker
from rota.control.queries import read_breakers, show_status
from rota.control.schemas import BreakerResetResult, StartFailureResetResult
from rota.errors import Conflict, NotFound, StoreError
from rota.executor.port import ExitReport, RunReport, StartFailure
from rota.ids import JobId
from rota.jobs.schemas import WaitReason
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner

WINDOW, COOL_DOWN = timedelta(minutes=10), timedelta(minutes=5)
UNTIL = "2026-01-01T00:05:00Z"


@pytest.fixture
def unlimited_scheduler(unlimited_scheduler: Scheduler) -> Scheduler:
    unlimited_scheduler.set_breaker_policy(failures=3, window=WINDOW, cool_down=COOL_DOWN)
    return unlimited_scheduler


def states(scheduler: Scheduler) -> dict[str, tuple[str, int, str | None]]:
    shown = read_breakers(scheduler.reader, scheduler.view_context)
    return {
        shown_breaker.key: (shown_breaker.state, shown_breaker.failures, shown_breaker.probe_job)
        for shown_breaker in shown
    }


def fail_runs(scheduler: Scheduler, count: int = 3, **fields: Any) -> list[JobId]:
    jobs = [scheduler.submit("flaky", **(fields or {"type": "x"})) for _ in range(count)]
    for job in jobs:
        scheduler.end_run(job, 1)
    return jobs


def wait(scheduler: Scheduler, **duration: float) -> None:
    scheduler.clock.advance(**duration)
    scheduler.run_turns()


def is_running(scheduler: Scheduler, job: JobId) -> bool:
    return scheduler.show_job(job).status == "RUNNING"


def test_failures_open_breaker_and_hold_only_its_jobs(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler, 2)
    assert is_running(unlimited_scheduler, unlimited_scheduler.submit(type="x"))
    fail_runs(unlimited_scheduler, 1)
    held = unlimited_scheduler.submit(type="x")
    others = [
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(type="y"),
        unlimited_scheduler.submit(target="x"),
        unlimited_scheduler.submit(flow="x"),
        unlimited_scheduler.submit(type="y", pools={"type/x": 1}),
    ]
    assert unlimited_scheduler.show_job(held).status == "QUEUED"
    detail = f"breaker open for type/x until {UNTIL}"
    assert unlimited_scheduler.show_job(held).wait == WaitReason(
        kind="paused", detail=detail, topics=["breaker:type/x"]
    )
    assert unlimited_scheduler.explain_wait(held)["text"] == f"job-{held} is QUEUED: {detail}"
    assert all(is_running(unlimited_scheduler, job) for job in others)


def test_default_is_20_failures_in_10_minutes(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    fail_runs(scheduler, 19, type="x")
    assert is_running(scheduler, scheduler.submit(type="x"))
    fail_runs(scheduler, 1, type="x")
    held = scheduler.submit(type="x")
    assert scheduler.wait_detail(held) == "breaker open for type/x until 2026-01-01T00:10:00Z"


@pytest.mark.parametrize("pools", [{}, {"type__x": 9}, {"target__x": 9}])
@pytest.mark.parametrize("kind", ["type", "target"])
def test_breaker_works_with_and_without_a_pool(
    unlimited_scheduler: Scheduler, kind: str, pools: dict[str, int]
) -> None:
    unlimited_scheduler.set_pools(**pools)
    fail_runs(unlimited_scheduler, 3, **{kind: "x"})
    assert (
        unlimited_scheduler.wait_detail(unlimited_scheduler.submit(**{kind: "x"}))
        == f"breaker open for {kind}/x until {UNTIL}"
    )


def test_run_counts_for_its_type_and_its_target(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler, 2, type="x", target="y")
    fail_runs(unlimited_scheduler, 1, target="y")
    assert states(unlimited_scheduler) == {"type/x": ("closed", 2, None), "target/y": ("open", 3, None)}
    assert (
        unlimited_scheduler.wait_detail(unlimited_scheduler.submit(type="x", target="y"))
        == f"breaker open for target/y until {UNTIL}"
    )
    assert is_running(unlimited_scheduler, unlimited_scheduler.submit(type="x"))


def test_failures_older_than_the_window_do_not_count(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler, 2)
    wait(unlimited_scheduler, minutes=10)
    fail_runs(unlimited_scheduler, 2)
    assert states(unlimited_scheduler) == {"type/x": ("closed", 2, None)}
    wait(unlimited_scheduler, minutes=9, seconds=59)
    fail_runs(unlimited_scheduler, 1)
    assert states(unlimited_scheduler)["type/x"][0] == "open"


def test_only_observed_failures_count(unlimited_scheduler: Scheduler) -> None:
    """COMPLETED, SKIPPED and CANCELLED are no failures; neither is an unobserved end or a failed start."""
    ends: list[dict[str, Any]] = [{"code": 0}, {"code": 0, "skip_reason": "no"}, {"code": None, "is_observed": False}]
    for fields in ends * 3:
        unlimited_scheduler.end_run(unlimited_scheduler.submit(type="x"), **fields)
    for _ in range(3):
        job = unlimited_scheduler.submit(type="x")
        unlimited_scheduler.confirm_start(job)
        unlimited_scheduler.cancel(job)
        unlimited_scheduler.end_run(job, None, signal=15, ended_by="stop")
        assert unlimited_scheduler.status(job) is Status.CANCELLED
    for _ in range(4):
        broken = unlimited_scheduler.submit(type="x")
        for _ in range(3):
            unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(broken), error="no such program"))
            wait(unlimited_scheduler, seconds=2)
        assert str(unlimited_scheduler.job(broken).reason).startswith("circuit-broken")
    assert states(unlimited_scheduler) == {}
    fail_runs(unlimited_scheduler)
    assert states(unlimited_scheduler)["type/x"][0] == "open"


def test_end_during_downtime_counts_at_its_own_time(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit(type="x") for _ in range(3)]
    at = unlimited_scheduler.clock.moment.timestamp()
    unlimited_scheduler.clock.advance(minutes=11)
    unlimited_scheduler.receive(*(ExitReport(run=unlimited_scheduler.find_run(job), at=at, code=1) for job in jobs))
    assert states(unlimited_scheduler) == {}
    fail_runs(unlimited_scheduler, 2)
    assert states(unlimited_scheduler)["type/x"] == ("closed", 2, None)


def test_end_before_the_window_does_not_count(unlimited_scheduler: Scheduler) -> None:
    missed = unlimited_scheduler.submit(type="x")
    unlimited_scheduler.confirm_start(missed)
    at = unlimited_scheduler.clock.moment.timestamp()
    unlimited_scheduler.clock.advance(minutes=10)
    fail_runs(unlimited_scheduler, 2)
    unlimited_scheduler.receive(ExitReport(run=unlimited_scheduler.find_run(missed), at=at, code=1))
    assert states(unlimited_scheduler)["type/x"] == ("closed", 2, None)


def test_batch_members_with_equal_demand_are_held_by_their_type(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    bodies = [{"command": ["true"], "type": "x"}, {"command": ["true"], "pools": {"type/x": 1}}]
    members = [msgspec.convert(body, Submission) for body in bodies]
    environment = DefaultEnvironment(cwd="/", variables={})
    result = unlimited_scheduler.run_request(lambda tx: submit(tx, members, environment, actor="tester"))
    assert [is_running(unlimited_scheduler, job) for job in result.jobs] == [False, True]


def test_cool_down_lets_one_probe_through_and_holds_the_others(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x") for _ in range(3)]
    assert unlimited_scheduler.engine.next_due == unlimited_scheduler.clock.moment + COOL_DOWN
    wait(unlimited_scheduler, minutes=5, microseconds=-1)
    assert not any(is_running(unlimited_scheduler, job) for job in jobs)
    wait(unlimited_scheduler, microseconds=1)
    assert [is_running(unlimited_scheduler, job) for job in jobs] == [True, False, False]
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{jobs[0]}")
    assert unlimited_scheduler.wait_detail(jobs[1]) == f"breaker open for type/x until job-{jobs[0]} has ended"
    wait(unlimited_scheduler, hours=1)
    assert not is_running(unlimited_scheduler, jobs[1])
    assert unlimited_scheduler.engine.next_due is None, "it waits for an end, not for a time"


def test_completed_probe_closes_breaker_and_clears_failures(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x") for _ in range(3)]
    wait(unlimited_scheduler, minutes=5)
    unlimited_scheduler.end_run(jobs[0], 0)
    assert all(is_running(unlimited_scheduler, job) for job in jobs[1:])
    assert states(unlimited_scheduler) == {}
    for job in jobs[1:]:
        unlimited_scheduler.end_run(job, 1)
    assert states(unlimited_scheduler) == {"type/x": ("closed", 2, None)}


def test_failed_probe_opens_breaker_again(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x") for _ in range(3)]
    for n in range(3):
        wait(unlimited_scheduler, minutes=5)
        assert [job for job in jobs if is_running(unlimited_scheduler, job)] == [jobs[n]]
        unlimited_scheduler.end_run(jobs[n], 1)
        assert states(unlimited_scheduler)["type/x"][0] == "open"
    wait(unlimited_scheduler, minutes=5)
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 1, None)
    assert is_running(unlimited_scheduler, unlimited_scheduler.submit(type="x")), "the first job is the probe"


def test_runs_started_before_the_probe_decide_nothing(unlimited_scheduler: Scheduler) -> None:
    early = [unlimited_scheduler.submit(type="x") for _ in range(2)]
    fail_runs(unlimited_scheduler)
    unlimited_scheduler.end_run(early[0], 0)
    assert states(unlimited_scheduler)["type/x"][0] == "open"
    wait(unlimited_scheduler, minutes=5)
    probe, waiting = unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x")
    unlimited_scheduler.end_run(early[1], 1)
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{probe}")
    assert not is_running(unlimited_scheduler, waiting)


def cancel(scheduler: Scheduler, job: JobId) -> None:
    scheduler.confirm_start(job)
    scheduler.cancel(job)
    scheduler.end_run(job, None, signal=15, ended_by="stop")


def skip(scheduler: Scheduler, job: JobId) -> None:
    scheduler.end_run(job, 0, skip_reason="not needed")


def end_with_unknown_exit(scheduler: Scheduler, job: JobId) -> None:
    scheduler.confirm_start(job)
    scheduler.end_run(job, None, is_observed=False)


def fail_to_start(scheduler: Scheduler, job: JobId) -> None:
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no"))


def cancel_before_start(scheduler: Scheduler, job: JobId) -> None:
    scheduler.cancel(job)
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no"))


@pytest.mark.parametrize(
    "end_without_result", [cancel, skip, end_with_unknown_exit, fail_to_start, cancel_before_start]
)
@pytest.mark.parametrize("locks", [[], ["k:shared"]])
def test_probe_without_result_is_replaced(
    unlimited_scheduler: Scheduler, end_without_result: Callable[[Scheduler, JobId], None], locks: list[str]
) -> None:
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x", locks=locks) for _ in range(3)]
    wait(unlimited_scheduler, minutes=5)
    end_without_result(unlimited_scheduler, jobs[0])
    assert [is_running(unlimited_scheduler, job) for job in jobs[1:]] == [True, False]
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{jobs[1]}")


def test_probe_with_unusable_record_is_replaced(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    fail_runs(unlimited_scheduler)
    bad, good = unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x", env={"OTHER": "1"})
    run_sql(f"UPDATE spec SET command = 'not json' WHERE id = {bad}")
    wait(unlimited_scheduler, minutes=5)
    assert unlimited_scheduler.status(bad) is Status.FAILED
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{good}")


def test_pause_by_a_user_is_never_undone(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    fail_runs(unlimited_scheduler)
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('type/x', 'ada', 0)")
    job = unlimited_scheduler.submit(type="x")
    assert unlimited_scheduler.wait_detail(job) == "paused by ada"
    wait(unlimited_scheduler, minutes=5)
    assert not is_running(unlimited_scheduler, job)
    unlimited_scheduler.run_request(lambda tx: reset_breaker(tx, "type/x", actor="tester"))
    assert unlimited_scheduler.wait_detail(job) == "paused by ada"
    assert run_sql("SELECT scope, paused_by FROM pause") == [("type/x", "ada")]
    run_sql("DELETE FROM pause")
    unlimited_scheduler.run_turns()
    assert is_running(unlimited_scheduler, job)


# Locks: held jobs block no others.


def test_held_job_yields_its_locks_and_contends_again_later(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    holder = unlimited_scheduler.submit(locks=["k"])
    running = [unlimited_scheduler.submit(type="x") for _ in range(3)]
    first = unlimited_scheduler.submit(type="x", locks=["k"])
    behind = unlimited_scheduler.submit(locks=["k"])
    assert unlimited_scheduler.status(first) is Status.WAITING_ON_LOCKS
    for job in running:
        unlimited_scheduler.end_run(job, 1)
    held = unlimited_scheduler.show_job(first).wait
    assert held is not None
    assert (unlimited_scheduler.status(first), held.kind) == (Status.QUEUED, "paused")
    assert run_sql(f"SELECT state FROM lock WHERE job = {first}") == [("idle",)]
    unlimited_scheduler.end_run(holder)
    assert is_running(unlimited_scheduler, behind)
    wait(unlimited_scheduler, minutes=5)
    assert unlimited_scheduler.status(first) is Status.WAITING_ON_LOCKS
    later = unlimited_scheduler.submit(locks=["k"])
    unlimited_scheduler.end_run(behind)
    assert is_running(unlimited_scheduler, first)
    unlimited_scheduler.end_run(first, 0)
    assert is_running(unlimited_scheduler, later)


def test_jobs_held_during_a_probe_do_not_contend_for_locks(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    holder = unlimited_scheduler.submit(locks=["k"])
    probe, waiting = unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x", locks=["k"])
    behind = unlimited_scheduler.submit(locks=["k"])
    wait(unlimited_scheduler, minutes=5)
    assert is_running(unlimited_scheduler, probe)
    assert unlimited_scheduler.status(waiting) is Status.QUEUED
    unlimited_scheduler.end_run(holder)
    assert is_running(unlimited_scheduler, behind), "it passes the one that is held"
    unlimited_scheduler.end_run(probe, 0)
    assert unlimited_scheduler.status(waiting) is Status.WAITING_ON_LOCKS
    unlimited_scheduler.end_run(behind)
    assert is_running(unlimited_scheduler, waiting)


def test_all_jobs_with_locks_are_released_when_breaker_closes(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x", locks=[f"k{n}"]) for n in range(150)]
    wait(unlimited_scheduler, minutes=5)
    assert [job for job in jobs if is_running(unlimited_scheduler, job)] == jobs[:1]
    unlimited_scheduler.end_run(jobs[0], 0)
    assert all(is_running(unlimited_scheduler, job) for job in jobs[1:])


# Half-open: a probe is found behind any number of jobs that cannot start.


def test_probe_is_found_behind_jobs_waiting_for_locks(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    holder = unlimited_scheduler.submit(locks=["k"])
    waiting = [unlimited_scheduler.submit(type="x", locks=["k"]) for _ in range(230)]
    free = unlimited_scheduler.submit(type="x", locks=["free"])
    wait(unlimited_scheduler, minutes=5)
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{free}")
    cancel(unlimited_scheduler, free)
    assert unlimited_scheduler.wait_detail(waiting[-1]) == "waiting on locks"
    for job in waiting[:-1]:
        unlimited_scheduler.cancel(job)
    unlimited_scheduler.end_run(holder)
    assert is_running(unlimited_scheduler, waiting[-1])


def test_probe_is_found_behind_jobs_held_by_another_breaker(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler, target="y")
    wait(unlimited_scheduler, minutes=1)
    fail_runs(unlimited_scheduler)
    wait(unlimited_scheduler, minutes=4)
    unlimited_scheduler.end_run(unlimited_scheduler.submit(target="y"), 1)
    for n in range(120):
        unlimited_scheduler.submit(type="x", target="y", locks=[f"k{n}"])
    free = unlimited_scheduler.submit(type="x", locks=["free"])
    wait(unlimited_scheduler, minutes=1)
    assert states(unlimited_scheduler) == {"type/x": ("half-open", 3, f"job-{free}"), "target/y": ("open", 3, None)}


def test_next_candidates_are_read_when_the_first_leave(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """While ready candidates wait only for a full pool, no others are read: the ready ones would go first."""
    unlimited_scheduler.set_pools(resource__a=1)
    fail_runs(unlimited_scheduler)
    busy = unlimited_scheduler.submit(pools={"resource/a": 1})
    jobs = [unlimited_scheduler.submit(type="x", pools={"resource/a": 1}, locks=[f"k{n}"]) for n in range(130)]
    wait(unlimited_scheduler, minutes=5)
    ready = "SELECT count(*) FROM job WHERE ready = 1"
    assert run_sql(ready) == [(100,)]
    unlimited_scheduler.run_turns()
    assert run_sql(ready) == [(100,)]
    for job in jobs[:100]:
        unlimited_scheduler.cancel(job)
    assert run_sql(ready) == [(30,)]
    unlimited_scheduler.end_run(busy)
    assert is_running(unlimited_scheduler, jobs[100])


def test_probe_is_found_behind_jobs_whose_pool_is_full(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__a=1)
    fail_runs(unlimited_scheduler)
    unlimited_scheduler.submit(pools={"resource/a": 1})
    for n in range(130):
        unlimited_scheduler.submit(type="x", pools={"resource/a": 1}, locks=[f"k{n}"])
    free = unlimited_scheduler.submit(type="x", locks=["free"])
    wait(unlimited_scheduler, minutes=5)
    assert is_running(unlimited_scheduler, free)


def test_resumed_jobs_are_probe_candidates(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    fail_runs(unlimited_scheduler)
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('type/x', 'ada', 0)")
    jobs = [unlimited_scheduler.submit(type="x", locks=[f"k{n}"]) for n in range(3)]
    wait(unlimited_scheduler, minutes=5)
    assert unlimited_scheduler.wait_detail(jobs[0]) == "paused by ada"
    run_sql("DELETE FROM pause")
    unlimited_scheduler.run_turns()
    assert [is_running(unlimited_scheduler, job) for job in jobs] == [True, False, False]


def test_jobs_that_become_ready_while_open_are_held_without_wake_ups(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    predecessor = unlimited_scheduler.submit()
    jobs = [
        unlimited_scheduler.submit(type="x", delay="1s"),
        unlimited_scheduler.submit(type="x", delay="1s", locks=["a"]),
        unlimited_scheduler.submit(type="x", after=[predecessor]),
        unlimited_scheduler.submit(type="x", after=[predecessor], locks=["b"]),
    ]
    unlimited_scheduler.end_run(predecessor)
    wait(unlimited_scheduler, seconds=1)
    assert [unlimited_scheduler.wait_detail(job) for job in jobs] == [f"breaker open for type/x until {UNTIL}"] * 4
    assert unlimited_scheduler.engine.next_due == unlimited_scheduler.clock.moment + timedelta(minutes=4, seconds=59)
    wait(unlimited_scheduler, minutes=4, seconds=59)
    assert [is_running(unlimited_scheduler, job) for job in jobs] == [True, False, False, False]
    unlimited_scheduler.end_run(jobs[0], 0)
    assert all(is_running(unlimited_scheduler, job) for job in jobs[1:])


# Restart, reset and configuration.


def test_breaker_state_survives_restart(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler, 2)
    unlimited_scheduler.crash()
    fail_runs(unlimited_scheduler, 1)
    held = unlimited_scheduler.submit(type="x", locks=["k"])
    free = unlimited_scheduler.submit(type="x")
    unlimited_scheduler.crash()
    assert states(unlimited_scheduler)["type/x"][0] == "open"
    assert (
        unlimited_scheduler.wait_detail(held)
        == unlimited_scheduler.wait_detail(free)
        == f"breaker open for type/x until {UNTIL}"
    )
    assert unlimited_scheduler.engine.next_due == unlimited_scheduler.clock.moment + COOL_DOWN
    unlimited_scheduler.clock.advance(minutes=6)
    unlimited_scheduler.crash()
    assert is_running(unlimited_scheduler, held)
    run = unlimited_scheduler.find_run(held)
    unlimited_scheduler.crash([RunReport(run=run, pid=1, has_ended=False)])
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{held}")
    assert not is_running(unlimited_scheduler, free)
    unlimited_scheduler.receive(ExitReport(run=run, at=unlimited_scheduler.clock.moment.timestamp(), code=0))
    assert is_running(unlimited_scheduler, free)
    assert states(unlimited_scheduler) == {}


def test_restart_removes_old_failures_and_counts_the_rest(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """Failures before the window are removed at a restart. Those within it count on."""
    unlimited_scheduler.set_breaker_policy(failures=4, window=WINDOW, cool_down=COOL_DOWN)
    fail_runs(unlimited_scheduler, 2)
    wait(unlimited_scheduler, minutes=6)
    fail_runs(unlimited_scheduler, 1)
    wait(unlimited_scheduler, minutes=5)
    unlimited_scheduler.crash()
    assert states(unlimited_scheduler)["type/x"] == ("closed", 1, None)
    fail_runs(unlimited_scheduler, 2)
    assert states(unlimited_scheduler)["type/x"] == ("closed", 3, None)
    fail_runs(unlimited_scheduler, 1)
    assert states(unlimited_scheduler)["type/x"] == ("open", 4, None)
    assert run_sql("SELECT count(*) FROM breaker_failure") == [(4,)]


def test_changed_limits_lose_no_failures(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    unlimited_scheduler.set_breaker_policy(failures=5, window=WINDOW, cool_down=COOL_DOWN)
    fail_runs(unlimited_scheduler, 3)
    wait(unlimited_scheduler, minutes=6)
    fail_runs(unlimited_scheduler, 1)
    wait(unlimited_scheduler, minutes=5)
    unlimited_scheduler.crash()
    unlimited_scheduler.set_breaker_policy(failures=2, window=timedelta(minutes=1), cool_down=COOL_DOWN)
    for _ in range(6):
        fail_runs(unlimited_scheduler, 1)
        wait(unlimited_scheduler, minutes=1)
    assert run_sql("SELECT count(*) FROM breaker_failure") == [(2,)]
    unlimited_scheduler.set_breaker_policy(failures=4, window=WINDOW, cool_down=COOL_DOWN)
    fail_runs(unlimited_scheduler, 1)
    assert states(unlimited_scheduler)["type/x"] == ("closed", 3, None)
    fail_runs(unlimited_scheduler, 1)
    assert states(unlimited_scheduler)["type/x"] == ("open", 4, None)


def test_lost_probe_is_replaced(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    first, second = unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x")
    wait(unlimited_scheduler, minutes=5)
    unlimited_scheduler.confirm_start(first)
    unlimited_scheduler.crash()
    assert unlimited_scheduler.job(first).reason == "Scheduler crash recovery"
    assert states(unlimited_scheduler)["type/x"] == ("half-open", 3, f"job-{second}")


def test_probe_that_ends_after_reset_counts_as_normal_run(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    probe, other = unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x")
    wait(unlimited_scheduler, minutes=5)
    response = unlimited_scheduler.run_request(lambda tx: reset_breaker(tx, "type/x", actor="tester"))
    assert response == BreakerResetResult(key="type/x", state="closed", failures_cleared=3)
    assert is_running(unlimited_scheduler, other)
    unlimited_scheduler.end_run(probe, 1)
    assert states(unlimited_scheduler) == {"type/x": ("closed", 1, None)}


def test_lessons_open_breaker_can_be_reset_by_hand(unlimited_scheduler: Scheduler) -> None:
    """LESSONS Retry: three strikes and never healed."""
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x", locks=["k"])]
    unlimited_scheduler.run_request(lambda tx: reset_breaker(tx, "type/x", actor="ada"))
    assert all(is_running(unlimited_scheduler, job) for job in jobs)
    (event,) = [event for event in unlimited_scheduler.events if event.kind == "breaker.closed"]
    assert (event.cause, event.actor, event.data) == ("breaker", "ada", {"key": "type/x"})


def test_reset_of_unknown_breaker_names_known_ones(unlimited_scheduler: Scheduler) -> None:
    def attempt(name: str) -> None:
        unlimited_scheduler.run_request(lambda tx: reset_breaker(tx, name, actor="tester"))

    with pytest.raises(NotFound, match="no such breaker: type/x; no type or target has failed recently"):
        attempt("type/x")
    fail_runs(unlimited_scheduler, 3, type="x", target="y")
    for name in ("type/z", "global", "x", "type/", ""):
        with pytest.raises(NotFound, match=f"no such breaker: {name}; known breakers: target/y, type/x$"):
            attempt(name)
    with pytest.raises(NotFound, match="no such job: job-99"):
        attempt("job-99")


def test_policy_can_change_at_run_time(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler, 3)
    held = [unlimited_scheduler.submit(type="x"), unlimited_scheduler.submit(type="x", locks=["k"])]
    unlimited_scheduler.set_breaker_policy(failures=None)
    assert all(is_running(unlimited_scheduler, job) for job in held), "a disabled breaker holds no jobs"
    assert states(unlimited_scheduler) == {}
    fail_runs(unlimited_scheduler, 30)
    assert states(unlimited_scheduler) == {}
    unlimited_scheduler.set_breaker_policy(failures=2, window=timedelta(seconds=5), cool_down=timedelta(seconds=7))
    fail_runs(unlimited_scheduler, 2)
    assert unlimited_scheduler.engine.next_due == unlimited_scheduler.clock.moment + timedelta(seconds=7)
    wait(unlimited_scheduler, seconds=7)
    unlimited_scheduler.set_breaker_policy(failures=5, window=timedelta(minutes=1))
    unlimited_scheduler.end_run(unlimited_scheduler.submit(type="x"), 0)
    fail_runs(unlimited_scheduler, 4)
    assert states(unlimited_scheduler)["type/x"] == ("closed", 4, None)
    unlimited_scheduler.set_breaker_policy(failures=2)
    fail_runs(unlimited_scheduler, 1)
    assert states(unlimited_scheduler)["type/x"][0] == "open"


def test_every_change_is_an_event(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    *_, last = fail_runs(unlimited_scheduler)
    probe = unlimited_scheduler.submit(type="x")
    wait(unlimited_scheduler, minutes=5)
    unlimited_scheduler.end_run(probe, 0)
    changes = [
        (event.kind, event.cause, dict(event.data))
        for event in unlimited_scheduler.events
        if event.kind.startswith("breaker.")
    ]
    until = "2026-01-01T00:05:00+00:00"
    assert changes == [
        ("breaker.opened", "executor", {"key": "type/x", "until": until, "job": f"job-{last}"}),
        ("breaker.half_opened", "tick", {"key": "type/x"}),
        ("breaker.probe_started", "tick", {"key": "type/x", "job": f"job-{probe}"}),
        ("breaker.closed", "executor", {"key": "type/x", "job": f"job-{probe}"}),
    ]
    stored = run_sql("SELECT kind FROM event WHERE kind LIKE 'breaker.%' ORDER BY seq")
    assert [kind for (kind,) in stored] == [kind for kind, _, _ in changes]


def test_status_shows_breakers(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    for locks in ([], ["k"], []):
        unlimited_scheduler.submit(type="x", locks=locks)
    shown = show_status(unlimited_scheduler.reader, unlimited_scheduler.view_context)
    (shown_breaker,) = shown.breakers
    assert (shown_breaker.key, shown_breaker.state, shown_breaker.probe_at) == (
        "type/x",
        "open",
        unlimited_scheduler.clock.moment + COOL_DOWN,
    )
    assert (shown.queued, shown.ready, shown.waiting) == (3, 0, {"paused": 3})
    assert shown.idle_reason == f"job-4: breaker open for type/x until {UNTIL}"
    unlimited_scheduler.submit()
    assert show_status(unlimited_scheduler.reader, unlimited_scheduler.view_context).running == 1


def test_probe_candidate_waits_for_full_pool(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler()
    scheduler.set_breaker_policy(failures=1, cool_down=COOL_DOWN)
    fail_runs(scheduler, 1)
    busy = scheduler.submit()
    job, other = scheduler.submit(type="x"), scheduler.submit(type="x")
    wait(scheduler, minutes=5)
    assert scheduler.wait_detail(job) == "waiting on pool global (1/1)"
    assert states(scheduler)["type/x"] == ("half-open", 1, None)
    scheduler.end_run(busy)
    assert is_running(scheduler, job)
    assert scheduler.wait_detail(other) == f"breaker open for type/x until job-{job} has ended"


def test_wait_details_predict_the_probe(unlimited_scheduler: Scheduler) -> None:
    """Half-open while nothing can start: the first job waits for the machine, the others for its end."""
    fail_runs(unlimited_scheduler)
    jobs = [unlimited_scheduler.submit(type="x") for _ in range(2)]
    wait(unlimited_scheduler, minutes=5)
    unlimited_scheduler.receive(
        StartFailure(run=unlimited_scheduler.find_run(jobs[0]), error="no", is_machine_failure=True)
    )
    assert unlimited_scheduler.wait_detail(jobs[0]) == "no"
    assert unlimited_scheduler.wait_detail(jobs[1]) == f"breaker open for type/x until job-{jobs[0]} has ended"


# Cost.


@contextmanager
def recorded_statements(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the names of the statements that the engine runs inside."""
    names: list[str] = []
    depth = 0

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def count(name: str, /, *args: Any, **values: Any) -> Any:
            nonlocal depth
            if not depth:  # one verb of the driver may call another
                names.append(name)
            depth += 1
            try:
                return original(name, *args, **values)
            finally:
                depth -= 1

        return count

    database = scheduler.session._db
    with monkeypatch.context() as patch:
        for verb in ("rows", "run", "run_many"):
            patch.setattr(database, verb, counting(getattr(database, verb)))
        yield names


def run_statements(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, code: int, **fields: Any) -> list[str]:
    job = scheduler.submit(**fields)
    scheduler.end_run(job, code)  # creates its lane
    with recorded_statements(scheduler, monkeypatch) as names:
        job = scheduler.submit(**fields)
        scheduler.confirm_start(job)
        scheduler.end_run(job, code)
    return names


def test_statement_cost_of_closed_breaker(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain job costs nothing; one with a type and target costs one statement if it fails and none otherwise."""
    unlimited_scheduler.set_breaker_policy(failures=20)
    kind = {"type": "x", "target": "y"}
    done, failed = (
        run_statements(unlimited_scheduler, monkeypatch, 0),
        run_statements(unlimited_scheduler, monkeypatch, 1),
    )
    assert not any("breaker" in name or "failure" in name for name in done + failed)
    assert run_statements(unlimited_scheduler, monkeypatch, 0, **kind) == done
    with_kind = run_statements(unlimited_scheduler, monkeypatch, 1, **kind)
    assert [name for name in with_kind if name != "add_failure"] == failed
    assert with_kind.count("add_failure") == 1
    unlimited_scheduler.set_breaker_policy(failures=None)
    assert run_statements(unlimited_scheduler, monkeypatch, 1, **kind) == failed


def test_open_breaker_costs_others_nothing(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other = (
        run_statements(unlimited_scheduler, monkeypatch, 1),
        run_statements(unlimited_scheduler, monkeypatch, 0, type="z"),
    )
    fail_runs(unlimited_scheduler)
    for n in range(50):
        unlimited_scheduler.submit(type="x", locks=["k"] if n % 2 else [])
    assert run_statements(unlimited_scheduler, monkeypatch, 1) == plain
    assert run_statements(unlimited_scheduler, monkeypatch, 0, type="z") == other


def test_statement_cost_of_breaker_without_probe(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement a turn, which finds no job, however many other breakers hold jobs."""
    plain = run_statements(unlimited_scheduler, monkeypatch, 0)
    fail_runs(unlimited_scheduler)
    wait(unlimited_scheduler, minutes=5)
    fail_runs(unlimited_scheduler, type="z")
    for n in range(20):
        unlimited_scheduler.submit(type="z", locks=[f"k{n}"])
    with_untried = run_statements(unlimited_scheduler, monkeypatch, 0)
    assert [name for name in with_untried if name != "idle_lanes"] == plain
    assert with_untried.count("idle_lanes") == plain.count("lanes")


def test_stored_failures_are_limited(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    for _ in range(10):
        fail_runs(unlimited_scheduler, 2)
        wait(unlimited_scheduler, minutes=10)
    assert run_sql("SELECT count(*) FROM breaker_failure") == [(3,)]
    wait(unlimited_scheduler, minutes=10)
    unlimited_scheduler.crash()
    assert run_sql("SELECT count(*) FROM breaker_failure") == [(0,)]


# Failed starts, reset by hand.


def test_reset_clears_failed_starts_and_starts_the_job(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail_to_start(scheduler, job)
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    fail_to_start(scheduler, job)
    response = scheduler.run_request(lambda tx: reset_breaker(tx, f"job-{job}", actor="ada"))
    assert response == StartFailureResetResult(
        job="job-1", status="QUEUED", failures_cleared=2, starts_immediately=True
    )
    assert len(scheduler.started_jobs()) == 3
    record = scheduler.job(job)
    assert (record.dispatch_failures, record.last_failure, record.not_before) == (0, "no", None)
    (event,) = [event for event in scheduler.events if event.kind == "job.start_failures_reset"]
    assert (event.actor, event.job) == ("ada", job)
    for seconds in (1, 2):
        fail_to_start(scheduler, job)
        assert scheduler.status(job) is Status.QUEUED
        scheduler.clock.advance(seconds=seconds)
        scheduler.run_turns()
    fail_to_start(scheduler, job)
    assert scheduler.status(job) is Status.FAILED


def test_reset_of_cancelled_job_drops_its_backoff_for_a_rewind(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail_to_start(scheduler, job)
    scheduler.cancel(job)
    scheduler.run_request(lambda tx: reset_breaker(tx, f"job-{job}", actor="tester"))
    count = scheduler.started_jobs().count(job)
    scheduler.rewind(job)
    assert scheduler.started_jobs().count(job) == count + 1


def test_reset_of_circuit_broken_job_clears_its_count_and_leaves_it_failed(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    for _ in range(3):
        fail_to_start(scheduler, job)
        scheduler.clock.advance(seconds=2)
        scheduler.run_turns()
    response = scheduler.run_request(lambda tx: reset_breaker(tx, "job-1", actor="ada"))
    assert response == StartFailureResetResult(
        job="job-1", status="FAILED", failures_cleared=3, starts_immediately=False
    )
    record = scheduler.job(job)
    assert (record.status, record.dispatch_failures, record.permanently_failed) == (Status.FAILED, 0, True)
    with pytest.raises(Conflict, match=r"job-1 has no failed starts to clear \(FAILED\); nothing was changed"):
        scheduler.run_request(lambda tx: reset_breaker(tx, "job-1", actor="ada"))


def test_reset_keeps_requested_delay(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    with pytest.raises(Conflict):
        scheduler.run_request(lambda tx: reset_breaker(tx, f"job-{job}", actor="ada"))
    assert scheduler.wait_detail(job) == "not before 2026-01-01T01:00:00Z"


def test_failed_turn_loses_no_timer(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is in memory; the due time is not."""
    fail_runs(unlimited_scheduler)
    job = unlimited_scheduler.submit(type="x", locks=["k"])
    unlimited_scheduler.clock.advance(minutes=5)
    with monkeypatch.context() as patch:
        patch.setattr(unlimited_scheduler.session, "commit", lambda: 1 / 0)
        unlimited_scheduler.engine.turn()
        assert unlimited_scheduler.engine.store_error is not None
    unlimited_scheduler.run_turns()
    assert is_running(unlimited_scheduler, job)


def test_due_breaker_does_not_wake_engine_that_drains(unlimited_scheduler: Scheduler) -> None:
    fail_runs(unlimited_scheduler)
    job = unlimited_scheduler.submit(type="x")
    unlimited_scheduler.engine.is_draining = True
    wait(unlimited_scheduler, minutes=5)
    assert unlimited_scheduler.engine.next_due is None
    unlimited_scheduler.engine.is_draining = False
    unlimited_scheduler.run_turns()
    assert is_running(unlimited_scheduler, job)


def test_transition_of_a_failed_turn_is_repeated_while_nothing_can_start(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_runs(unlimited_scheduler, 3)
    unlimited_scheduler.engine.is_draining = True
    unlimited_scheduler.clock.advance(minutes=5)

    def fail() -> None:
        raise StoreError("the server is being restarted")

    with monkeypatch.context() as broken:
        broken.setattr(unlimited_scheduler.session, "commit", fail)
        unlimited_scheduler.engine.turn()
    unlimited_scheduler.run_turns()
    assert [event.kind for event in unlimited_scheduler.events if event.kind == "breaker.half_opened"] == [
        "breaker.half_opened"
    ]
