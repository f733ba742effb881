"""What `why` and `show` say of a chain: which try it is, what is to come, and what became of the ones before."""

from __future__ import annotations

from harness import Scheduler
from rota.core.status import Status
from rota.ids import JobId


def test_a_chain_that_waits_to_try_again(wide: Scheduler) -> None:
    job = wide.submit(retries=3)
    wide.end(job, 7)
    dependant = wide.submit(after=[job])
    waiting = "job-2 is QUEUED: retry 1 of 3, not before 2026-01-01T00:00:10Z; job-1 FAILED: exit code 7"
    assert wide.why(JobId(2))["text"] == waiting
    assert wide.why(job)["text"].splitlines() == [
        "job-1 is FAILED: exit code 7; retried, and its chain has come to job-2",
        f"  {waiting}",
    ]
    assert wide.why(dependant)["text"].splitlines() == [
        "job-3 is WAITING_ON_DEPS: waiting on job job-1",
        f"  {waiting}",
    ]


def test_a_retry_that_runs_and_one_that_was_the_last(wide: Scheduler) -> None:
    job = wide.submit(retries=1)
    wide.end(job, 7)
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.start(JobId(2), pid=9)
    assert (
        wide.why(JobId(2))["text"] == "job-2 is RUNNING: retry 1 of 1, it runs as pid 9 since 2026-01-01 00:00:10 UTC"
    )
    wide.end(JobId(2), 7)
    assert wide.why(JobId(2))["text"] == "job-2 is FAILED: exit code 7; retry 1 of 1 was the last"


def test_a_failure_that_a_cancel_met(wide: Scheduler) -> None:
    job = wide.submit(retries=3)
    wide.start(job)
    wide.cancel(job)
    wide.end(job, 7)
    assert wide.why(job)["text"] == "job-1 is FAILED: exit code 7; not retried"


def test_a_plain_failure_says_no_more_than_before(wide: Scheduler) -> None:
    job = wide.submit()
    wide.end(job, 7)
    assert wide.why(job)["text"] == "job-1 is FAILED: exit code 7"
    assert wide.show(job).permanently_failed


def test_show_shows_that_member(wide: Scheduler) -> None:
    job = wide.submit(retries=3)
    wide.end(job, 7)
    first, second = wide.show(job), wide.show(JobId(2))
    assert (first.id, first.status, first.attempt, first.retry_of, first.chain) == ("job-1", "FAILED", 1, None, "job-1")
    assert (first.permanently_failed, first.reason, first.not_before) == (False, "exit code 7", None)
    assert (second.id, second.status, second.attempt, second.retry_of, second.chain) == (
        "job-2", "QUEUED", 2, "job-1", "job-1",
    )  # fmt: skip
    assert second.reason == "retry 1 of 3"
    assert second.wait is not None
    assert second.wait.detail == "not before 2026-01-01T00:00:10Z"
    assert second.not_before is not None


def test_the_place_in_the_chain_is_no_reason_once_it_has_ended(wide: Scheduler) -> None:
    job = wide.submit(retries=3)
    wide.end(job, 7)
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.end(JobId(2), 0)
    assert (wide.status(JobId(2)), wide.show(JobId(2)).reason) == (Status.COMPLETED, None)
