"""Claims and their outcomes: each write is a compare-and-set, and late messages change nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import StoreError
from rota.ids import JobId, LaneId, RunId
from rota.kernel.holds import NO_HOLDS
from rota.kernel.lanes import Claim
from rota.kernel.pools import PoolSizes
from rota.kernel.run import RunResult
from rota.kernel.status import Status
from tests.db.harness import COMPLETED_RESULT, FAILED_RESULT, NOW, StoreHarness, add_job, claim_all

LATER = NOW + timedelta(seconds=9)


def test_claim_returns_everything_needed_to_start(harness: StoreHarness) -> None:
    job = harness.add()
    with harness.transaction() as session:
        (dispatch,) = claim_all(session)
    assert (dispatch.job, dispatch.command, dispatch.cwd, dispatch.params) == (job, '["true"]', "/", "{}")
    assert (dispatch.timeout, dispatch.idle_timeout, dispatch.skip_if) == (None, None, None)
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert record.run is not None
    assert (record.status, record.started_at, record.pid) == (Status.DISPATCHED, NOW, None)
    assert (record.run.id, record.run.worker, record.run.status, record.run.started_at) == (
        dispatch.run,
        "local/1",
        None,
        NOW,
    )
    assert harness.ready_jobs() == []
    assert [(event.kind, event.run) for event in harness.events] == [("job.dispatched", dispatch.run)]


def test_pool_usage_shows_demand_and_busy_workers(harness: StoreHarness) -> None:
    for demand in ({"global": 1, "resource/gpu": 2}, {"global": 3}, {"global": 1}):
        harness.add(demand=demand)
    harness.claim(**{"global": 4})
    assert harness.session.queue.pool_usage() == ({"global": 4, "resource/gpu": 2}, frozenset({1, 2}))
    harness.finish(JobId(1))
    assert harness.session.queue.pool_usage() == ({"global": 3}, frozenset({2}))
    harness.claim(**{"global": 4})  # the freed worker is used again
    assert harness.session.queue.pool_usage()[1] == frozenset({1, 2})


def test_job_is_claimed_once(harness: StoreHarness) -> None:
    job = harness.add()
    claim = Claim(job=job, lane=LaneId(1), worker=1)
    with harness.transaction() as session:
        session.queue.claim([claim], "local", NOW, "tick")
    with pytest.raises(StoreError, match="second scheduler"), harness.transaction() as session:
        session.queue.claim([Claim(job=job, lane=LaneId(1), worker=2)], "local", NOW, "tick")
    assert harness.run_sql("SELECT count(*) FROM run") == [(1,)]


def test_batch_with_an_ended_job_claims_nothing(harness: StoreHarness) -> None:
    waiting, ended = harness.add(), harness.add()
    with harness.transaction() as session:
        session.jobs.end_waiting(
            ended, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None
        )
    claims = [Claim(job=job, lane=LaneId(1), worker=n) for n, job in enumerate([waiting, ended], 1)]
    with pytest.raises(StoreError), harness.transaction() as session:
        session.queue.claim(claims, "local", NOW, "tick")
    assert harness.status(waiting) is Status.QUEUED
    assert harness.ready_jobs() == [waiting]


def test_repeated_start_confirmation_emits_no_second_event(harness: StoreHarness) -> None:
    job = harness.add()
    harness.claim()
    harness.confirm(job, pid=11)
    assert [event.kind for event in harness.events] == ["job.running"]
    harness.confirm(job, pid=11)
    assert harness.events == []
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert (record.status, record.pid) == (Status.RUNNING, 11)


def test_successful_start_resets_dispatch_failures(harness: StoreHarness) -> None:
    """A successful start resets `dispatch_failures`, not only a finished run."""
    job = harness.add()
    harness.claim()
    with harness.transaction() as session:
        session.runs.requeue(
            harness.run_of(job), dispatch_failures=1, error="no", not_before=None, now=NOW, cause="executor"
        )
    harness.evaluate()
    harness.claim()
    harness.confirm(job)
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert (record.dispatch_failures, record.last_failure) == (0, "no")


@pytest.mark.parametrize("is_confirmed", [True, False], ids=["running", "dispatched"])
@pytest.mark.parametrize("end", [COMPLETED_RESULT, FAILED_RESULT], ids=["completed", "failed"])
def test_end_is_recorded_on_run_and_job(harness: StoreHarness, end: RunResult, is_confirmed: bool) -> None:
    job = harness.add(locks=["k"])
    harness.evaluate()
    harness.claim()
    if is_confirmed:
        harness.confirm(job)
    run = harness.run_of(job)
    with harness.transaction() as session:
        assert session.jobs.finish(run, end, finished_at=LATER, now=LATER, cause="executor")
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert record.run is not None
    assert (record.status, record.exit_code, record.reason, record.finished_at) == (
        end.status,
        end.exit_code,
        end.reason,
        LATER,
    )
    assert (record.run.status, record.run.exit_code, record.run.error, record.run.finished_at) == (
        end.status,
        end.exit_code,
        end.error,
        LATER,
    )
    assert [(event.kind, event.data["from"]) for event in harness.events] == [
        (f"job.{end.status.lower()}", "RUNNING" if is_confirmed else "DISPATCHED")
    ]
    assert harness.session.runs.find_open(run.run) is None
    assert harness.session.runs.list_open() == []


def test_completed_run_never_becomes_failed(harness: StoreHarness) -> None:
    job = harness.add()
    harness.claim()
    run = harness.run_of(job)
    harness.finish(job, COMPLETED_RESULT)
    before = harness.reader.jobs.find(job)
    with harness.transaction() as session:
        assert not session.jobs.finish(run, FAILED_RESULT, finished_at=LATER, now=LATER, cause="executor")
        session.runs.confirm_start(run, 99, 99, LATER, "executor")
        assert not session.jobs.request_stop(job, "late", LATER, None)
        assert not session.jobs.end_waiting(
            job, Status.CANCELLED, exit_code=143, reason="late", now=LATER, cause="cancel", actor=None
        )
    assert harness.events == []
    assert harness.reader.jobs.find(job) == before


@pytest.mark.parametrize("verb", ["requeue", "abandon"])
def test_ended_claim_is_not_requeued(harness: StoreHarness, verb: str) -> None:
    """The run is an audit row (INV-002): only a run that never started may be deleted."""
    job = harness.add()
    harness.claim()
    run = harness.run_of(job)
    harness.finish(job, COMPLETED_RESULT)
    before = harness.reader.jobs.find(job)
    with harness.transaction() as session:
        if verb == "requeue":
            session.runs.requeue(run, dispatch_failures=1, error="late", not_before=None, now=LATER, cause="executor")
        else:
            session.jobs.abandon(run, dispatch_failures=3, error="late", reason="late", now=LATER, cause="executor")
    assert harness.reader.jobs.find(job) == before
    assert harness.events == []


@pytest.mark.parametrize("verb", ["requeue", "abandon"])
def test_confirmed_run_keeps_its_row(harness: StoreHarness, verb: str) -> None:
    """A RUNNING job without a run would never end."""
    job = harness.add()
    harness.claim()
    run = harness.run_of(job)
    harness.confirm(job)
    with harness.transaction() as session:  # also checks the invariants
        if verb == "requeue":
            session.runs.requeue(run, dispatch_failures=1, error="late", not_before=None, now=LATER, cause="executor")
        else:
            session.jobs.abandon(run, dispatch_failures=3, error="late", reason="late", now=LATER, cause="executor")


def test_requeued_job_returns_to_its_position(harness: StoreHarness) -> None:
    job, behind = harness.add(locks=["k"]), harness.add(locks=["k"])
    harness.evaluate()
    assert harness.claim() == [job]
    before = harness.reader.jobs.find(job)
    assert before is not None
    with harness.transaction() as session:
        session.runs.requeue(
            harness.run_of(job),
            dispatch_failures=2,
            error="no such program",
            not_before=LATER,
            now=NOW,
            cause="executor",
        )
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert (record.status, record.position, record.run, record.started_at, record.pid) == (
        Status.QUEUED,
        before.position,
        None,
        None,
        None,
    )
    assert (record.dispatch_failures, record.last_failure, record.not_before) == (2, "no such program", LATER)
    assert harness.run_sql("SELECT count(*) FROM run") == [(0,)]
    assert harness.dirty_jobs() == [job, behind]  # the lock is free
    harness.evaluate()
    assert harness.claim() == [behind]


def test_requeue_without_error_keeps_earlier_failure(harness: StoreHarness) -> None:
    job = harness.add()
    harness.claim()
    with harness.transaction() as session:
        session.runs.requeue(
            harness.run_of(job), dispatch_failures=1, error="first", not_before=LATER, now=NOW, cause="executor"
        )
    harness.evaluate(LATER)
    harness.claim()
    with harness.transaction() as session:
        session.runs.requeue(
            harness.run_of(job), dispatch_failures=1, error=None, not_before=None, now=LATER, cause="recovery"
        )
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert (record.dispatch_failures, record.last_failure, record.not_before) == (1, "first", LATER)


def test_abandoned_claim_fails_the_job_without_a_run(harness: StoreHarness) -> None:
    job = harness.add(locks=["k"])
    harness.evaluate()
    harness.claim()
    with harness.transaction() as session:
        session.jobs.abandon(
            harness.run_of(job),
            dispatch_failures=3,
            error="no",
            reason="circuit-broken: no",
            now=LATER,
            cause="executor",
        )
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert (record.status, record.exit_code, record.reason, record.run) == (
        Status.FAILED,
        1,
        "circuit-broken: no",
        None,
    )
    assert (record.dispatch_failures, record.last_failure, record.permanently_failed) == (3, "no", True)
    assert harness.run_sql("SELECT state FROM lock") == [("idle",)]


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.SKIPPED, Status.BLOCKED_BY_DEPENDENCY, Status.FAILED])
def test_waiting_job_ends_without_a_run(harness: StoreHarness, status: Status) -> None:
    ready, locked, waiting = harness.add(), harness.add(locks=["k"]), harness.add(locks=["k"])
    harness.evaluate()
    for job in (ready, locked, waiting):
        with harness.transaction() as session:
            assert session.jobs.end_waiting(
                job, status, exit_code=143, reason="why not", now=LATER, cause="cancel", actor="me"
            )
        assert [(event.kind, event.actor, event.cause) for event in harness.events] == [
            (f"job.{status.lower()}", "me", "cancel")
        ]
        record = harness.reader.jobs.find(job)
        assert record is not None
        assert (record.status, record.exit_code, record.reason, record.finished_at, record.run, record.wait_kind) == (
            status,
            143,
            "why not",
            LATER,
            None,
            None,
        )
    assert harness.ready_jobs() == []


def test_cancel_event_of_waiting_job_has_its_old_status(harness: StoreHarness) -> None:
    """Every other status change has it too."""
    job = harness.add(locks=["k"])
    with harness.transaction() as session:
        session.jobs.end_waiting(job, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)
    assert harness.events[0].data.get("from") == "QUEUED"


def test_end_waiting_ignores_started_job(harness: StoreHarness) -> None:
    job = harness.add()
    harness.claim()
    with harness.transaction() as session:
        assert not session.jobs.end_waiting(
            job, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None
        )
    assert harness.status(job) is Status.DISPATCHED


def test_stop_is_requested_once_and_only_for_running_jobs(harness: StoreHarness) -> None:
    job, waiting = harness.add(), harness.add()
    harness.claim(**{"global": 1})
    with harness.transaction() as session:
        assert session.jobs.request_stop(job, "cancelled by me", NOW, "me")
        assert not session.jobs.request_stop(job, "cancelled by you", NOW, "you")
        assert not session.jobs.request_stop(waiting, "cancelled by me", NOW, "me")
    assert [(event.kind, event.job) for event in harness.events] == [("job.stop_requested", job)]
    assert harness.run_of(job).stop_requested == "cancelled by me"


def test_open_runs_are_read_by_run_by_job_and_all_at_once(harness: StoreHarness) -> None:
    first, second = harness.add(), harness.add()
    harness.claim()
    harness.confirm(second)
    runs = harness.session.runs.list_open()
    assert [(run.job, run.chain, run.status) for run in runs] == [
        (first, first, Status.DISPATCHED),
        (second, second, Status.RUNNING),
    ]
    assert [harness.session.runs.find_open(run.run) for run in runs] == runs
    assert harness.session.runs.find_open(RunId(99)) is None
    assert harness.session.runs.find_open_of(JobId(99)) is None


def test_missing_environment_is_a_lookup_error(harness: StoreHarness) -> None:
    """A missing environment is a failure of one job, not of the store, and must not stop the others."""
    with pytest.raises(LookupError, match=r"environment \(77\) is gone from the store"):
        harness.session.jobs.environment_variables(77)


def test_empty_claim_writes_nothing(harness: StoreHarness) -> None:
    harness.add()
    with harness.transaction() as session:
        assert session.queue.claim([], "local", NOW, "tick") == []
    assert harness.events == []


def test_lane_heads_are_limited_by_room_and_report_more(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        jobs = [add_job(session) for _ in range(100)]
    (limited,) = harness.session.queue.snapshot(PoolSizes({"global": 3}), None, holds=NO_HOLDS).lanes
    assert [head.job for head in limited.heads] == jobs[:4]
    assert limited.has_more
    (unlimited,) = harness.session.queue.snapshot(PoolSizes({}), None, holds=NO_HOLDS).lanes
    assert [head.job for head in unlimited.heads] == jobs[:64]
    assert harness.session.queue.snapshot(PoolSizes({"global": 0}), None, holds=NO_HOLDS).lanes == ()
