"""Failed starts, and records that cannot be used."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.executor.port import StartFailure
from rota.ids import JobId
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner


def fail_to_start(scheduler: Scheduler, job: JobId, error: str = "no such program") -> None:
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error=error))


def assert_start_after(scheduler: Scheduler, seconds: int) -> None:
    """Check that no job starts a microsecond before the delay ends, and one as soon as it does."""
    before = len(scheduler.started_jobs())
    scheduler.clock.advance(seconds=seconds, microseconds=-1)
    scheduler.run_turns()
    assert len(scheduler.started_jobs()) == before
    scheduler.clock.advance(microseconds=1)
    scheduler.run_turns()
    assert len(scheduler.started_jobs()) == before + 1


def test_failed_start_is_retried_after_each_delay_and_then_abandoned(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = scheduler.submit("missing", locks=["repo"])
    fail_to_start(scheduler, job)
    record = scheduler.job(job)
    assert (record.status, record.dispatch_failures, record.last_failure) == (Status.QUEUED, 1, "no such program")
    assert record.not_before == scheduler.clock.moment + timedelta(seconds=1)
    assert record.run is None
    assert_start_after(scheduler, 1)
    fail_to_start(scheduler, job)
    assert scheduler.job(job).dispatch_failures == 2
    assert_start_after(scheduler, 2)
    fail_to_start(scheduler, job)
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (Status.FAILED, 1, "circuit-broken: no such program")
    assert (record.dispatch_failures, record.permanently_failed, record.run) == (3, True, None)
    assert run_sql("SELECT count(*) FROM run") == [(0,)]
    assert len(scheduler.started_jobs()) == 3
    assert scheduler.executor.acknowledged == [1, 2, 3]
    scheduler.clock.advance(hours=1)
    scheduler.run_turns()
    assert len(scheduler.started_jobs()) == 3


def test_job_that_failed_to_start_keeps_its_place_and_others_run(scheduler: Scheduler) -> None:
    first, second, third = (scheduler.submit() for _ in range(3))
    fail_to_start(scheduler, first)
    assert scheduler.started_jobs() == [first, second]
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    scheduler.end_run(second)
    assert scheduler.started_jobs() == [first, second, first]
    assert scheduler.job(first).position < scheduler.job(third).position


def test_job_waiting_for_next_start_holds_no_locks(unlimited_scheduler: Scheduler) -> None:
    first, second = unlimited_scheduler.submit(locks=["repo"]), unlimited_scheduler.submit(locks=["repo"])
    assert unlimited_scheduler.started_jobs() == [first]
    fail_to_start(unlimited_scheduler, first)
    assert unlimited_scheduler.started_jobs() == [first, second]
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.wait_detail(first) == "waiting on locks"
    unlimited_scheduler.end_run(second)
    assert unlimited_scheduler.started_jobs() == [first, second, first]


def test_start_failures_are_shown(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail_to_start(scheduler, job)
    shown = scheduler.show_job(job)
    assert (shown.dispatch_failures, shown.last_failure, shown.run) == (1, "no such program", None)
    assert scheduler.explain_wait(job)["text"] == (
        "job-1 is QUEUED: could not be started: no such program; next try at 2026-01-01T00:00:01Z"
    )


def test_number_of_start_attempts_is_configurable(scheduler: Scheduler) -> None:
    scheduler.set_breaker_policy(dispatch_failures=1)
    once = scheduler.submit()
    fail_to_start(scheduler, once)
    assert (scheduler.status(once), scheduler.job(once).dispatch_failures) == (Status.FAILED, 1)
    scheduler.set_breaker_policy(dispatch_failures=5)
    often = scheduler.submit()
    for seconds in (1, 2, 2, 2):
        fail_to_start(scheduler, often)
        assert_start_after(scheduler, seconds)
    fail_to_start(scheduler, often)
    assert scheduler.job(often).reason == "circuit-broken: no such program"


@pytest.mark.both_databases
def test_start_failure_count_survives_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail_to_start(scheduler, job)
    scheduler.crash()
    assert scheduler.started_jobs() == []
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    fail_to_start(scheduler, job)
    assert scheduler.job(job).dispatch_failures == 2


def test_abandoned_start_blocks_dependents(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    following = unlimited_scheduler.submit(after=[job])
    cleanup = unlimited_scheduler.submit(after=[f"job-{job}:failed"])
    for _ in range(3):
        fail_to_start(unlimited_scheduler, job)
        unlimited_scheduler.clock.advance(seconds=2)
        unlimited_scheduler.run_turns()
    assert unlimited_scheduler.status(following) is Status.BLOCKED_BY_DEPENDENCY
    assert cleanup in unlimited_scheduler.started_jobs()


def test_successful_start_resets_the_count(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail_to_start(scheduler, job)
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    scheduler.confirm_start(job)
    assert scheduler.job(job).dispatch_failures == 0


# Records that cannot be used: each affects its own job only.


def submit_damaged(scheduler: Scheduler, run_sql: SqlRunner, sql: str) -> tuple[JobId, JobId, JobId]:
    """Return a job with a damaged record, one that depends on it, and one behind it."""
    scheduler.engine.is_draining = True
    bad = scheduler.submit("bad")
    after = scheduler.submit(after=[f"job-{bad}:finished"])
    behind = scheduler.submit(env={"OTHER": "1"})
    run_sql(sql.format(bad=bad))
    scheduler.engine.is_draining = False
    scheduler.run_turns()
    return bad, after, behind


BAD = [
    pytest.param("UPDATE spec SET command = 'not json' WHERE id = {bad}", id="command"),
    pytest.param("UPDATE spec SET command = '[1, 2]' WHERE id = {bad}", id="types"),
    pytest.param("UPDATE spec SET command = '[]' WHERE id = {bad}", id="empty command"),
    pytest.param('UPDATE spec SET command = \'[" ", "x"]\' WHERE id = {bad}', id="empty program"),
    pytest.param("UPDATE environment SET variables = 'x' WHERE id = 1", id="variables"),
    pytest.param("UPDATE spec SET environment = 99 WHERE id = {bad}", id="no environment"),
]


@pytest.mark.parametrize("sql", BAD)
def test_unusable_record_fails_its_own_job(unlimited_scheduler: Scheduler, run_sql: SqlRunner, sql: str) -> None:
    bad, _after, behind = submit_damaged(unlimited_scheduler, run_sql, sql)
    ((status, exit_code, reason, started),) = run_sql(
        f"SELECT status, exit_code, reason, started_at FROM job WHERE id = {bad}"
    )
    assert (status, exit_code, started) == ("FAILED", 1, None)
    assert reason.startswith("scheduler data error: ")
    assert unlimited_scheduler.engine.store_error is None
    assert behind in unlimited_scheduler.started_jobs()
    assert bad not in unlimited_scheduler.started_jobs()
    unlimited_scheduler.run_turns()
    assert run_sql(f"SELECT count(*) FROM run WHERE job = {bad}") == [(0,)]


def test_unusable_record_does_not_delay_the_next_job(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """With a capacity of one: it is free again without another message."""
    _bad, after, behind = submit_damaged(scheduler, run_sql, "UPDATE spec SET command = '' WHERE id = {bad}")
    assert scheduler.started_jobs()[:1] in ([after], [behind])


def test_dependent_of_unusable_record_is_decided_immediately(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner
) -> None:
    _bad, after, _behind = submit_damaged(unlimited_scheduler, run_sql, "UPDATE spec SET command = '' WHERE id = {bad}")
    assert after in unlimited_scheduler.started_jobs()


def test_unusable_record_is_never_overdue(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    submit_damaged(unlimited_scheduler, run_sql, "UPDATE spec SET command = '' WHERE id = {bad}")
    for job in unlimited_scheduler.started_jobs():
        unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.clock.advance(minutes=6)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.engine.silence is None


def test_unusable_record_is_listed_with_the_others(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    bad, _after, behind = submit_damaged(unlimited_scheduler, run_sql, "UPDATE spec SET command = '' WHERE id = {bad}")
    assert [job.id for job in unlimited_scheduler.reader.jobs.find_all([bad, behind])] == [bad, behind]
    assert unlimited_scheduler.show_job(bad).reason is not None
