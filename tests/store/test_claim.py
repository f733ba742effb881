"""Claims, and what becomes of them: each is a compare-and-set, and what comes late changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.core.control import NOTHING_HELD
from rota.core.pool import Limits
from rota.core.run import Conclusion
from rota.core.snapshot import Claim
from rota.core.status import Status
from rota.errors import StoreError
from rota.ids import JobId, LaneId, RunId
from store.desk import BROKEN, DONE, NOW, Desk, add_job, claim_all

LATER = NOW + timedelta(seconds=9)


def test_a_claim_has_all_that_is_needed_to_start_the_job(desk: Desk) -> None:
    job = desk.add()
    with desk.writing() as session:
        (dispatch,) = claim_all(session)
    assert (dispatch.job, dispatch.command, dispatch.cwd, dispatch.params) == (job, '["true"]', "/", "{}")
    assert (dispatch.timeout, dispatch.idle_timeout, dispatch.skip_if) == (None, None, None)
    found = desk.reader.job(job)
    assert found is not None
    assert found.run is not None
    assert (found.status, found.started_at, found.pid) == (Status.DISPATCHED, NOW, None)
    assert (found.run.id, found.run.worker, found.run.status, found.run.started_at) == (
        dispatch.run,
        "local/1",
        None,
        NOW,
    )
    assert desk.ready() == []
    assert [(event.kind, event.run) for event in desk.events] == [("job.dispatched", dispatch.run)]


def test_a_snapshot_shows_what_draws_and_which_workers_are_taken(desk: Desk) -> None:
    for draws in ({"global": 1, "resource/gpu": 2}, {"global": 3}, {"global": 1}):
        desk.add(draws=draws)
    desk.claim(**{"global": 4})
    assert desk.session.used() == ({"global": 4, "resource/gpu": 2}, frozenset({1, 2}))
    desk.finish(JobId(1))
    assert desk.session.used() == ({"global": 3}, frozenset({2}))
    desk.claim(**{"global": 4})  # the worker that is free again is used again
    assert desk.session.used()[1] == frozenset({1, 2})


def test_a_job_is_claimed_once(desk: Desk) -> None:
    job = desk.add()
    claim = Claim(job=job, lane=LaneId(1), worker=1)
    with desk.writing() as session:
        session.claim([claim], "local", NOW, "tick")
    with pytest.raises(StoreError, match="second scheduler"), desk.writing() as session:
        session.claim([Claim(job=job, lane=LaneId(1), worker=2)], "local", NOW, "tick")
    assert desk.raw("SELECT count(*) FROM run") == [(1,)]


def test_of_a_batch_with_one_job_that_is_gone_nothing_is_claimed(desk: Desk) -> None:
    good, gone = desk.add(), desk.add()
    with desk.writing() as session:
        session.end_waiting(gone, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)
    claims = [Claim(job=job, lane=LaneId(1), worker=n) for n, job in enumerate([good, gone], 1)]
    with pytest.raises(StoreError), desk.writing() as session:
        session.claim(claims, "local", NOW, "tick")
    assert desk.status(good) is Status.QUEUED
    assert desk.ready() == [good]


def test_a_confirmed_start_is_running_and_a_second_word_of_it_is_no_second_event(desk: Desk) -> None:
    job = desk.add()
    desk.claim()
    desk.confirm(job, pid=11)
    assert [event.kind for event in desk.events] == ["job.running"]
    desk.confirm(job, pid=11)
    assert desk.events == []
    found = desk.reader.job(job)
    assert found is not None
    assert (found.status, found.pid) == (Status.RUNNING, 11)


def test_a_start_that_worked_takes_back_the_count_of_those_that_did_not(desk: Desk) -> None:
    """DESIGN §5: a successful start sets `dispatch_failures` to 0, not only a finished run."""
    job = desk.add()
    desk.claim()
    with desk.writing() as session:
        session.requeue(desk.run_of(job), failures=1, error="no", not_before=None, now=NOW, cause="executor")
    desk.look()
    desk.claim()
    desk.confirm(job)
    found = desk.reader.job(job)
    assert found is not None
    assert (found.dispatch_failures, found.last_failure) == (0, "no")


@pytest.mark.parametrize("is_confirmed", [True, False], ids=["running", "dispatched"])
@pytest.mark.parametrize("end", [DONE, BROKEN], ids=["completed", "failed"])
def test_an_end_is_booked_on_run_and_job(desk: Desk, end: Conclusion, is_confirmed: bool) -> None:
    job = desk.add(locks=["k"])
    desk.look()
    desk.claim()
    if is_confirmed:
        desk.confirm(job)
    run = desk.run_of(job)
    with desk.writing() as session:
        assert session.finish(run, end, at=LATER, now=LATER, cause="executor")
    found = desk.reader.job(job)
    assert found is not None
    assert found.run is not None
    assert (found.status, found.exit_code, found.reason, found.finished_at) == (
        end.status,
        end.exit_code,
        end.reason,
        LATER,
    )
    assert (found.run.status, found.run.exit_code, found.run.error, found.run.finished_at) == (
        end.status,
        end.exit_code,
        end.error,
        LATER,
    )
    assert [(event.kind, event.data["from"]) for event in desk.events] == [
        (f"job.{end.status.lower()}", "RUNNING" if is_confirmed else "DISPATCHED")
    ]
    assert desk.session.open_run(run.run) is None
    assert desk.session.open_runs() == []


def test_a_completed_run_never_becomes_failed(desk: Desk) -> None:
    job = desk.add()
    desk.claim()
    run = desk.run_of(job)
    desk.finish(job, DONE)
    before = desk.reader.job(job)
    with desk.writing() as session:
        assert not session.finish(run, BROKEN, at=LATER, now=LATER, cause="executor")
        session.confirm(run, 99, 99, LATER, "executor")
        assert not session.request_stop(job, "late", LATER, None)
        assert not session.end_waiting(
            job, Status.CANCELLED, exit_code=143, reason="late", now=LATER, cause="cancel", actor=None
        )
    assert desk.events == []
    assert desk.reader.job(job) == before


@pytest.mark.parametrize("verb", ["requeue", "abandon"])
def test_a_claim_that_has_ended_is_not_taken_back(desk: Desk, verb: str) -> None:
    """The run row is an audit row (INV-002): only one that never came about is forgotten."""
    job = desk.add()
    desk.claim()
    run = desk.run_of(job)
    desk.finish(job, DONE)
    before = desk.reader.job(job)
    with desk.writing() as session:
        if verb == "requeue":
            session.requeue(run, failures=1, error="late", not_before=None, now=LATER, cause="executor")
        else:
            session.abandon(run, failures=3, error="late", reason="late", now=LATER, cause="executor")
    assert desk.reader.job(job) == before
    assert desk.events == []


@pytest.mark.parametrize("verb", ["requeue", "abandon"])
def test_a_run_that_was_confirmed_does_not_lose_its_row(desk: Desk, verb: str) -> None:
    """A job that is RUNNING always has a run, else nobody would ever end it."""
    job = desk.add()
    desk.claim()
    run = desk.run_of(job)
    desk.confirm(job)
    with desk.writing() as session:  # and the desk checks the store behind it
        if verb == "requeue":
            session.requeue(run, failures=1, error="late", not_before=None, now=LATER, cause="executor")
        else:
            session.abandon(run, failures=3, error="late", reason="late", now=LATER, cause="executor")


def test_a_claim_that_came_to_nothing_puts_the_job_back_at_its_place(desk: Desk) -> None:
    job, behind = desk.add(locks=["k"]), desk.add(locks=["k"])
    desk.look()
    assert desk.claim() == [job]
    before = desk.reader.job(job)
    assert before is not None
    with desk.writing() as session:
        session.requeue(
            desk.run_of(job), failures=2, error="no such program", not_before=LATER, now=NOW, cause="executor"
        )
    found = desk.reader.job(job)
    assert found is not None
    assert (found.status, found.position, found.run, found.started_at, found.pid) == (
        Status.QUEUED,
        before.position,
        None,
        None,
        None,
    )
    assert (found.dispatch_failures, found.last_failure, found.not_before) == (2, "no such program", LATER)
    assert desk.raw("SELECT count(*) FROM run") == [(0,)]
    assert desk.stirred() == [job, behind]  # the lock came free
    desk.look()
    assert desk.claim() == [behind]


def test_a_claim_given_back_keeps_what_was_known_of_earlier_failures(desk: Desk) -> None:
    job = desk.add()
    desk.claim()
    with desk.writing() as session:
        session.requeue(desk.run_of(job), failures=1, error="first", not_before=LATER, now=NOW, cause="executor")
    desk.look(LATER)
    desk.claim()
    with desk.writing() as session:
        session.requeue(desk.run_of(job), failures=1, error=None, not_before=None, now=LATER, cause="recovery")
    found = desk.reader.job(job)
    assert found is not None
    assert (found.dispatch_failures, found.last_failure, found.not_before) == (1, "first", LATER)


def test_an_abandoned_claim_is_failed_without_a_run(desk: Desk) -> None:
    job = desk.add(locks=["k"])
    desk.look()
    desk.claim()
    with desk.writing() as session:
        session.abandon(
            desk.run_of(job), failures=3, error="no", reason="circuit-broken: no", now=LATER, cause="executor"
        )
    found = desk.reader.job(job)
    assert found is not None
    assert (found.status, found.exit_code, found.reason, found.run) == (Status.FAILED, 1, "circuit-broken: no", None)
    assert (found.dispatch_failures, found.last_failure, found.permanently_failed) == (3, "no", True)
    assert desk.raw("SELECT state FROM lock") == [("idle",)]


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.SKIPPED, Status.BLOCKED_BY_DEPENDENCY, Status.FAILED])
def test_a_waiting_job_is_ended_without_a_run(desk: Desk, status: Status) -> None:
    ready, locked, waiting = desk.add(), desk.add(locks=["k"]), desk.add(locks=["k"])
    desk.look()
    for job in (ready, locked, waiting):
        with desk.writing() as session:
            assert session.end_waiting(
                job, status, exit_code=143, reason="why not", now=LATER, cause="cancel", actor="me"
            )
        assert [(event.kind, event.actor, event.cause) for event in desk.events] == [
            (f"job.{status.lower()}", "me", "cancel")
        ]
        found = desk.reader.job(job)
        assert found is not None
        assert (found.status, found.exit_code, found.reason, found.finished_at, found.run, found.wait_kind) == (
            status,
            143,
            "why not",
            LATER,
            None,
            None,
        )
    assert desk.ready() == []


def test_the_event_of_a_cancelled_waiting_job_says_what_it_was(desk: Desk) -> None:
    """As every other change of status does."""
    job = desk.add(locks=["k"])
    with desk.writing() as session:
        session.end_waiting(job, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)
    assert desk.events[0].data.get("from") == "QUEUED"


def test_a_started_job_is_not_ended_as_a_waiting_one(desk: Desk) -> None:
    job = desk.add()
    desk.claim()
    with desk.writing() as session:
        assert not session.end_waiting(
            job, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None
        )
    assert desk.status(job) is Status.DISPATCHED


def test_a_stop_is_asked_for_once_and_only_of_what_runs(desk: Desk) -> None:
    job, waiting = desk.add(), desk.add()
    desk.claim(**{"global": 1})
    with desk.writing() as session:
        assert session.request_stop(job, "cancelled by me", NOW, "me")
        assert not session.request_stop(job, "cancelled by you", NOW, "you")
        assert not session.request_stop(waiting, "cancelled by me", NOW, "me")
    assert [(event.kind, event.job) for event in desk.events] == [("job.stop_requested", job)]
    assert desk.run_of(job).stop_requested == "cancelled by me"


def test_open_runs_are_found_by_run_by_job_and_all_at_once(desk: Desk) -> None:
    one, two = desk.add(), desk.add()
    desk.claim()
    desk.confirm(two)
    runs = desk.session.open_runs()
    assert [(run.job, run.chain, run.status) for run in runs] == [
        (one, one, Status.DISPATCHED),
        (two, two, Status.RUNNING),
    ]
    assert [desk.session.open_run(run.run) for run in runs] == runs
    assert desk.session.open_run(RunId(99)) is None
    assert desk.session.open_run_of(JobId(99)) is None


def test_a_lost_environment_is_named(desk: Desk) -> None:
    """And is not trouble with the store: it is one job's, and must not stop the others."""
    with pytest.raises(LookupError, match=r"environment \(77\) is gone from the store"):
        desk.session.variables(77)


def test_no_claims_write_nothing(desk: Desk) -> None:
    desk.add()
    with desk.writing() as session:
        assert session.claim([], "local", NOW, "tick") == []
    assert desk.events == []


def test_a_lane_shows_as_many_heads_as_could_start_and_says_if_there_are_more(desk: Desk) -> None:
    with desk.writing() as session:
        jobs = [add_job(session) for _ in range(100)]
    (few,) = desk.session.snapshot(Limits({"global": 3}), None, holds=NOTHING_HELD).lanes
    assert [head.job for head in few.heads] == jobs[:4]
    assert few.has_more
    (many,) = desk.session.snapshot(Limits({}), None, holds=NOTHING_HELD).lanes
    assert [head.job for head in many.heads] == jobs[:64]
    assert desk.session.snapshot(Limits({"global": 0}), None, holds=NOTHING_HELD).lanes == ()
