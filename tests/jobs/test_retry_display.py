"""Chains in `why` and `show`: the number of the retry, its wait, and the earlier attempts."""

from __future__ import annotations

import pytest

from rota.errors import Conflict
from rota.ids import JobId
from rota.jobs.retry import retry
from rota.kernel.status import Status
from tests.harness import Scheduler


def test_why_explains_waiting_retry(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.end_run(job, 7)
    dependent = unlimited_scheduler.submit(after=[job])
    waiting = "job-2 is QUEUED: retry 1 of 3, not before 2026-01-01T00:00:10Z; job-1 FAILED: exit code 7"
    assert unlimited_scheduler.explain_wait(JobId(2))["text"] == waiting
    assert unlimited_scheduler.explain_wait(job)["text"].splitlines() == [
        "job-1 is FAILED: exit code 7; its last retry is job-2",
        f"  {waiting}",
    ]
    assert unlimited_scheduler.explain_wait(dependent)["text"].splitlines() == [
        "job-3 is WAITING_ON_DEPS: waiting on job job-2",
        f"  {waiting}",
    ]
    assert unlimited_scheduler.explain_wait(dependent)["wait"]["topics"] == ["job:2"]


def test_blocked_job_names_the_attempt_whose_status_it_prints(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    dependent = unlimited_scheduler.submit(after=[job])
    unlimited_scheduler.end_run(job, 7)
    unlimited_scheduler.cancel(JobId(3))
    assert [unlimited_scheduler.status(JobId(n)) for n in (1, 3)] == [Status.FAILED, Status.CANCELLED]
    assert unlimited_scheduler.job(dependent).reason == "dependency failed for job job-3 (CANCELLED)"
    with pytest.raises(Conflict, match=r"dependency failed for job job-3 \(CANCELLED\); `rota retry job-3` first"):
        unlimited_scheduler.run_request(lambda tx: retry(tx, "job-2", actor="tester"))


def test_why_explains_running_and_last_retry(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=1)
    unlimited_scheduler.end_run(job, 7)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.confirm_start(JobId(2), pid=9)
    assert (
        unlimited_scheduler.explain_wait(JobId(2))["text"]
        == "job-2 is RUNNING: retry 1 of 1, it runs as pid 9 since 2026-01-01 00:00:10 UTC"
    )
    unlimited_scheduler.end_run(JobId(2), 7)
    assert (
        unlimited_scheduler.explain_wait(JobId(2))["text"] == "job-2 is FAILED: exit code 7; retry 1 of 1 was the last"
    )


def test_failure_during_cancel_is_not_retried(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.cancel(job)
    unlimited_scheduler.end_run(job, 7)
    assert unlimited_scheduler.explain_wait(job)["text"] == "job-1 is FAILED: exit code 7; not retried"


def test_failure_without_retries_shows_only_exit_code(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    unlimited_scheduler.end_run(job, 7)
    assert unlimited_scheduler.explain_wait(job)["text"] == "job-1 is FAILED: exit code 7"
    assert unlimited_scheduler.show_job(job).permanently_failed


def test_show_returns_the_requested_attempt(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.end_run(job, 7)
    first, second = unlimited_scheduler.show_job(job), unlimited_scheduler.show_job(JobId(2))
    assert (first.id, first.status, first.attempt, first.retry_of, first.chain) == ("job-1", "FAILED", 1, None, "job-1")
    assert (first.permanently_failed, first.reason, first.not_before) == (False, "exit code 7", None)
    assert (second.id, second.status, second.attempt, second.retry_of, second.chain) == (
        "job-2",
        "QUEUED",
        2,
        "job-1",
        "job-1",
    )
    assert second.reason == "retry 1 of 3"
    assert second.wait is not None
    assert second.wait.detail == "not before 2026-01-01T00:00:10Z"
    assert second.not_before is not None


def test_retry_number_is_no_reason_after_success(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.end_run(job, 7)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(JobId(2), 0)
    assert (unlimited_scheduler.status(JobId(2)), unlimited_scheduler.show_job(JobId(2)).reason) == (
        Status.COMPLETED,
        None,
    )
