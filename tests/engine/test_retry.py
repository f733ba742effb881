"""A chain goes on in the transaction that books a failure, at its delay, and comes to its end."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from harness import FakeExecutor, Raw, Scheduler, SchemaRefused
from rota.command.retry import retry
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.status import TERMINAL, Status
from rota.engine.recovery import KEYS
from rota.errors import InvalidInput, StorageFull
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Started
from rota.ids import JobId


def last(scheduler: Scheduler, job: JobId) -> JobId:
    found = scheduler.reader.last_of_chain(job)
    assert found is not None
    return found[0]


def chain(scheduler: Scheduler, job: JobId) -> list[JobId]:
    """Its jobs, from the first."""
    jobs = [last(scheduler, job)]
    while (before := scheduler.job(jobs[0]).retry_of) is not None:
        jobs.insert(0, before)
    return jobs


def fail(scheduler: Scheduler, job: JobId, code: int = 1) -> JobId:
    """Let the chain's last job run and fail; the chain's last job then."""
    member = last(scheduler, job)
    until = scheduler.job(member).not_before
    if until is not None and until > scheduler.clock.moment:
        scheduler.clock.moment = until
        scheduler.turn()
    scheduler.start(member)
    scheduler.end(member, code, tail="oops")
    return last(scheduler, job)


def test_dec_001_a_failed_run_makes_a_new_job_that_shares_everything_but_its_outcome(wide: Scheduler, raw: Raw) -> None:
    job = wide.submit("sh", "-c", "x", retries=3, priority=7, locks=["a", "b:shared"], name="n", type="t", timeout="1h")
    successor = fail(wide, job)
    assert successor != job
    first, second = wide.job(job), wide.job(successor)
    assert (first.status, first.exit_code, first.permanently_failed) == (Status.FAILED, 1, False)
    assert first.run is not None
    assert first.run.error == "exit code 1\noops"
    assert (second.status, second.retry_of, second.chain, second.attempt) == (Status.QUEUED, job, job, 2)
    assert second.spec == first.spec
    assert (second.priority, second.position, second.draws, second.after) == (7, first.position, first.draws, ())
    assert (second.run, second.exit_code, second.pid, second.started_at, second.reason) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert raw("SELECT count(*) FROM spec") == [(1,)], "the spec is shared by the chain"


def test_lessons_backoff_is_real(wide: Scheduler) -> None:
    """LESSONS: backoff computed, logged, never applied: 4 attempts in 0.04 s."""
    job = wide.submit(retries=3)
    for delay in (10, 20, 40):
        failed_at = wide.clock.moment
        member = fail(wide, job)
        starts = len(wide.executor.starts)
        assert wide.job(member).not_before == wide.clock.moment + timedelta(seconds=delay)
        assert wide.engine.next_due == wide.job(member).not_before
        wide.clock.advance(seconds=delay - 0.001)
        wide.turn()
        assert len(wide.executor.starts) == starts
        assert wide.detail(member) == f"not before {wide.job(member).not_before:%Y-%m-%dT%H:%M:%SZ}"
        wide.clock.advance(seconds=0.001)
        wide.turn()
        assert wide.started()[starts:] == [member]
        assert wide.clock.moment > failed_at
    fail(wide, job)
    assert len(wide.executor.starts) == 4, "three retries make four runs at most"
    assert wide.job(last(wide, job)).permanently_failed


def test_jitter_comes_from_outside(wide: Scheduler) -> None:
    wide.chance = 1.0
    member = fail(wide, wide.submit(retries=1))
    assert wide.job(member).not_before == wide.clock.moment + timedelta(seconds=11)


def test_dec_007_spent_is_permanently_failed(wide: Scheduler) -> None:
    job = wide.submit(retries=2)
    for _ in range(3):
        fail(wide, job)
    jobs = [wide.job(member) for member in chain(wide, job)]
    assert [member.status for member in jobs] == [Status.FAILED] * 3
    assert [member.permanently_failed for member in jobs] == [False, False, True]
    assert [(member.attempt, member.retries) for member in jobs] == [(1, 0), (2, 1), (3, 2)]
    assert wide.engine.next_due is None


def test_a_command_typed_by_hand_is_not_repeated_unless_asked(wide: Scheduler) -> None:
    for fields in ({}, {"retries": 0}, {"flow": "f", "retries": 0}):
        job = wide.submit(**fields)
        assert fail(wide, job) == job
        assert wide.job(job).permanently_failed


def test_a_job_with_a_flow_gets_the_fleet_policy(wide: Scheduler) -> None:
    member = fail(wide, wide.submit(flow="implement"))
    assert wide.job(member).not_before == wide.clock.moment + timedelta(seconds=30)
    assert wide.show(member).reason == "retry 1 of 5"


def test_a_success_ends_the_chain(wide: Scheduler) -> None:
    job = wide.submit(retries=3)
    member = fail(wide, job)
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.end(member, 0)
    assert (last(wide, job), wide.status(member)) == (member, Status.COMPLETED)
    assert wide.status(job) is Status.FAILED


def test_the_policy_is_that_of_the_submit(wide: Scheduler) -> None:
    """A changed configuration changes what comes, not what is already queued."""

    def configure(policy: RetryPolicy) -> None:
        wide.settings = msgspec.structs.replace(wide.settings, retry=RetryPolicies(default=policy))
        wide.engine.settings = wide.settings

    configure(RetryPolicy(max_retries=1, base=timedelta(seconds=2)))
    job = wide.submit(retry="default")
    configure(RetryPolicy(max_retries=9, base=timedelta(minutes=4)))
    member = fail(wide, job)
    assert wide.job(member).not_before == wide.clock.moment + timedelta(seconds=2)
    fail(wide, job)
    assert wide.job(last(wide, job)).permanently_failed
    assert wide.job(fail(wide, wide.submit(retry="default"))).not_before == wide.clock.moment + timedelta(minutes=4)


def test_an_unknown_policy_leaves_no_trace(wide: Scheduler, raw: Raw) -> None:
    with pytest.raises(InvalidInput, match="unknown retry policy: 'nope'; known are default, fleet"):
        wide.submit(retry="nope")
    assert raw("SELECT count(*) FROM job") == [(0,)]


def test_exit_codes_that_are_not_chosen_are_final(wide: Scheduler) -> None:
    policy = RetryPolicy(exit_codes=(75,))
    wide.settings = msgspec.structs.replace(wide.settings, retry=RetryPolicies(named={"quota": policy}))
    wide.engine.settings = wide.settings
    job = wide.submit(retry="quota")
    second = fail(wide, job, 75)
    assert second != job
    assert fail(wide, job, 1) == second
    assert wide.job(second).permanently_failed
    assert wide.why(second)["text"] == f"job-{second} is FAILED: exit code 1; only exit codes 75 are retried"


# What is retried, and what is not.


def test_every_kind_of_failed_run_is_retried(wide: Scheduler) -> None:
    ends: dict[str, dict[str, Any]] = {
        "timed out after its limit": {"code": None, "signal": 15, "ended_by": "timeout"},
        "killed by SIGKILL": {"code": None, "signal": 9},
        "exit status unknown": {"code": None},
        "Scheduler crash recovery": {"code": None, "watched": False},
    }
    for reason, fields in ends.items():
        job = wide.submit(retries=1)
        wide.start(job)
        wide.end(job, **fields)
        assert wide.job(job).reason == reason
        assert wide.job(last(wide, job)).attempt == 2, reason


def test_what_is_not_a_failed_run_is_not_retried(wide: Scheduler) -> None:
    cancelled, waiting, skipped, broken = (wide.submit(retries=3, delay=d) for d in ("0s", "1h", "0s", "0s"))
    wide.start(cancelled)
    wide.cancel(cancelled)
    wide.end(cancelled, None, signal=15, ended_by="stop")
    wide.cancel(waiting)
    wide.end(skipped, 0, skipped="nothing to do")
    for _ in range(3):
        wide.say(FailedToStart(run=wide.run_of(broken), error="no"))
        wide.clock.advance(seconds=2)
        wide.turn()
    jobs = {job: wide.job(job) for job in (cancelled, waiting, skipped, broken)}
    assert [job.status for job in jobs.values()] == [
        Status.CANCELLED, Status.CANCELLED, Status.SKIPPED, Status.FAILED,
    ]  # fmt: skip
    assert jobs[broken].reason == "circuit-broken: no"
    assert jobs[broken].permanently_failed
    assert all(last(wide, job) == job for job in jobs)


def test_a_record_that_cannot_be_used_is_not_retried(wide: Scheduler, raw: Raw) -> None:
    job = wide.submit(retries=3, delay="1s", pools={"resource/odd": 1})
    raw(f"UPDATE lane SET draws = '[' WHERE id = (SELECT lane FROM job WHERE id = {job})")
    wide.clock.advance(seconds=1)
    wide.turn()
    found = wide.job(job)
    assert found.reason is not None
    assert found.reason.startswith("scheduler data error")
    assert (found.status, found.permanently_failed, last(wide, job)) == (Status.FAILED, True, job)
    wide.crash()
    assert last(wide, job) == job


def test_a_failure_that_came_before_a_cancel_took_effect_is_not_retried(wide: Scheduler) -> None:
    """Its result stands, and so does the cancel: it meant the chain."""
    job = wide.submit(retries=3)
    wide.start(job)
    wide.cancel(job)
    wide.end(job, 1)
    assert (wide.status(job), last(wide, job), wide.job(job).permanently_failed) == (Status.FAILED, job, True)
    wide.crash()
    assert last(wide, job) == job


def test_a_policy_that_cannot_be_read_ends_the_chain_and_harms_nobody(wide: Scheduler, raw: Raw) -> None:
    job = wide.submit(retries=3)
    raw("UPDATE spec SET retry = '{'")
    assert fail(wide, job) == job
    assert wide.job(job).permanently_failed
    assert wide.show(job).status == "FAILED"


# A chain is one thing to everybody else.


def test_dec_001_a_chain_has_one_active_job(wide: Scheduler, raw: Raw) -> None:
    job = wide.submit(retries=3)
    member = fail(wide, job)
    with pytest.raises(SchemaRefused):
        raw(f"UPDATE job SET status = 'QUEUED', finished_at = NULL, started_at = NULL WHERE id = {job}")
    assert wide.status(member) is Status.QUEUED


@pytest.mark.parametrize(
    ("policy", "becomes"),
    [("success", Status.BLOCKED_BY_DEPENDENCY), ("finished", Status.DISPATCHED), ("failed", Status.DISPATCHED)],
)
def test_an_edge_is_decided_when_the_chain_is_spent(wide: Scheduler, policy: str, becomes: Status) -> None:
    job = wide.submit(retries=2)
    dependant = wide.submit(after=[f"job-{job}:{policy}"])
    for _ in range(2):
        fail(wide, job)
        assert wide.status(dependant) is Status.WAITING_ON_DEPS
        assert wide.detail(dependant) == f"waiting on job job-{job}"
    fail(wide, job)
    assert wide.status(dependant) is becomes


@pytest.mark.parametrize(
    ("policy", "becomes"),
    [("success", Status.DISPATCHED), ("finished", Status.DISPATCHED), ("failed", Status.SKIPPED)],
)
def test_and_a_retry_that_succeeds_is_a_success(wide: Scheduler, policy: str, becomes: Status) -> None:
    job = wide.submit(retries=1)
    dependant = wide.submit(after=[f"job-{job}:{policy}"])
    member = fail(wide, job)
    named_late = wide.submit(after=[f"job-{job}:{policy}", f"job-{member}:{policy}"])
    assert wide.status(named_late) is Status.WAITING_ON_DEPS
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.end(member, 0)
    assert wide.status(dependant) is becomes
    assert wide.status(named_late) is becomes


def test_a_retry_keeps_its_edges_and_locks(wide: Scheduler) -> None:
    first = wide.submit()
    job = wide.submit(after=[first, f"job-{first}:finished"], locks=["k"], retries=1)
    wide.end(first)
    member = fail(wide, job)
    assert wide.job(member).after == wide.job(job).after
    holder = wide.submit(locks=["k"])
    assert wide.status(holder) is Status.DISPATCHED, "a chain in its backoff holds no lock"
    wide.clock.advance(seconds=10)
    wide.turn()
    assert wide.status(member) is Status.WAITING_ON_LOCKS
    wide.end(holder)
    assert wide.status(member) is Status.DISPATCHED


def test_a_retry_stands_at_the_place_of_the_first(scheduler: Scheduler) -> None:
    job = scheduler.submit(retries=1)
    others = [scheduler.submit() for _ in range(3)]
    member = fail(scheduler, job)
    assert scheduler.started()[-1] == others[0], "nobody waits for a delay"
    scheduler.clock.advance(seconds=10)
    scheduler.end(others[0])
    assert scheduler.drain()[-3:] == [member, *others[1:]]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_cancel_given_any_member_ends_the_chain(wide: Scheduler, n: int) -> None:
    job = wide.submit(retries=5)
    dependant = wide.submit(after=[job])
    fail(wide, job)
    fail(wide, job)
    member = last(wide, job)
    wide.cancel(chain(wide, job)[n])
    assert (wide.status(member), wide.job(member).exit_code) == (Status.CANCELLED, 143)
    assert wide.status(dependant) is Status.BLOCKED_BY_DEPENDENCY
    wide.clock.advance(hours=1)
    wide.turn()
    assert last(wide, job) == member


def test_the_events_tell_the_story(wide: Scheduler) -> None:
    job = wide.submit(retries=1)
    member = fail(wide, job)
    told = [(event.kind, event.cause) for event in wide.events if event.job == job]
    assert told[-2:] == [("job.failed", "executor"), ("job.retried", "retry")]
    (retried,) = (event for event in wide.events if event.kind == "job.retried")
    until = wide.job(member).not_before
    assert until is not None
    assert retried.data == {"as": member, "retries": 1, "not_before": int(until.timestamp() * 1_000_000)}
    (born,) = (event for event in wide.events if event.job == member)
    assert (born.kind, born.cause) == ("job.submitted", "retry")
    assert born.data == {"retry_of": job, "chain": job, "attempt": 2, "retries": 1}
    assert {event.at for event in wide.events if event.kind in ("job.failed", "job.retried")} == {born.at}


# Crashes.


def test_the_delay_survives_a_restart(wide: Scheduler) -> None:
    job = wide.submit(retries=1)
    member = fail(wide, job)
    until = wide.job(member).not_before
    for _ in range(3):
        wide.clock.advance(seconds=3)
        wide.crash()
        assert wide.started() == []
        assert wide.job(member).not_before == until
        assert wide.engine.next_due == until
    wide.clock.advance(seconds=1)
    wide.turn()
    assert wide.started() == [member]


def test_lessons_the_count_is_on_the_chain_and_no_restart_begins_it_anew(wide: Scheduler) -> None:
    """LESSONS: counter on the session, so it reset: 50,761 spawns in six days."""
    job = wide.submit(retries=3)
    runs = 0
    while wide.status(last(wide, job)) not in TERMINAL:
        fail(wide, job)
        runs += 1
        wide.crash()
    assert runs == 4


def test_what_recovery_fails_goes_through_retry(wide: Scheduler) -> None:
    """DEC-008, DEC-007."""
    job = wide.submit(retries=1)
    wide.start(job)
    wide.crash()
    member = last(wide, job)
    assert (wide.job(job).reason, wide.job(member).attempt) == ("Scheduler crash recovery", 2)
    assert wide.engine.recovery == {"running_jobs_recovered": 1}, "made with the failure, it is not a missing one"
    wide.crash()
    assert last(wide, job) == member


def test_what_ended_while_nobody_looked_is_retried_once(wide: Scheduler) -> None:
    job = wide.submit(retries=3)
    wide.start(job)
    exited = Exited(run=wide.run_of(job), at=wide.clock.moment.timestamp(), code=1)
    for _ in range(2):
        wide.session.close()
        wide.executor = FakeExecutor()
        wide.executor.inbox = [Accounts(runs=[Account(run=exited.run, pid=None, has_ended=True)]), exited, exited]
        wide.boot()
    assert chain(wide, job) == [job, last(wide, job)]
    assert wide.job(last(wide, job)).attempt == 2


def lose_retry(raw: Raw, job: JobId, member: JobId) -> None:
    """As if something had stopped between the failure and its retry."""
    raw(f"DELETE FROM event WHERE job = {member}")
    raw(f"DELETE FROM job WHERE id = {member}")
    raw(f"UPDATE job SET retried_as = NULL WHERE id = {job}")


def test_recovery_makes_a_missing_retry_and_only_once(wide: Scheduler, raw: Raw) -> None:
    job = wide.submit(retries=2)
    dependant = wide.submit(after=[job])
    failed_at = wide.clock.moment
    lose_retry(raw, job, fail(wide, job))
    wide.clock.advance(seconds=4)
    wide.events.clear()
    wide.crash()
    assert wide.engine.recovery == {"retries_created": 1}
    assert "retries_created" in KEYS
    member = last(wide, job)
    assert wide.job(member).not_before == failed_at + timedelta(seconds=10), "the delay counts from the failure"
    assert (wide.job(member).retries, wide.job(member).chain) == (1, job)
    for _ in range(2):
        wide.crash()
        assert wide.engine.recovery == {}
        assert last(wide, job) == member
    assert wide.status(dependant) is Status.WAITING_ON_DEPS
    assert {event.cause for event in wide.events if event.job == member} == {"recovery"}


def test_a_missing_retry_that_nobody_has_left_is_a_final_failure(wide: Scheduler, raw: Raw) -> None:
    job = wide.submit(retries=1)
    dependant = wide.submit(after=[job])
    lose_retry(raw, job, fail(wide, job))
    raw("UPDATE spec SET retry = NULL")
    wide.crash()
    assert wide.engine.recovery == {}
    assert wide.job(job).permanently_failed
    assert wide.status(dependant) is Status.BLOCKED_BY_DEPENDENCY


def test_one_chain_that_cannot_be_mended_keeps_nothing_back(
    wide: Scheduler, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all."""
    bad, good, waiting = wide.submit(retries=2), wide.submit(retries=2), wide.submit(delay="1s")
    dependant = wide.submit(after=[bad])
    for job in (bad, good):
        lose_retry(raw, job, fail(wide, job))
    beyond = '{"max_retries":3,"base":"P999999999D","cap":"P999999999D"}'
    raw(f"UPDATE spec SET retry = '{beyond}' WHERE id = (SELECT spec FROM job WHERE id = {bad})")
    wide.clock.advance(seconds=1)
    wide.crash()
    assert wide.engine.recovery == {"retries_created": 1, "errors": 1}
    assert wide.started() == [waiting]
    assert (wide.engine.troubles, wide.engine.held_by) == ([], None)
    assert last(wide, good) != good
    assert f"the chain of job-{bad} could not be recovered" in caplog.text
    assert wide.job(bad).permanently_failed, "nobody is to wait for it"
    assert wide.status(dependant) is Status.BLOCKED_BY_DEPENDENCY
    wide.crash([Account(run=wide.run_of(waiting), pid=1)])
    assert wide.engine.recovery == {"running_jobs_adopted": 1}


def test_a_chain_that_can_neither_go_on_nor_end_keeps_nothing_back(
    wide: Scheduler, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, waiting = wide.submit(retries=2), wide.submit(delay="1s")
    lose_retry(raw, bad, fail(wide, bad))
    wide.clock.advance(seconds=1)
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.retry.decide", lambda *_, **__: 1 / 0)
        broken.setattr("rota.engine.retry.policies_met_by", lambda *_: 1 / 0)
        wide.crash()
    assert (wide.engine.recovery, wide.started()) == ({"errors": 1}, [waiting])
    assert not wide.job(bad).permanently_failed, "nothing of it is half stored"
    wide.crash([Account(run=wide.run_of(waiting), pid=1)])
    assert wide.engine.recovery == {"running_jobs_adopted": 1, "retries_created": 1}


def test_a_chain_that_cannot_be_read_stops_no_dispatch(wide: Scheduler, raw: Raw) -> None:
    bad, waiting = wide.submit(retries=2), wide.submit(delay="1s")
    lose_retry(raw, bad, fail(wide, bad))
    (before,) = raw(f"SELECT finished_at FROM job WHERE id = {bad}")
    raw(f"UPDATE job SET finished_at = {2**62} WHERE id = {bad}")
    wide.clock.advance(seconds=1)
    wide.crash()
    assert (wide.engine.recovery, wide.started()) == ({"errors": 1}, [waiting])
    raw(f"UPDATE job SET finished_at = {before[0]} WHERE id = {bad}")
    wide.crash([Account(run=wide.run_of(waiting), pid=1)])
    assert wide.engine.recovery == {"running_jobs_adopted": 1, "retries_created": 1}


def test_lessons_a_restart_does_not_recover_history(wide: Scheduler, raw: Raw) -> None:
    """LESSONS: every restart "recovered" all of history."""
    job = wide.submit(retries=3)
    for _ in range(4):
        fail(wide, job)
    done = wide.submit(retries=3)
    fail(wide, done)
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.end(last(wide, done), 0)
    fail(wide, wide.submit())
    before = raw("SELECT id, status, permanently_failed, retried_as FROM job ORDER BY id")
    told = len(wide.events)
    wide.crash()
    assert (wide.engine.recovery, len(wide.events)) == ({}, told)
    assert raw("SELECT id, status, permanently_failed, retried_as FROM job ORDER BY id") == before
    wide.do(lambda work: None if not work.session.unretried() else pytest.fail("history is looked at"))


def test_lessons_a_completed_run_is_never_overwritten(wide: Scheduler) -> None:
    """LESSONS: a COMPLETED run was overwritten to FAILED; a success later marked failed."""
    job = wide.submit(retries=3)
    wide.start(job)
    run = wide.run_of(job)
    wide.end(job, 0)
    for message in (Exited(run=run, at=0, code=1), FailedToStart(run=run, error="late")):
        wide.say(message)
    wide.crash()
    found = wide.job(job)
    assert found.run is not None
    assert (found.status, found.run.status, found.exit_code) == (Status.COMPLETED, Status.COMPLETED, 0)
    assert last(wide, job) == job


def test_lessons_an_error_is_never_empty(wide: Scheduler) -> None:
    """LESSONS: errors were empty strings."""
    job = wide.submit(retries=2)
    for code, tail in ((3, "first\n"), (4, ""), (5, "last\n")):
        wide.clock.advance(minutes=5)
        wide.turn()
        wide.end(last(wide, job), code, tail=tail)
    errors = []
    for member in chain(wide, job):
        run = wide.job(member).run
        assert run is not None
        errors.append(run.error)
    assert errors == ["exit code 3\nfirst\n", "exit code 4", "exit code 5\nlast\n"]


def test_a_failed_commit_loses_neither_the_failure_nor_its_retry(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = wide.submit(retries=1)
    wide.start(job)

    def full() -> None:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(wide.session, "commit", full)
        wide.end(job, 1)
    assert wide.status(job) is Status.RUNNING
    assert last(wide, job) == job
    wide.turn()
    assert (wide.status(job), wide.job(last(wide, job)).attempt) == (Status.FAILED, 2)


def test_a_retry_waits_for_each_chain_that_goes_on_though_one_ends_in_the_same_turn(wide: Scheduler) -> None:
    """What was read of a run at the beginning of a turn may not be so at its end: a retry opens edges meanwhile."""
    one, other = wide.submit(), wide.submit()
    job = wide.submit(after=[f"job-{one}:finished", f"job-{other}:finished"], retries=1)
    for each in (one, other):
        wide.start(each)
        wide.end(each, 1)
    wide.start(job)
    again = [wide.do(partial(retry, what=f"job-{each}", actor="me")).job for each in (one, other)]
    wide.start(again[1])
    now = wide.clock.moment.timestamp()
    wide.say(
        Started(run=wide.run_of(again[0]), pid=7, start_time=7),
        Exited(run=wide.run_of(job), at=now, code=1),
        Exited(run=wide.run_of(again[0]), at=now, code=0),
    )
    wide.clock.advance(hours=1)
    wide.turn()
    member = last(wide, job)
    assert wide.status(member) is Status.WAITING_ON_DEPS
    assert wide.detail(member) == f"waiting on job job-{other}"
    wide.end(again[1], 0)
    assert wide.status(member) is Status.DISPATCHED


def test_an_end_that_cannot_be_booked_is_final_and_counts_against_nobody(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide.set_breaker(failures=1)
    wide.engine.settings = wide.settings
    job = wide.submit(type="t", retries=3)
    wide.start(job)
    monkeypatch.setattr(wide.session, "add_retry", lambda *_, **__: 1 / 0)
    wide.end(job, 1)
    assert wide.status(job) is Status.FAILED
    assert wide.job(job).permanently_failed
    assert (wide.job(job).reason or "").startswith("scheduler data error: ")
    assert last(wide, job) == job
    assert wide.reader.breakers() == []


def _followed_again(wide: Scheduler) -> tuple[JobId, JobId]:
    """A job that was claimed after its predecessor failed, and the retry that the predecessor got by hand since."""
    first = wide.submit("false")
    after = wide.submit(after=[f"job-{first}:finished"])
    fail(wide, first)
    assert wide.status(after) is Status.DISPATCHED
    wide.do(lambda work: retry(work, f"job-{first}", actor="tester"))
    return after, last(wide, first)


def test_a_claim_that_comes_to_nothing_follows_what_has_gone_on_meanwhile(wide: Scheduler) -> None:
    after, again = _followed_again(wide)
    wide.say(FailedToStart(run=wide.run_of(after), error="no"))
    assert wide.detail(after) == "waiting on job job-1"
    wide.end(again)
    assert wide.status(after) is Status.QUEUED, "only its own delay is left"
    wide.clock.advance(seconds=1)
    wide.turn()
    assert wide.status(after) is Status.DISPATCHED


def test_so_does_one_that_nobody_had_begun_when_the_scheduler_died(wide: Scheduler) -> None:
    after, again = _followed_again(wide)
    run = wide.run_of(again)
    wide.crash([Account(run=run, pid=1, has_ended=False)])
    assert wide.detail(after) == "waiting on job job-1"
    wide.say(Exited(run=run, at=0.0, code=0))
    assert wide.status(after) is Status.DISPATCHED
