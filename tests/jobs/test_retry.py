"""`retry` by hand: a new job in the chain, or a refusal with its reason, and always a message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import StartFailure
from rota.ids import JobId
from rota.jobs.retry import RetryOutcome, find_retry_facts, retry, warn_of_ended_retry
from rota.jobs.rewind import StartFacts
from rota.kernel.status import Status
from tests.db.invariants import check_store
from tests.harness import Scheduler, SqlRunner


@pytest.fixture
def unlimited_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    return make_scheduler(**{"global": -1, "flow__*": -1})


@pytest.fixture(autouse=True)
def _check_store_at_end(run_sql: SqlRunner, unlimited_scheduler: Scheduler) -> object:
    yield
    check_store(run_sql)


def retry_chain(scheduler: Scheduler, reference: JobId | str) -> RetryOutcome:
    name = reference if isinstance(reference, str) else f"job-{reference}"
    retried: RetryOutcome = scheduler.run_request(lambda tx: retry(tx, name, actor="ann"))
    return retried


def probe_retry_facts(scheduler: Scheduler, job: JobId) -> StartFacts:
    facts = find_retry_facts(scheduler.reader, f"job-{job}", scheduler.settings.artifact_paths)
    return StartFacts(
        observed=scheduler.probe.observe(set(facts)), probe_number=scheduler.engine.fact_cache.begin_probe()
    )


def submit_failed(scheduler: Scheduler, code: int = 1, **fields: object) -> JobId:
    job = scheduler.submit(**fields)  # type: ignore[arg-type]
    scheduler.confirm_start(job)
    scheduler.end_run(job, code)
    return job


def test_retry_adds_new_job_to_chain(unlimited_scheduler: Scheduler) -> None:
    job = submit_failed(unlimited_scheduler, locks=["k"], priority=3)
    result = retry_chain(unlimited_scheduler, job)
    assert result.message == f"job-{result.job} retries job-{job} (FAILED)"
    assert (result.blocked, result.advice) == ([], None)
    successor = unlimited_scheduler.job(result.job)
    assert (successor.retry_of, successor.chain, successor.attempt, successor.retries) == (job, job, 2, 0)
    assert (successor.status, successor.not_before, successor.priority) == (Status.DISPATCHED, None, 3)
    assert unlimited_scheduler.job(job).status is Status.FAILED
    assert unlimited_scheduler.job(job).permanently_failed, "the failed job keeps its final outcome"
    assert [(event.kind, event.cause, event.actor) for event in unlimited_scheduler.events if event.actor == "ann"] == [
        ("job.retried", "retry", "ann"),
        ("job.submitted", "retry", "ann"),
    ]


def test_retry_resets_retry_count(unlimited_scheduler: Scheduler) -> None:
    job = submit_failed(unlimited_scheduler, retries=1)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(JobId(job + 1), 1)
    assert unlimited_scheduler.job(JobId(job + 1)).permanently_failed
    third = retry_chain(unlimited_scheduler, job).job
    unlimited_scheduler.end_run(third, 1)
    assert not unlimited_scheduler.job(third).permanently_failed
    fourth = JobId(third + 1)
    assert (unlimited_scheduler.job(fourth).attempt, unlimited_scheduler.job(fourth).retries) == (4, 1)
    assert unlimited_scheduler.job(fourth).not_before == unlimited_scheduler.clock.moment + timedelta(seconds=10)
    assert unlimited_scheduler.show_job(fourth).reason == "retry 1 of 1"


@pytest.mark.parametrize("reference", ["job-1", "job-2", "run-1", "run-2"])
def test_retry_accepts_any_job_or_run_of_chain(unlimited_scheduler: Scheduler, reference: str) -> None:
    submit_failed(unlimited_scheduler, retries=1)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(JobId(2), 1)
    assert retry_chain(unlimited_scheduler, reference).message == "job-3 retries job-2 (FAILED)"


def test_retry_ends_backoff(unlimited_scheduler: Scheduler) -> None:
    """A manual retry clears the retry count and the backoff."""
    job = submit_failed(unlimited_scheduler, retries=3)
    waiting = JobId(job + 1)
    assert unlimited_scheduler.job(waiting).not_before is not None
    result = retry_chain(unlimited_scheduler, job)
    assert result == RetryOutcome(
        job=waiting, message="job-2 is already waiting; cleared: its delay, its count of retries"
    )
    successor = unlimited_scheduler.job(waiting)
    assert (successor.not_before, successor.retries, successor.attempt, successor.status) == (
        None,
        0,
        2,
        Status.DISPATCHED,
    )
    (event,) = (event for event in unlimited_scheduler.events if event.kind == "job.backoff_reset")
    assert (event.job, event.actor, set(event.data)) == (waiting, "ann", {"not_before", "retries"})


def test_retry_clears_delay_of_first_job(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(delay="1h")
    assert retry_chain(unlimited_scheduler, job).message == "job-1 is already waiting; cleared: its delay"
    assert unlimited_scheduler.status(job) is Status.DISPATCHED


def test_retry_clears_failed_starts(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    for _ in range(2):
        unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(job), error="no"))
        assert (
            retry_chain(unlimited_scheduler, job).message
            == "job-1 is already waiting; cleared: its delay, its count of failed starts"
        )
        assert unlimited_scheduler.job(job).dispatch_failures == 0
    assert unlimited_scheduler.status(job) is Status.DISPATCHED


def test_lessons_retry_without_effect_reports_it(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: retry silently did nothing."""
    first = unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[first])
    before = len(unlimited_scheduler.events)
    result = retry_chain(unlimited_scheduler, job)
    assert result == RetryOutcome(
        job=job, message="job-2 is already waiting, and not for a delay; `rota why job-2` shows the reason"
    )
    assert len(unlimited_scheduler.events) == before


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (None, "job-1 is running; `rota wait job-1` for its end, or `rota cancel job-1` first"),
        ({"code": 0}, "job-1 ended COMPLETED, so there is nothing to retry; `rota rewind job-1` runs it again"),
        (
            {"code": 0, "skip_reason": "no need"},
            "job-1 ended SKIPPED, so there is nothing to retry; `rota rewind job-1` runs it again",
        ),
    ],
)
def test_retry_of_running_or_successful_job_is_refused(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner, end: dict[str, object] | None, message: str
) -> None:
    job = unlimited_scheduler.submit(retries=3)
    unlimited_scheduler.confirm_start(job)
    if end is not None:
        unlimited_scheduler.end_run(job, **end)  # type: ignore[arg-type]
    with pytest.raises(Conflict) as refused:
        retry_chain(unlimited_scheduler, job)
    assert refused.value.message == message
    assert run_sql("SELECT count(*) FROM job") == [(1,)]


def test_retry_of_dispatched_job_is_refused(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    assert unlimited_scheduler.status(job) is Status.DISPATCHED
    with pytest.raises(Conflict, match="is running"):
        retry_chain(unlimited_scheduler, job)


def test_cancelled_chain_can_be_retried(unlimited_scheduler: Scheduler) -> None:
    ran, waited = unlimited_scheduler.submit(retries=2), unlimited_scheduler.submit(delay="1h")
    unlimited_scheduler.confirm_start(ran)
    unlimited_scheduler.cancel(ran)
    unlimited_scheduler.end_run(ran, None, signal=15, ended_by="stop")
    unlimited_scheduler.cancel(waited)
    for job in (ran, waited):
        result = retry_chain(unlimited_scheduler, job)
        assert result.message == f"job-{result.job} retries job-{job} (CANCELLED)"
        assert unlimited_scheduler.status(result.job) is Status.DISPATCHED
        assert unlimited_scheduler.job(result.job).stop_requested is None
    unlimited_scheduler.end_run(JobId(3), 1)
    assert unlimited_scheduler.job(JobId(5)).retries == 1, "the cancel applied to the previous job only"


def test_circuit_broken_chain_can_be_retried(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(retries=2)
    for _ in range(3):
        unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(job), error="no"))
        unlimited_scheduler.clock.advance(seconds=2)
        unlimited_scheduler.run_turns()
    assert unlimited_scheduler.job(job).reason == "circuit-broken: no"
    member = retry_chain(unlimited_scheduler, job).job
    assert (unlimited_scheduler.job(member).dispatch_failures, unlimited_scheduler.status(member)) == (
        0,
        Status.DISPATCHED,
    )


@pytest.mark.parametrize("reference", ["job-9", "run-9"])
def test_retry_of_unknown_id_is_refused(unlimited_scheduler: Scheduler, reference: str) -> None:
    with pytest.raises(NotFound, match=f"no such {reference[:3]}: {reference}; `rota list --all` lists all jobs"):
        retry_chain(unlimited_scheduler, reference)


@pytest.mark.parametrize("reference", ["", "9", "group-1", "job", "job-0", "run-x"])
def test_retry_of_malformed_id_is_refused(unlimited_scheduler: Scheduler, reference: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a (job or run|job|run) id"):
        retry_chain(unlimited_scheduler, reference)


def test_retry_names_blocked_dependents_and_how_to_rewind_them(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    blocked = [unlimited_scheduler.submit(after=[job]) for _ in range(2)]
    beyond = unlimited_scheduler.submit(after=[blocked[0]])
    unlimited_scheduler.cancel(unlimited_scheduler.submit(after=[job]))
    unlimited_scheduler.end_run(job, 1)
    assert {unlimited_scheduler.status(dependent) for dependent in (*blocked, beyond)} == {Status.BLOCKED_BY_DEPENDENCY}
    result = retry_chain(unlimited_scheduler, job)
    assert result.blocked == blocked, "jobs after these are freed together with them"
    assert result.advice == (
        "job-2, job-3 stay BLOCKED_BY_DEPENDENCY; "
        "`rota rewind job-2`, `rota rewind job-3` let them follow the chain again"
    )
    unlimited_scheduler.end_run(result.job, 0)
    assert {unlimited_scheduler.status(dependent) for dependent in (*blocked, beyond)} == {Status.BLOCKED_BY_DEPENDENCY}


def test_retry_warns_of_new_job_that_ended_immediately(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(needs=["plan_doc:x"])
    assert unlimited_scheduler.status(job) is Status.BLOCKED_BY_DEPENDENCY
    facts = probe_retry_facts(unlimited_scheduler, job)
    result = unlimited_scheduler.run_request(
        lambda tx: retry(tx, "job-1", actor="ann", facts=facts), lambda tx, results: [warn_of_ended_retry(tx, *results)]
    )
    assert result.advice == (
        "ended at once, without a run: job-2 BLOCKED_BY_DEPENDENCY: missing plan_doc:x (draft/x); resolve that, then"
        " `rota rewind job-2` queues it again"
    )


def test_retry_decides_by_probed_facts_and_unknown_jobs_have_none(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(needs=["plan_doc:x"])
    paths = unlimited_scheduler.settings.artifact_paths
    assert find_retry_facts(unlimited_scheduler.reader, "run-9", paths) == ()
    facts = probe_retry_facts(unlimited_scheduler, job)
    facts = msgspec.structs.replace(facts, observed=dict.fromkeys(facts.observed, True))
    retried = unlimited_scheduler.run_request(lambda tx: retry(tx, f"job-{job}", actor="ann", facts=facts))
    assert unlimited_scheduler.status(retried.job) is Status.DISPATCHED


def test_retry_counts_blocked_dependents_beyond_limit(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    for _ in range(8):
        unlimited_scheduler.submit(after=[job])
    unlimited_scheduler.end_run(job, 1)
    advice = retry_chain(unlimited_scheduler, job).advice
    assert advice is not None
    assert advice.startswith("job-2, job-3, job-4, job-5, job-6 and 3 more stay BLOCKED_BY_DEPENDENCY; ")


@pytest.mark.parametrize("policy", ["finished", "failed"])
def test_waiting_dependents_follow_retried_chain(unlimited_scheduler: Scheduler, policy: str) -> None:
    """Edges that the first end had decided are open again: the outcome of a chain is that of its last job."""
    job, other = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    dependent = unlimited_scheduler.submit(after=[f"job-{job}:{policy}", other])
    unlimited_scheduler.end_run(job, 1)
    assert unlimited_scheduler.wait_detail(dependent) == f"waiting on job job-{other}"
    member = retry_chain(unlimited_scheduler, job).job
    unlimited_scheduler.end_run(other, 0)
    assert unlimited_scheduler.status(dependent) is Status.WAITING_ON_DEPS
    assert unlimited_scheduler.wait_detail(dependent) == f"waiting on job job-{member}"
    unlimited_scheduler.end_run(member, 0)
    assert unlimited_scheduler.status(dependent) is (Status.DISPATCHED if policy == "finished" else Status.SKIPPED)


def test_ready_dependent_waits_again_after_retry(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(**{"global": 1})
    job = unlimited_scheduler.submit()
    unlimited_scheduler.submit(priority=9)
    dependent = unlimited_scheduler.submit(after=[f"job-{job}:finished"])
    unlimited_scheduler.end_run(job, 1)
    assert unlimited_scheduler.wait_detail(dependent) == "waiting on pool global (1/1)"
    retry_chain(unlimited_scheduler, job)
    assert unlimited_scheduler.status(dependent) is Status.WAITING_ON_DEPS
    assert unlimited_scheduler.drain()[-2:] == [JobId(4), dependent]


def test_blocked_job_can_be_retried_after_its_predecessor(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    dependent = unlimited_scheduler.submit(after=[job])
    unlimited_scheduler.end_run(job, 1)
    with pytest.raises(Conflict) as refused:
        retry_chain(unlimited_scheduler, dependent)
    assert refused.value.message == (
        "job-2 would be blocked again: dependency failed for job job-1 (FAILED); "
        "`rota retry job-1` first, then `rota retry job-2`"
    )
    member = retry_chain(unlimited_scheduler, job).job
    follower = retry_chain(unlimited_scheduler, dependent).job
    assert unlimited_scheduler.wait_detail(follower) == f"waiting on job job-{member}"
    unlimited_scheduler.end_run(member, 0)
    assert unlimited_scheduler.status(follower) is Status.DISPATCHED


def test_retry_of_failure_handler_is_refused_after_success(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    handler = unlimited_scheduler.submit(after=[f"job-{job}:failed"])
    unlimited_scheduler.end_run(job, 1)
    unlimited_scheduler.end_run(handler, 1)
    member = retry_chain(unlimited_scheduler, job).job
    unlimited_scheduler.end_run(member, 0)
    with pytest.raises(
        Conflict, match="job-2 is not needed: it runs only after a failure of job-3, which ended COMPLETED"
    ):
        retry_chain(unlimited_scheduler, handler)


def test_automatic_retry_evaluates_current_predecessor_outcome(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    handler = unlimited_scheduler.submit(after=[f"job-{job}:failed"], retries=1)
    unlimited_scheduler.end_run(job, 1)
    member = retry_chain(unlimited_scheduler, job).job
    unlimited_scheduler.end_run(handler, 1)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.wait_detail(JobId(4)) == "waiting on job job-3"
    unlimited_scheduler.end_run(member, 0)
    assert (unlimited_scheduler.status(JobId(4)), unlimited_scheduler.job(JobId(4)).reason) == (
        Status.SKIPPED,
        "not needed: job-3 COMPLETED",
    )


@pytest.mark.both_databases
def test_retry_survives_crash(unlimited_scheduler: Scheduler) -> None:
    job = submit_failed(unlimited_scheduler, retries=3)
    member = retry_chain(unlimited_scheduler, job).job
    unlimited_scheduler.crash()
    assert unlimited_scheduler.started_jobs() == [member]
    assert unlimited_scheduler.engine.recovery_counts == {"requeued": 1}
    assert unlimited_scheduler.job(member).retries == 0
