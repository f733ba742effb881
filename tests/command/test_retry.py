"""`retry` by hand: a new job in the chain, or what stands in its way; and in any case what was done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from harness import Raw, Scheduler
from rota.command.retry import Retried, retry
from rota.core.status import Status
from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import FailedToStart
from rota.ids import JobId
from store.invariants import check_store


@pytest.fixture
def wide(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    return make_scheduler(**{"global": -1, "flow__*": -1})


@pytest.fixture(autouse=True)
def _whole_at_the_end(raw: Raw, wide: Scheduler) -> object:
    yield
    check_store(raw)


def again(scheduler: Scheduler, what: JobId | str) -> Retried:
    name = what if isinstance(what, str) else f"job-{what}"
    retried: Retried = scheduler.do(lambda work: retry(work, name, actor="ann"))
    return retried


def failed(scheduler: Scheduler, code: int = 1, **fields: object) -> JobId:
    job = scheduler.submit(**fields)  # type: ignore[arg-type]
    scheduler.start(job)
    scheduler.end(job, code)
    return job


def test_a_failed_job_is_retried_as_a_new_job_of_its_chain(wide: Scheduler) -> None:
    job = failed(wide, locks=["k"], priority=3)
    told = again(wide, job)
    assert told.text == f"job-{told.job} retries job-{job} (FAILED)"
    assert (told.blocked, told.advice) == ([], None)
    found = wide.job(told.job)
    assert (found.retry_of, found.chain, found.attempt, found.retries) == (job, job, 2, 0)
    assert (found.status, found.not_before, found.priority) == (Status.DISPATCHED, None, 3)
    assert wide.job(job).status is Status.FAILED
    assert wide.job(job).permanently_failed, "what was final stays in the record"
    assert [(event.kind, event.cause, event.actor) for event in wide.events if event.actor == "ann"] == [
        ("job.retried", "retry", "ann"),
        ("job.submitted", "retry", "ann"),
    ]


def test_the_count_begins_anew(wide: Scheduler) -> None:
    job = failed(wide, retries=1)
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.end(JobId(job + 1), 1)
    assert wide.job(JobId(job + 1)).permanently_failed
    third = again(wide, job).job
    wide.end(third, 1)
    assert not wide.job(third).permanently_failed
    fourth = JobId(third + 1)
    assert (wide.job(fourth).attempt, wide.job(fourth).retries) == (4, 1)
    assert wide.job(fourth).not_before == wide.clock.moment + timedelta(seconds=10)
    assert wide.show(fourth).reason == "retry 1 of 1"


@pytest.mark.parametrize("form", ["job-1", "job-2", "run-1", "run-2"])
def test_any_job_or_run_of_the_chain_names_it(wide: Scheduler, form: str) -> None:
    failed(wide, retries=1)
    wide.clock.advance(seconds=10)
    wide.turn()
    wide.end(JobId(2), 1)
    assert again(wide, form).text == "job-3 retries job-2 (FAILED)"


def test_a_chain_that_waits_to_try_again_tries_now(wide: Scheduler) -> None:
    """FLEET: a manual rerun clears the counter and the backoff."""
    job = failed(wide, retries=3)
    waiting = JobId(job + 1)
    assert wide.job(waiting).not_before is not None
    told = again(wide, job)
    assert told == Retried(job=waiting, text="job-2 waits already; cleared: its delay, its count of retries")
    found = wide.job(waiting)
    assert (found.not_before, found.retries, found.attempt, found.status) == (None, 0, 2, Status.DISPATCHED)
    (event,) = (event for event in wide.events if event.kind == "job.hurried")
    assert (event.job, event.actor, set(event.data)) == (waiting, "ann", {"not_before", "retries"})


def test_a_delay_of_the_first_job_is_cleared_too(wide: Scheduler) -> None:
    job = wide.submit(delay="1h")
    assert again(wide, job).text == "job-1 waits already; cleared: its delay"
    assert wide.status(job) is Status.DISPATCHED


def test_failed_starts_are_counted_anew(wide: Scheduler) -> None:
    job = wide.submit()
    for _ in range(2):
        wide.say(FailedToStart(run=wide.run_of(job), error="no"))
        assert again(wide, job).text == "job-1 waits already; cleared: its delay, its count of failed starts"
        assert wide.job(job).dispatch_failures == 0
    assert wide.status(job) is Status.DISPATCHED


def test_lessons_a_retry_that_changes_nothing_says_so(wide: Scheduler) -> None:
    """LESSONS: retry silently did nothing."""
    first = wide.submit()
    job = wide.submit(after=[first])
    before = len(wide.events)
    told = again(wide, job)
    assert told == Retried(job=job, text="job-2 waits already, and not for a delay; `rota why job-2` says what for")
    assert len(wide.events) == before


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (None, "job-1 is running; `rota wait job-1` for its end, or `rota cancel job-1` first"),
        ({"code": 0}, "job-1 ended COMPLETED, so there is nothing to retry; `rota rewind job-1` runs it again"),
        (
            {"code": 0, "skipped": "no need"},
            "job-1 ended SKIPPED, so there is nothing to retry; `rota rewind job-1` runs it again",
        ),
    ],
)
def test_what_runs_or_ended_well_is_a_conflict(
    wide: Scheduler, raw: Raw, end: dict[str, object] | None, message: str
) -> None:
    job = wide.submit(retries=3)
    wide.start(job)
    if end is not None:
        wide.end(job, **end)  # type: ignore[arg-type]
    with pytest.raises(Conflict) as refused:
        again(wide, job)
    assert refused.value.message == message
    assert raw("SELECT count(*) FROM job") == [(1,)]


def test_a_claim_counts_as_running(wide: Scheduler) -> None:
    job = wide.submit()
    assert wide.status(job) is Status.DISPATCHED
    with pytest.raises(Conflict, match="is running"):
        again(wide, job)


def test_a_cancelled_chain_can_be_retried(wide: Scheduler) -> None:
    ran, waited = wide.submit(retries=2), wide.submit(delay="1h")
    wide.start(ran)
    wide.cancel(ran)
    wide.end(ran, None, signal=15, ended_by="stop")
    wide.cancel(waited)
    for job in (ran, waited):
        told = again(wide, job)
        assert told.text == f"job-{told.job} retries job-{job} (CANCELLED)"
        assert wide.status(told.job) is Status.DISPATCHED
        assert wide.job(told.job).stop_requested is None
    wide.end(JobId(3), 1)
    assert wide.job(JobId(5)).retries == 1, "the cancel was of the job before"


def test_a_circuit_broken_chain_can_be_retried(wide: Scheduler) -> None:
    job = wide.submit(retries=2)
    for _ in range(3):
        wide.say(FailedToStart(run=wide.run_of(job), error="no"))
        wide.clock.advance(seconds=2)
        wide.turn()
    assert wide.job(job).reason == "circuit-broken: no"
    member = again(wide, job).job
    assert (wide.job(member).dispatch_failures, wide.status(member)) == (0, Status.DISPATCHED)


@pytest.mark.parametrize("what", ["job-9", "run-9"])
def test_what_is_not_there_is_not_found(wide: Scheduler, what: str) -> None:
    with pytest.raises(NotFound, match=f"no such {what[:3]}: {what}; `rota list --all` shows what there is"):
        again(wide, what)


@pytest.mark.parametrize("what", ["", "9", "group-1", "job", "job-0", "run-x"])
def test_what_is_no_id_is_said_so(wide: Scheduler, what: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a (job or run|job|run) id"):
        again(wide, what)


def test_dependants_that_are_blocked_already_are_named_with_what_frees_them(wide: Scheduler) -> None:
    job = wide.submit()
    blocked = [wide.submit(after=[job]) for _ in range(2)]
    beyond = wide.submit(after=[blocked[0]])
    wide.cancel(wide.submit(after=[job]))
    wide.end(job, 1)
    assert {wide.status(each) for each in (*blocked, beyond)} == {Status.BLOCKED_BY_DEPENDENCY}
    told = again(wide, job)
    assert told.blocked == blocked, "what is behind them comes free with them"
    assert told.advice == (
        "job-2, job-3 stay BLOCKED_BY_DEPENDENCY; "
        "`rota rewind job-2`, `rota rewind job-3` let them follow the chain again"
    )
    wide.end(told.job, 0)
    assert {wide.status(each) for each in (*blocked, beyond)} == {Status.BLOCKED_BY_DEPENDENCY}


def test_many_blocked_dependants_are_counted(wide: Scheduler) -> None:
    job = wide.submit()
    for _ in range(8):
        wide.submit(after=[job])
    wide.end(job, 1)
    advice = again(wide, job).advice
    assert advice is not None
    assert advice.startswith("job-2, job-3, job-4, job-5, job-6 and 3 more stay BLOCKED_BY_DEPENDENCY; ")


@pytest.mark.parametrize("policy", ["finished", "failed"])
def test_dependants_that_still_wait_follow_the_chain_again(wide: Scheduler, policy: str) -> None:
    """What the first end had decided for them is open again: the chain's outcome is its last job's."""
    job, other = wide.submit(), wide.submit()
    dependant = wide.submit(after=[f"job-{job}:{policy}", other])
    wide.end(job, 1)
    assert wide.detail(dependant) == f"waiting on job job-{other}"
    member = again(wide, job).job
    wide.end(other, 0)
    assert wide.status(dependant) is Status.WAITING_ON_DEPS
    assert wide.detail(dependant) == f"waiting on job job-{job}"
    wide.end(member, 0)
    assert wide.status(dependant) is (Status.DISPATCHED if policy == "finished" else Status.SKIPPED)


def test_a_dependant_that_stood_ready_waits_again(wide: Scheduler) -> None:
    wide.set_pools(**{"global": 1})
    job = wide.submit()
    wide.submit(priority=9)
    dependant = wide.submit(after=[f"job-{job}:finished"])
    wide.end(job, 1)
    assert wide.detail(dependant) == "waiting on pool global (1/1)"
    again(wide, job)
    assert wide.status(dependant) is Status.WAITING_ON_DEPS
    assert wide.drain()[-2:] == [JobId(4), dependant]


def test_a_blocked_job_is_retried_when_its_predecessor_goes_on(wide: Scheduler) -> None:
    job = wide.submit()
    dependant = wide.submit(after=[job])
    wide.end(job, 1)
    with pytest.raises(Conflict) as refused:
        again(wide, dependant)
    assert refused.value.message == (
        "job-2 would be blocked again: dependency failed for job job-1 (FAILED); "
        "`rota retry job-1` first, then `rota retry job-2`"
    )
    member = again(wide, job).job
    follower = again(wide, dependant).job
    assert wide.detail(follower) == "waiting on job job-1"
    wide.end(member, 0)
    assert wide.status(follower) is Status.DISPATCHED


def test_a_handler_of_a_failure_that_was_mended_is_not_needed(wide: Scheduler) -> None:
    job = wide.submit()
    handler = wide.submit(after=[f"job-{job}:failed"])
    wide.end(job, 1)
    wide.end(handler, 1)
    member = again(wide, job).job
    wide.end(member, 0)
    with pytest.raises(Conflict, match="job-2 is not needed: it is for a failure of job-1, which ended COMPLETED"):
        again(wide, handler)


def test_an_automatic_retry_asks_what_its_predecessors_have_come_to(wide: Scheduler) -> None:
    job = wide.submit()
    handler = wide.submit(after=[f"job-{job}:failed"], retries=1)
    wide.end(job, 1)
    member = again(wide, job).job
    wide.end(handler, 1)
    wide.clock.advance(seconds=10)
    wide.turn()
    assert wide.detail(JobId(4)) == "waiting on job job-1"
    wide.end(member, 0)
    assert (wide.status(JobId(4)), wide.job(JobId(4)).reason) == (Status.SKIPPED, "not needed: job-1 COMPLETED")


def test_a_retry_survives_a_crash(wide: Scheduler) -> None:
    job = failed(wide, retries=3)
    member = again(wide, job).job
    wide.crash()
    assert wide.started() == [member]
    assert wide.engine.recovery == {"requeued": 1}
    assert wide.job(member).retries == 0
