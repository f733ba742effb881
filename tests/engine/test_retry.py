"""Retries: the successor is made in the transaction of the failure, waits for its backoff, and the chain ends."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from rota.engine.recovery import COUNT_NAMES
from rota.errors import InvalidInput, StorageFull
from rota.executor.port import ExitReport, RunInventory, RunReport, StartConfirmation, StartFailure
from rota.ids import JobId
from rota.jobs.retry import retry
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.kernel.status import TERMINAL, Status
from tests.harness import FakeExecutor, Scheduler, SchemaRefused, SqlRunner


def last(scheduler: Scheduler, job: JobId) -> JobId:
    tail = scheduler.reader.chains.last_job(job)
    assert tail is not None
    return tail[0]


def chain(scheduler: Scheduler, job: JobId) -> list[JobId]:
    """Return the jobs of the chain, from the first."""
    jobs = [last(scheduler, job)]
    while (before := scheduler.job(jobs[0]).retry_of) is not None:
        jobs.insert(0, before)
    return jobs


def fail(scheduler: Scheduler, job: JobId, code: int = 1) -> JobId:
    """Let the last job of the chain run and fail, and return the last job after that."""
    member = last(scheduler, job)
    until = scheduler.job(member).not_before
    if until is not None and until > scheduler.clock.moment:
        scheduler.clock.moment = until
        scheduler.run_turns()
    scheduler.confirm_start(member)
    scheduler.end_run(member, code, tail="oops")
    return last(scheduler, job)


def test_dec_001_failed_run_makes_a_job_with_the_same_spec(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = unlimited_scheduler.submit(
        "sh", "-c", "x", retries=3, priority=7, locks=["a", "b:shared"], name="n", type="t", timeout="1h"
    )
    successor = fail(unlimited_scheduler, job)
    assert successor != job
    first, second = unlimited_scheduler.job(job), unlimited_scheduler.job(successor)
    assert (first.status, first.exit_code, first.permanently_failed) == (Status.FAILED, 1, False)
    assert first.run is not None
    assert first.run.error == "exit code 1\noops"
    assert (second.status, second.retry_of, second.chain, second.attempt) == (Status.QUEUED, job, job, 2)
    assert second.spec == first.spec
    assert (second.priority, second.position, second.demand, second.after) == (7, first.position, first.demand, ())
    assert (second.run, second.exit_code, second.pid, second.started_at, second.reason) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert run_sql("SELECT count(*) FROM spec") == [(1,)], "the spec is shared by the chain"


def test_lessons_retry_waits_for_backoff(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: backoff computed, logged, never applied: 4 attempts in 0.04 s."""
    job = unlimited_scheduler.submit(retries=3)
    for delay in (10, 20, 40):
        failed_at = unlimited_scheduler.clock.moment
        member = fail(unlimited_scheduler, job)
        starts = len(unlimited_scheduler.executor.starts)
        assert unlimited_scheduler.job(member).not_before == unlimited_scheduler.clock.moment + timedelta(seconds=delay)
        assert unlimited_scheduler.engine.next_due == unlimited_scheduler.job(member).not_before
        unlimited_scheduler.clock.advance(seconds=delay - 0.001)
        unlimited_scheduler.run_turns()
        assert len(unlimited_scheduler.executor.starts) == starts
        assert (
            unlimited_scheduler.wait_detail(member)
            == f"not before {unlimited_scheduler.job(member).not_before:%Y-%m-%dT%H:%M:%SZ}"
        )
        unlimited_scheduler.clock.advance(seconds=0.001)
        unlimited_scheduler.run_turns()
        assert unlimited_scheduler.started_jobs()[starts:] == [member]
        assert unlimited_scheduler.clock.moment > failed_at
    fail(unlimited_scheduler, job)
    assert len(unlimited_scheduler.executor.starts) == 4, "three retries make four runs at most"
    assert unlimited_scheduler.job(last(unlimited_scheduler, job)).permanently_failed


def test_jitter_comes_from_the_random_source(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.random_value = 1.0
    member = fail(unlimited_scheduler, unlimited_scheduler.submit(retries=1))
    assert unlimited_scheduler.job(member).not_before == unlimited_scheduler.clock.moment + timedelta(seconds=11)


def test_dec_007_spent_chain_is_permanently_failed(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=2)
    for _ in range(3):
        fail(unlimited_scheduler, job)
    jobs = [unlimited_scheduler.job(member) for member in chain(unlimited_scheduler, job)]
    assert [member.status for member in jobs] == [Status.FAILED] * 3
    assert [member.permanently_failed for member in jobs] == [False, False, True]
    assert [(member.attempt, member.retries) for member in jobs] == [(1, 0), (2, 1), (3, 2)]
    assert unlimited_scheduler.engine.next_due is None


def test_job_without_flow_is_not_retried_by_default(unlimited_scheduler: Scheduler) -> None:
    for fields in ({}, {"retries": 0}, {"flow": "f", "retries": 0}):
        job = unlimited_scheduler.submit(**fields)
        assert fail(unlimited_scheduler, job) == job
        assert unlimited_scheduler.job(job).permanently_failed


def test_job_with_flow_gets_the_fleet_policy(unlimited_scheduler: Scheduler) -> None:
    member = fail(unlimited_scheduler, unlimited_scheduler.submit(flow="implement"))
    assert unlimited_scheduler.job(member).not_before == unlimited_scheduler.clock.moment + timedelta(seconds=30)
    assert unlimited_scheduler.show_job(member).reason == "retry 1 of 5"


def test_success_ends_the_chain(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    member = fail(unlimited_scheduler, job)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(member, 0)
    assert (last(unlimited_scheduler, job), unlimited_scheduler.status(member)) == (member, Status.COMPLETED)
    assert unlimited_scheduler.status(job) is Status.FAILED


def test_policy_of_the_submit_is_kept(unlimited_scheduler: Scheduler) -> None:
    """A changed configuration applies to later submits only."""

    def configure(policy: RetryPolicy) -> None:
        unlimited_scheduler.settings = msgspec.structs.replace(
            unlimited_scheduler.settings, retry=RetryPolicies(default=policy)
        )
        unlimited_scheduler.engine.settings = unlimited_scheduler.settings

    configure(RetryPolicy(max_retries=1, base=timedelta(seconds=2)))
    job = unlimited_scheduler.submit(retry="default")
    configure(RetryPolicy(max_retries=9, base=timedelta(minutes=4)))
    member = fail(unlimited_scheduler, job)
    assert unlimited_scheduler.job(member).not_before == unlimited_scheduler.clock.moment + timedelta(seconds=2)
    fail(unlimited_scheduler, job)
    assert unlimited_scheduler.job(last(unlimited_scheduler, job)).permanently_failed
    assert unlimited_scheduler.job(
        fail(unlimited_scheduler, unlimited_scheduler.submit(retry="default"))
    ).not_before == unlimited_scheduler.clock.moment + timedelta(minutes=4)


def test_unknown_policy_is_refused_and_stores_nothing(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    with pytest.raises(InvalidInput, match="unknown retry policy: 'nope'; known policies: default, fleet"):
        unlimited_scheduler.submit(retry="nope")
    assert run_sql("SELECT count(*) FROM job") == [(0,)]


def test_other_exit_codes_than_configured_are_final(unlimited_scheduler: Scheduler) -> None:
    policy = RetryPolicy(exit_codes=(75,))
    unlimited_scheduler.settings = msgspec.structs.replace(
        unlimited_scheduler.settings, retry=RetryPolicies(named={"quota": policy})
    )
    unlimited_scheduler.engine.settings = unlimited_scheduler.settings
    job = unlimited_scheduler.submit(retry="quota")
    second = fail(unlimited_scheduler, job, 75)
    assert second != job
    assert fail(unlimited_scheduler, job, 1) == second
    assert unlimited_scheduler.job(second).permanently_failed
    assert (
        unlimited_scheduler.explain_wait(second)["text"]
        == f"job-{second} is FAILED: exit code 1; only exit codes 75 are retried"
    )


def test_unknown_exit_hold_does_not_retry(unlimited_scheduler: Scheduler) -> None:
    policies = RetryPolicies(default=RetryPolicy(unknown_exit="hold", exit_codes=(75,)))
    unlimited_scheduler.settings = msgspec.structs.replace(unlimited_scheduler.settings, retry=policies)
    unlimited_scheduler.engine.settings = unlimited_scheduler.settings
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.end_run(job, None)
    record = unlimited_scheduler.job(job)
    assert (record.status, record.exit_code, record.permanently_failed) == (Status.FAILED, None, True)
    text = 'exit status unknown; not retried automatically, because retry.unknown_exit is "hold"'
    assert unlimited_scheduler.explain_wait(job)["text"] == f"job-{job} is FAILED: {text}"


# Which ends are retried.


def test_every_kind_of_failed_run_is_retried(unlimited_scheduler: Scheduler) -> None:
    ends: dict[str, dict[str, Any]] = {
        "timed out after its limit": {"code": None, "signal": 15, "ended_by": "timeout"},
        "killed by SIGKILL": {"code": None, "signal": 9},
        "exit status unknown": {"code": None},
        "Scheduler crash recovery": {"code": None, "is_observed": False},
    }
    for reason, fields in ends.items():
        job = unlimited_scheduler.submit(retries=1)
        unlimited_scheduler.confirm_start(job)
        unlimited_scheduler.end_run(job, **fields)
        assert unlimited_scheduler.job(job).reason == reason
        assert unlimited_scheduler.job(last(unlimited_scheduler, job)).attempt == 2, reason


def test_ends_that_are_no_failed_run_are_not_retried(unlimited_scheduler: Scheduler) -> None:
    cancelled, waiting, skipped, broken = (
        unlimited_scheduler.submit(retries=3, delay=d) for d in ("0s", "1h", "0s", "0s")
    )
    unlimited_scheduler.confirm_start(cancelled)
    unlimited_scheduler.cancel(cancelled)
    unlimited_scheduler.end_run(cancelled, None, signal=15, ended_by="stop")
    unlimited_scheduler.cancel(waiting)
    unlimited_scheduler.end_run(skipped, 0, skip_reason="nothing to do")
    for _ in range(3):
        unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(broken), error="no"))
        unlimited_scheduler.clock.advance(seconds=2)
        unlimited_scheduler.run_turns()
    jobs = {job: unlimited_scheduler.job(job) for job in (cancelled, waiting, skipped, broken)}
    assert [job.status for job in jobs.values()] == [Status.CANCELLED, Status.CANCELLED, Status.SKIPPED, Status.FAILED]
    assert jobs[broken].reason == "circuit-broken: no"
    assert jobs[broken].permanently_failed
    assert all(last(unlimited_scheduler, job) == job for job in jobs)


def test_unusable_record_is_not_retried(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = unlimited_scheduler.submit(retries=3, delay="1s", pools={"resource/odd": 1})
    run_sql(f"UPDATE lane SET demand = '[' WHERE id = (SELECT lane FROM job WHERE id = {job})")
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.run_turns()
    record = unlimited_scheduler.job(job)
    assert record.reason is not None
    assert record.reason.startswith("scheduler data error")
    assert (record.status, record.permanently_failed, last(unlimited_scheduler, job)) == (Status.FAILED, True, job)
    unlimited_scheduler.crash()
    assert last(unlimited_scheduler, job) == job


def test_failure_after_a_cancel_request_is_not_retried(unlimited_scheduler: Scheduler) -> None:
    """The result stands, and so does the cancel: it was for the chain."""
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.cancel(job)
    unlimited_scheduler.end_run(job, 1)
    assert (
        unlimited_scheduler.status(job),
        last(unlimited_scheduler, job),
        unlimited_scheduler.job(job).permanently_failed,
    ) == (Status.FAILED, job, True)
    unlimited_scheduler.crash()
    assert last(unlimited_scheduler, job) == job


def test_unreadable_policy_ends_its_own_chain(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = unlimited_scheduler.submit(retries=3)
    run_sql("UPDATE spec SET retry = '{'")
    assert fail(unlimited_scheduler, job) == job
    assert unlimited_scheduler.job(job).permanently_failed
    assert unlimited_scheduler.show_job(job).status == "FAILED"


# Edges, locks and the queue see a chain as one job.


def test_dec_001_chain_has_one_active_job(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = unlimited_scheduler.submit(retries=3)
    member = fail(unlimited_scheduler, job)
    with pytest.raises(SchemaRefused):
        run_sql(f"UPDATE job SET status = 'QUEUED', finished_at = NULL, started_at = NULL WHERE id = {job}")
    assert unlimited_scheduler.status(member) is Status.QUEUED


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("success", Status.BLOCKED_BY_DEPENDENCY), ("finished", Status.DISPATCHED), ("failed", Status.DISPATCHED)],
)
def test_edge_is_decided_when_the_chain_is_spent(unlimited_scheduler: Scheduler, policy: str, expected: Status) -> None:
    job = unlimited_scheduler.submit(retries=2)
    dependent = unlimited_scheduler.submit(after=[f"job-{job}:{policy}"])
    for _ in range(2):
        member = fail(unlimited_scheduler, job)
        assert unlimited_scheduler.status(dependent) is Status.WAITING_ON_DEPS
        assert unlimited_scheduler.wait_detail(dependent) == f"waiting on job job-{member}"
    fail(unlimited_scheduler, job)
    assert unlimited_scheduler.status(dependent) is expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("success", Status.DISPATCHED), ("finished", Status.DISPATCHED), ("failed", Status.SKIPPED)],
)
def test_retry_that_succeeds_satisfies_edges_of_the_chain(
    unlimited_scheduler: Scheduler, policy: str, expected: Status
) -> None:
    job = unlimited_scheduler.submit(retries=1)
    dependent = unlimited_scheduler.submit(after=[f"job-{job}:{policy}"])
    member = fail(unlimited_scheduler, job)
    named_late = unlimited_scheduler.submit(after=[f"job-{job}:{policy}", f"job-{member}:{policy}"])
    assert unlimited_scheduler.status(named_late) is Status.WAITING_ON_DEPS
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(member, 0)
    assert unlimited_scheduler.status(dependent) is expected
    assert unlimited_scheduler.status(named_late) is expected


def test_retry_keeps_its_edges_and_locks(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[first, f"job-{first}:finished"], locks=["k"], retries=1)
    unlimited_scheduler.end_run(first)
    member = fail(unlimited_scheduler, job)
    assert unlimited_scheduler.job(member).after == unlimited_scheduler.job(job).after
    holder = unlimited_scheduler.submit(locks=["k"])
    assert unlimited_scheduler.status(holder) is Status.DISPATCHED, "a chain in its backoff holds no lock"
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.status(member) is Status.WAITING_ON_LOCKS
    unlimited_scheduler.end_run(holder)
    assert unlimited_scheduler.status(member) is Status.DISPATCHED


def test_retry_has_the_queue_place_of_the_first_job(scheduler: Scheduler) -> None:
    job = scheduler.submit(retries=1)
    others = [scheduler.submit() for _ in range(3)]
    member = fail(scheduler, job)
    assert scheduler.started_jobs()[-1] == others[0], "no other job waits for the delay"
    scheduler.clock.advance(seconds=10)
    scheduler.end_run(others[0])
    assert scheduler.drain()[-3:] == [member, *others[1:]]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_cancel_of_any_member_ends_the_chain(unlimited_scheduler: Scheduler, n: int) -> None:
    job = unlimited_scheduler.submit(retries=5)
    dependent = unlimited_scheduler.submit(after=[job])
    fail(unlimited_scheduler, job)
    fail(unlimited_scheduler, job)
    member = last(unlimited_scheduler, job)
    unlimited_scheduler.cancel(chain(unlimited_scheduler, job)[n])
    assert (unlimited_scheduler.status(member), unlimited_scheduler.job(member).exit_code) == (Status.CANCELLED, 143)
    assert unlimited_scheduler.status(dependent) is Status.BLOCKED_BY_DEPENDENCY
    unlimited_scheduler.clock.advance(hours=1)
    unlimited_scheduler.run_turns()
    assert last(unlimited_scheduler, job) == member


def test_events_of_a_retry(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=1)
    member = fail(unlimited_scheduler, job)
    result = [(event.kind, event.cause) for event in unlimited_scheduler.events if event.job == job]
    assert result[-2:] == [("job.failed", "executor"), ("job.retried", "retry")]
    (retried,) = (event for event in unlimited_scheduler.events if event.kind == "job.retried")
    until = unlimited_scheduler.job(member).not_before
    assert until is not None
    assert retried.data == {"retried_as": member, "retries": 1, "not_before": int(until.timestamp() * 1_000_000)}
    (submitted,) = (event for event in unlimited_scheduler.events if event.job == member)
    assert (submitted.kind, submitted.cause) == ("job.submitted", "retry")
    assert submitted.data == {"retry_of": job, "chain": job, "attempt": 2, "retries": 1}
    assert {event.at for event in unlimited_scheduler.events if event.kind in ("job.failed", "job.retried")} == {
        submitted.at
    }


# Crashes.


def test_delay_survives_restart(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=1)
    member = fail(unlimited_scheduler, job)
    until = unlimited_scheduler.job(member).not_before
    for _ in range(3):
        unlimited_scheduler.clock.advance(seconds=3)
        unlimited_scheduler.crash()
        assert unlimited_scheduler.started_jobs() == []
        assert unlimited_scheduler.job(member).not_before == until
        assert unlimited_scheduler.engine.next_due == until
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [member]


def test_lessons_retry_count_survives_restarts(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: counter on the session, so it reset: 50,761 spawns in six days."""
    job = unlimited_scheduler.submit(retries=3)
    runs = 0
    while unlimited_scheduler.status(last(unlimited_scheduler, job)) not in TERMINAL:
        fail(unlimited_scheduler, job)
        runs += 1
        unlimited_scheduler.crash()
    assert runs == 4


def test_run_failed_by_recovery_is_retried(unlimited_scheduler: Scheduler) -> None:
    """DEC-008, DEC-007."""
    job = unlimited_scheduler.submit(retries=1)
    unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.crash()
    member = last(unlimited_scheduler, job)
    assert (unlimited_scheduler.job(job).reason, unlimited_scheduler.job(member).attempt) == (
        "Scheduler crash recovery",
        2,
    )
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_recovered": 1, "retries_created": 1}
    unlimited_scheduler.crash()
    assert last(unlimited_scheduler, job) == member


def test_run_that_ended_during_downtime_is_retried_once(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.confirm_start(job)
    end = ExitReport(run=unlimited_scheduler.find_run(job), at=unlimited_scheduler.clock.moment.timestamp(), code=1)
    recovered = []
    for _ in range(2):
        unlimited_scheduler.session.close()
        unlimited_scheduler.executor = FakeExecutor()
        unlimited_scheduler.executor.inbox = [
            RunInventory(runs=[RunReport(run=end.run, pid=None, has_ended=True)]),
            end,
            end,
        ]
        unlimited_scheduler.start_engine()
        recovered.append(unlimited_scheduler.engine.recovery_counts)
    assert chain(unlimited_scheduler, job) == [job, last(unlimited_scheduler, job)]
    assert recovered[0] == {"finished_while_down": 1, "retries_created": 1}
    assert "retries_created" not in (recovered[1] or {}), "the retry was there before"
    assert unlimited_scheduler.job(last(unlimited_scheduler, job)).attempt == 2


def lose_retry(run_sql: SqlRunner, job: JobId, member: JobId) -> None:
    """Delete the retry, as if a process had stopped between the failure and its retry."""
    run_sql(f"DELETE FROM event WHERE job = {member}")
    run_sql(f"DELETE FROM job WHERE id = {member}")
    run_sql(f"UPDATE job SET retried_as = NULL WHERE id = {job}")


def test_recovery_creates_a_missing_retry_once(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = unlimited_scheduler.submit(retries=2)
    dependent = unlimited_scheduler.submit(after=[job])
    failed_at = unlimited_scheduler.clock.moment
    lose_retry(run_sql, job, fail(unlimited_scheduler, job))
    unlimited_scheduler.clock.advance(seconds=4)
    unlimited_scheduler.events.clear()
    unlimited_scheduler.crash()
    assert unlimited_scheduler.engine.recovery_counts == {"retries_created": 1}
    assert "retries_created" in COUNT_NAMES
    member = last(unlimited_scheduler, job)
    assert unlimited_scheduler.job(member).not_before == failed_at + timedelta(seconds=10), (
        "the delay counts from the failure"
    )
    assert (unlimited_scheduler.job(member).retries, unlimited_scheduler.job(member).chain) == (1, job)
    for _ in range(2):
        unlimited_scheduler.crash()
        assert unlimited_scheduler.engine.recovery_counts == {}
        assert last(unlimited_scheduler, job) == member
    assert unlimited_scheduler.status(dependent) is Status.WAITING_ON_DEPS
    assert {event.cause for event in unlimited_scheduler.events if event.job == member} == {"recovery"}


def test_missing_retry_without_retries_left_is_a_final_failure(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner
) -> None:
    job = unlimited_scheduler.submit(retries=1)
    dependent = unlimited_scheduler.submit(after=[job])
    lose_retry(run_sql, job, fail(unlimited_scheduler, job))
    run_sql("UPDATE spec SET retry = NULL")
    unlimited_scheduler.crash()
    assert unlimited_scheduler.engine.recovery_counts == {}
    assert unlimited_scheduler.job(job).permanently_failed
    assert unlimited_scheduler.status(dependent) is Status.BLOCKED_BY_DEPENDENCY


def test_chain_that_cannot_be_repaired_does_not_block_others(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner, caplog: pytest.LogCaptureFixture
) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all."""
    bad, good, waiting = (
        unlimited_scheduler.submit(retries=2),
        unlimited_scheduler.submit(retries=2),
        unlimited_scheduler.submit(delay="1s"),
    )
    dependent = unlimited_scheduler.submit(after=[bad])
    for job in (bad, good):
        lose_retry(run_sql, job, fail(unlimited_scheduler, job))
    beyond = '{"max_retries":3,"base":"P999999999D","cap":"P999999999D"}'
    run_sql(f"UPDATE spec SET retry = '{beyond}' WHERE id = (SELECT spec FROM job WHERE id = {bad})")
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.crash()
    assert unlimited_scheduler.engine.recovery_counts == {"retries_created": 1, "errors": 1}
    assert unlimited_scheduler.started_jobs() == [waiting]
    assert (unlimited_scheduler.engine.errors, unlimited_scheduler.engine.first_blocker) == ([], None)
    assert last(unlimited_scheduler, good) != good
    assert f"the chain of job-{bad} could not be recovered" in caplog.text
    assert unlimited_scheduler.job(bad).permanently_failed, "no job waits for it"
    assert unlimited_scheduler.status(dependent) is Status.BLOCKED_BY_DEPENDENCY
    unlimited_scheduler.crash([RunReport(run=unlimited_scheduler.find_run(waiting), pid=1)])
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_adopted": 1}


def test_chain_that_can_neither_continue_nor_end_does_not_block_others(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, waiting = unlimited_scheduler.submit(retries=2), unlimited_scheduler.submit(delay="1s")
    lose_retry(run_sql, bad, fail(unlimited_scheduler, bad))
    unlimited_scheduler.clock.advance(seconds=1)
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.decide_retry", lambda *_, **__: 1 / 0)
        broken.setattr("rota.engine.finish.policies_met_by", lambda *_: 1 / 0)
        unlimited_scheduler.crash()
    assert (unlimited_scheduler.engine.recovery_counts, unlimited_scheduler.started_jobs()) == (
        {"errors": 1},
        [waiting],
    )
    assert not unlimited_scheduler.job(bad).permanently_failed, "no part of it is stored"
    unlimited_scheduler.crash([RunReport(run=unlimited_scheduler.find_run(waiting), pid=1)])
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_adopted": 1, "retries_created": 1}


def test_unreadable_chain_does_not_stop_dispatch(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    bad, waiting = unlimited_scheduler.submit(retries=2), unlimited_scheduler.submit(delay="1s")
    lose_retry(run_sql, bad, fail(unlimited_scheduler, bad))
    (before,) = run_sql(f"SELECT finished_at FROM job WHERE id = {bad}")
    run_sql(f"UPDATE job SET finished_at = {2**62} WHERE id = {bad}")
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.crash()
    assert (unlimited_scheduler.engine.recovery_counts, unlimited_scheduler.started_jobs()) == (
        {"errors": 1},
        [waiting],
    )
    run_sql(f"UPDATE job SET finished_at = {before[0]} WHERE id = {bad}")
    unlimited_scheduler.crash([RunReport(run=unlimited_scheduler.find_run(waiting), pid=1)])
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_adopted": 1, "retries_created": 1}


def test_lessons_restart_does_not_recover_history(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """LESSONS: every restart "recovered" all of history."""
    job = unlimited_scheduler.submit(retries=3)
    for _ in range(4):
        fail(unlimited_scheduler, job)
    done = unlimited_scheduler.submit(retries=3)
    fail(unlimited_scheduler, done)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(last(unlimited_scheduler, done), 0)
    fail(unlimited_scheduler, unlimited_scheduler.submit())
    before = run_sql("SELECT id, status, permanently_failed, retried_as FROM job ORDER BY id")
    event_count = len(unlimited_scheduler.events)
    unlimited_scheduler.crash()
    assert (unlimited_scheduler.engine.recovery_counts, len(unlimited_scheduler.events)) == ({}, event_count)
    assert run_sql("SELECT id, status, permanently_failed, retried_as FROM job ORDER BY id") == before
    unlimited_scheduler.run_request(
        lambda tx: None if not tx.chains.unretried_failures() else pytest.fail("history is read")
    )


def test_lessons_completed_run_is_never_overwritten(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: a COMPLETED run was overwritten to FAILED; a success later marked failed."""
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.confirm_start(job)
    run = unlimited_scheduler.find_run(job)
    unlimited_scheduler.end_run(job, 0)
    for message in (ExitReport(run=run, at=0, code=1), StartFailure(run=run, error="late")):
        unlimited_scheduler.receive(message)
    unlimited_scheduler.crash()
    record = unlimited_scheduler.job(job)
    assert record.run is not None
    assert (record.status, record.run.status, record.exit_code) == (Status.COMPLETED, Status.COMPLETED, 0)
    assert last(unlimited_scheduler, job) == job


def test_lessons_error_is_never_empty(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: errors were empty strings."""
    job = unlimited_scheduler.submit(retries=2)
    for code, tail in ((3, "first\n"), (4, ""), (5, "last\n")):
        unlimited_scheduler.clock.advance(minutes=5)
        unlimited_scheduler.run_turns()
        unlimited_scheduler.end_run(last(unlimited_scheduler, job), code, tail=tail)
    errors = []
    for member in chain(unlimited_scheduler, job):
        run = unlimited_scheduler.job(member).run
        assert run is not None
        errors.append(run.error)
    assert errors == ["exit code 3\nfirst\n", "exit code 4", "exit code 5\nlast\n"]


def test_failed_commit_loses_neither_failure_nor_retry(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = unlimited_scheduler.submit(retries=1)
    unlimited_scheduler.confirm_start(job)

    def full() -> None:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(unlimited_scheduler.session, "commit", full)
        unlimited_scheduler.end_run(job, 1)
    assert unlimited_scheduler.status(job) is Status.RUNNING
    assert last(unlimited_scheduler, job) == job
    unlimited_scheduler.run_turns()
    assert (unlimited_scheduler.status(job), unlimited_scheduler.job(last(unlimited_scheduler, job)).attempt) == (
        Status.FAILED,
        2,
    )


def test_retry_waits_for_predecessors_retried_in_the_same_turn(unlimited_scheduler: Scheduler) -> None:
    """Edges read at the start of a turn may be stale at its end: a retry reopens them in between."""
    first, second = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[f"job-{first}:finished", f"job-{second}:finished"], retries=1)
    for predecessor in (first, second):
        unlimited_scheduler.confirm_start(predecessor)
        unlimited_scheduler.end_run(predecessor, 1)
    unlimited_scheduler.confirm_start(job)
    retried = [
        unlimited_scheduler.run_request(partial(retry, reference=f"job-{predecessor}", actor="me")).job
        for predecessor in (first, second)
    ]
    unlimited_scheduler.confirm_start(retried[1])
    now = unlimited_scheduler.clock.moment.timestamp()
    unlimited_scheduler.receive(
        StartConfirmation(run=unlimited_scheduler.find_run(retried[0]), pid=7, start_time=7),
        ExitReport(run=unlimited_scheduler.find_run(job), at=now, code=1),
        ExitReport(run=unlimited_scheduler.find_run(retried[0]), at=now, code=0),
    )
    unlimited_scheduler.clock.advance(hours=1)
    unlimited_scheduler.run_turns()
    member = last(unlimited_scheduler, job)
    assert unlimited_scheduler.status(member) is Status.WAITING_ON_DEPS
    assert unlimited_scheduler.wait_detail(member) == f"waiting on job job-{retried[1]}"
    unlimited_scheduler.end_run(retried[1], 0)
    assert unlimited_scheduler.status(member) is Status.DISPATCHED


def test_end_that_cannot_be_recorded_is_final_and_opens_no_breaker(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited_scheduler.set_breaker_policy(failures=1)
    unlimited_scheduler.engine.settings = unlimited_scheduler.settings
    job = unlimited_scheduler.submit(type="t", retries=3)
    unlimited_scheduler.confirm_start(job)
    monkeypatch.setattr(unlimited_scheduler.session.chains, "retry", lambda *_, **__: 1 / 0)
    unlimited_scheduler.end_run(job, 1)
    assert unlimited_scheduler.status(job) is Status.FAILED
    assert unlimited_scheduler.job(job).permanently_failed
    assert (unlimited_scheduler.job(job).reason or "").startswith("scheduler data error: ")
    assert last(unlimited_scheduler, job) == job
    assert unlimited_scheduler.reader.breakers.list_all() == []


def _retried_predecessor(unlimited_scheduler: Scheduler) -> tuple[JobId, JobId]:
    """Return a job claimed after its predecessor failed, and the manual retry of that predecessor."""
    first = unlimited_scheduler.submit("false")
    after = unlimited_scheduler.submit(after=[f"job-{first}:finished"])
    fail(unlimited_scheduler, first)
    assert unlimited_scheduler.status(after) is Status.DISPATCHED
    unlimited_scheduler.run_request(lambda tx: retry(tx, f"job-{first}", actor="tester"))
    return after, last(unlimited_scheduler, first)


def test_failed_start_waits_for_retried_predecessor(unlimited_scheduler: Scheduler) -> None:
    after, retried = _retried_predecessor(unlimited_scheduler)
    unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(after), error="no"))
    assert unlimited_scheduler.wait_detail(after) == f"waiting on job job-{retried}"
    unlimited_scheduler.end_run(retried)
    assert unlimited_scheduler.status(after) is Status.QUEUED, "only its own delay remains"
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.status(after) is Status.DISPATCHED


def test_requeued_claim_waits_for_retried_predecessor(unlimited_scheduler: Scheduler) -> None:
    after, retried = _retried_predecessor(unlimited_scheduler)
    run = unlimited_scheduler.find_run(retried)
    unlimited_scheduler.crash([RunReport(run=run, pid=1, has_ended=False)])
    assert unlimited_scheduler.wait_detail(after) == f"waiting on job job-{retried}"
    unlimited_scheduler.receive(ExitReport(run=run, at=0.0, code=0))
    assert unlimited_scheduler.status(after) is Status.DISPATCHED
