"""Starts that fail, starts that nobody confirms, records that cannot be used."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harness import Raw, Scheduler
from rota.core.status import Status
from rota.executor.port import Exited, FailedToStart, Started
from rota.ids import JobId


def fail(scheduler: Scheduler, job: JobId, error: str = "no such program") -> None:
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error=error))


def wait_out(scheduler: Scheduler, seconds: int) -> None:
    """Not a microsecond before, then at once."""
    before = len(scheduler.started())
    scheduler.clock.advance(seconds=seconds, microseconds=-1)
    scheduler.turn()
    assert len(scheduler.started()) == before
    scheduler.clock.advance(microseconds=1)
    scheduler.turn()
    assert len(scheduler.started()) == before + 1


def test_a_start_that_fails_is_tried_after_one_second_after_two_and_then_given_up(
    scheduler: Scheduler, raw: Raw
) -> None:
    job = scheduler.submit("missing", locks=["repo"])
    fail(scheduler, job)
    found = scheduler.job(job)
    assert (found.status, found.dispatch_failures, found.last_failure) == (Status.QUEUED, 1, "no such program")
    assert found.not_before == scheduler.clock.moment + timedelta(seconds=1)
    assert found.run is None
    wait_out(scheduler, 1)
    fail(scheduler, job)
    assert scheduler.job(job).dispatch_failures == 2
    wait_out(scheduler, 2)
    fail(scheduler, job)
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.reason) == (Status.FAILED, 1, "circuit-broken: no such program")
    assert (found.dispatch_failures, found.permanently_failed, found.run) == (3, True, None)
    assert raw("SELECT count(*) FROM run") == [(0,)]
    assert len(scheduler.started()) == 3
    assert scheduler.executor.acknowledged == [1, 2, 3]
    scheduler.clock.advance(hours=1)
    scheduler.turn()
    assert len(scheduler.started()) == 3


def test_meanwhile_others_go_and_it_keeps_its_place(scheduler: Scheduler) -> None:
    first, second, third = (scheduler.submit() for _ in range(3))
    fail(scheduler, first)
    assert scheduler.started() == [first, second]
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    scheduler.end(second)
    assert scheduler.started() == [first, second, first]
    assert scheduler.job(first).position < scheduler.job(third).position


def test_its_locks_are_free_while_it_waits_to_be_tried_again(wide: Scheduler) -> None:
    first, second = wide.submit(locks=["repo"]), wide.submit(locks=["repo"])
    assert wide.started() == [first]
    fail(wide, first)
    assert wide.started() == [first, second]
    wide.clock.advance(seconds=1)
    wide.turn()
    assert wide.detail(first) == "waiting on locks"
    wide.end(second)
    assert wide.started() == [first, second, first]


def test_everybody_is_told_how_often_and_why(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail(scheduler, job)
    shown = scheduler.show(job)
    assert (shown.dispatch_failures, shown.last_failure, shown.run) == (1, "no such program", None)
    assert scheduler.why(job)["text"] == (
        "job-1 is QUEUED: not before 2026-01-01T00:00:01Z, after it could not be started: no such program"
    )


def test_how_often_is_configurable(scheduler: Scheduler) -> None:
    scheduler.set_breaker(dispatch_failures=1)
    once = scheduler.submit()
    fail(scheduler, once)
    assert (scheduler.status(once), scheduler.job(once).dispatch_failures) == (Status.FAILED, 1)
    scheduler.set_breaker(dispatch_failures=5)
    often = scheduler.submit()
    for seconds in (1, 2, 4, 8):
        fail(scheduler, often)
        wait_out(scheduler, seconds)
    fail(scheduler, often)
    assert scheduler.job(often).reason == "circuit-broken: no such program"


def test_the_count_survives_a_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail(scheduler, job)
    scheduler.crash()
    assert scheduler.started() == []
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    fail(scheduler, job)
    assert scheduler.job(job).dispatch_failures == 2


def test_what_comes_after_a_broken_job_is_blocked_by_it(wide: Scheduler) -> None:
    job = wide.submit()
    following = wide.submit(after=[job])
    cleanup = wide.submit(after=[f"job-{job}:failed"])
    for _ in range(3):
        fail(wide, job)
        wide.clock.advance(seconds=2)
        wide.turn()
    assert wide.status(following) is Status.BLOCKED_BY_DEPENDENCY
    assert cleanup in wide.started()


def test_a_successful_start_sets_the_count_back(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail(scheduler, job)
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    scheduler.start(job)
    assert scheduler.job(job).dispatch_failures == 0


def test_a_start_that_nobody_confirms_is_called_back_and_counts_as_failed(scheduler: Scheduler, raw: Raw) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    deadline = scheduler.engine.next_deadline
    assert deadline == scheduler.clock.monotonic() + 300
    scheduler.clock.advance(minutes=5, microseconds=-1000)
    scheduler.turn()
    assert scheduler.executor.stops == []
    scheduler.clock.advance(microseconds=1000)
    scheduler.turn()
    assert scheduler.executor.stops == [run]
    assert scheduler.engine.next_deadline is None
    scheduler.say(Exited(run=run, at=0, signal=15, ended_by="stop"))
    found = scheduler.job(job)
    assert (found.status, found.dispatch_failures) == (Status.QUEUED, 1)
    assert found.last_failure == "its start was not confirmed in time"
    assert raw("SELECT count(*) FROM run") == [(0,)]
    assert scheduler.executor.acknowledged == [run]


@pytest.mark.parametrize("message", ["started", "exited", "failed"])
def test_a_start_that_was_heard_of_is_never_overdue(scheduler: Scheduler, message: str) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.say(
        Started(run=run, pid=1, start_time=1)
        if message == "started"
        else Exited(run=run, at=0, code=0)
        if message == "exited"
        else FailedToStart(run=run, error="no")
    )
    assert scheduler.engine.next_deadline is None


def test_a_start_confirmed_after_it_was_called_back_is_a_failed_start_all_the_same(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.clock.advance(minutes=5)
    scheduler.turn()
    scheduler.say(Started(run=run, pid=1, start_time=1), Exited(run=run, at=0, signal=15, ended_by="stop"))
    assert scheduler.status(job) is not Status.FAILED  # nobody cancelled it, and it did nothing wrong


# Records that cannot be used: each job's trouble is its own.


def make_bad(scheduler: Scheduler, raw: Raw, sql: str) -> tuple[JobId, JobId, JobId]:
    """A bad job, one that hangs on it, and one that stands behind it."""
    scheduler.engine.is_draining = True
    bad = scheduler.submit("bad")
    after = scheduler.submit(after=[f"job-{bad}:finished"])
    behind = scheduler.submit(env={"OTHER": "1"})
    raw(sql.format(bad=bad))
    scheduler.engine.is_draining = False
    scheduler.turn()
    return bad, after, behind


BAD = [
    pytest.param("UPDATE spec SET command = 'not json' WHERE id = {bad}", id="command"),
    pytest.param("UPDATE spec SET command = '[1, 2]' WHERE id = {bad}", id="types"),
    pytest.param("UPDATE surroundings SET variables = 'x' WHERE id = 1", id="variables"),
    pytest.param("UPDATE spec SET surroundings = 99 WHERE id = {bad}", id="no environment"),
]


@pytest.mark.parametrize("sql", BAD)
def test_a_record_that_cannot_be_used_fails_alone(wide: Scheduler, raw: Raw, sql: str) -> None:
    bad, _after, behind = make_bad(wide, raw, sql)
    ((status, exit_code, reason, started),) = raw(
        f"SELECT status, exit_code, reason, started_at FROM job WHERE id = {bad}"
    )
    assert (status, exit_code, started) == ("FAILED", 1, None)
    assert reason.startswith("scheduler data error: ")
    assert wide.engine.trouble is None
    assert behind in wide.started()
    assert bad not in wide.started()
    wide.turn()
    assert raw(f"SELECT count(*) FROM run WHERE job = {bad}") == [(0,)]


def test_a_record_that_cannot_be_used_does_not_hold_up_the_next(scheduler: Scheduler, raw: Raw) -> None:
    """With one place: the place is free again at once, and nobody has to say so."""
    _bad, after, behind = make_bad(scheduler, raw, "UPDATE spec SET command = '' WHERE id = {bad}")
    assert scheduler.started()[:1] in ([after], [behind])


def test_what_hangs_on_a_record_that_cannot_be_used_is_decided_at_once(wide: Scheduler, raw: Raw) -> None:
    _bad, after, _behind = make_bad(wide, raw, "UPDATE spec SET command = '' WHERE id = {bad}")
    assert after in wide.started()


def test_a_record_that_cannot_be_used_is_never_overdue(wide: Scheduler, raw: Raw) -> None:
    make_bad(wide, raw, "UPDATE spec SET command = '' WHERE id = {bad}")
    for job in wide.started():
        wide.start(job)
    assert wide.engine.next_deadline is None
    wide.clock.advance(minutes=6)
    wide.turn()
    assert wide.executor.stops == []


def test_a_record_that_cannot_be_used_can_still_be_listed_with_the_others(wide: Scheduler, raw: Raw) -> None:
    bad, _after, behind = make_bad(wide, raw, "UPDATE spec SET command = '' WHERE id = {bad}")
    assert [job.id for job in wide.reader.jobs([bad, behind])] == [bad, behind]
    assert wide.show(bad).reason is not None
