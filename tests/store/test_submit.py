"""Submit, ids, environments, idempotency: what is stored, and what is never used twice."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from rota.core.after import AfterPolicy, EdgeState
from rota.core.job import Spec
from rota.core.lock import Lock, LockMode
from rota.core.status import Status
from rota.ids import JobId
from store.desk import NOW, Desk, add_job


def test_a_job_is_read_back_as_it_was_stored(desk: Desk) -> None:
    before = desk.add()
    with desk.writing() as session:
        spec = Spec(
            command=("sh", "-c", "echo 'ä\n€' \"$1\""),
            cwd="/tmp/ä",
            surroundings=session.surroundings({"A": "1"}),
            name="a name",
            type="story",
            params={"n": 1, "deep": {"list": [1, None, "x"]}},
            flow="implement",
            target="web",
            pools={"resource/gpu": 2},
            locks=(Lock(key="a"), Lock(key="b", mode=LockMode.SHARED)),
            timeout=timedelta(minutes=2, microseconds=1),
            idle_timeout=timedelta(seconds=3),
            skip_if="test -e done",
        )
        draws = {"global": 1, "resource/gpu": 2}
        not_before = NOW + timedelta(seconds=5, microseconds=7)
        job = add_job(
            session,
            after=[(before, AfterPolicy.FINISHED)],
            spec=spec,
            draws=draws,
            priority=-7,
            not_before=not_before,
            locks=("a", "b:shared"),
        )
    found = desk.reader.job(job)
    assert found is not None
    assert found.spec == spec
    assert (found.id, found.chain, found.retry_of, found.attempt) == (job, job, None, 1)
    assert (found.status, found.priority, found.position) == (Status.QUEUED, -7, job * 100)
    assert (found.created_at, found.queued_at, found.not_before) == (NOW, NOW, not_before)
    assert (found.started_at, found.finished_at, found.exit_code, found.reason, found.run) == (None,) * 5
    assert found.draws == draws
    assert [(edge.predecessor, edge.chain, edge.policy) for edge in found.after] == [
        (before, before, AfterPolicy.FINISHED)
    ]


def test_only_a_job_that_no_gate_asks_anything_of_goes_straight_to_its_lane(desk: Desk) -> None:
    free = desk.add()
    edge = desk.add(after=[(free, AfterPolicy.SUCCESS)])
    lock = desk.add(locks=["k"])
    late = desk.add(not_before=NOW + timedelta(seconds=1))
    assert desk.ready() == [free]
    assert desk.stirred() == [edge, lock, late]


def test_jobs_with_the_same_draws_stand_in_one_lane(desk: Desk) -> None:
    for draws in ({"global": 1}, {"global": 1, "flow/a": 1}, {"global": 1}, {"global": 2}):
        desk.add(draws=draws)
    assert sorted((ready, draws["global"]) for draws, ready in desk.reader.lanes()) == [(1, 1), (1, 2), (2, 1)]


def test_one_batch_counts_each_lane_once(desk: Desk) -> None:
    with desk.writing() as session:
        for n in range(10):
            add_job(session, draws={"global": 1 + n % 2})
    assert sorted(ready for _, ready in desk.reader.lanes()) == [5, 5]


def test_an_environment_is_stored_once_for_each_content(desk: Desk) -> None:
    with desk.writing() as session:
        one = session.surroundings({"A": "1", "B": "2"})
        same = session.surroundings({"B": "2", "A": "1"})
        other = session.surroundings({"A": "1"})
    assert one == same != other
    assert desk.session.variables(one) == {"A": "1", "B": "2"}
    assert desk.raw("SELECT count(*) FROM surroundings") == [(2,)]


def test_chains_know_what_each_has_come_to_and_leave_out_what_is_not_there(desk: Desk) -> None:
    one, two = desk.add(), desk.add()
    desk.claim(**{"global": 1})
    found = desk.session.chains([one, two, JobId(99)])
    assert {job: (state.chain, state.last, state.status) for job, state in found.items()} == {
        one: (one, one, Status.DISPATCHED),
        two: (two, two, Status.QUEUED),
    }


def test_an_edge_to_what_has_ended_is_decided_when_it_is_stored(desk: Desk) -> None:
    done = desk.add()
    desk.claim()
    desk.finish(done)
    good = desk.add(after=[(done, AfterPolicy.SUCCESS)])
    bad = desk.add(after=[(done, AfterPolicy.FAILED)])
    assert desk.ready() == [good]
    assert desk.raw("SELECT job, state FROM edge ORDER BY job") == [
        (good, EdgeState.MET.value),
        (bad, EdgeState.UNMEETABLE.value),
    ]


def test_an_answer_is_remembered_under_its_key_once(desk: Desk) -> None:
    assert desk.session.answer("k") is None
    with desk.writing() as session:
        session.remember_answer("k", "digest", 201, '{"job": 1}', NOW)
    assert desk.session.answer("k") == ("digest", 201, '{"job": 1}')
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"), desk.writing() as session:
        session.remember_answer("k", "other", 201, "{}", NOW)
    assert desk.session.answer("k") == ("digest", 201, '{"job": 1}')


def test_ids_come_in_blocks_that_only_grow(desk: Desk) -> None:
    with desk.writing() as session:
        assert session.next_job_ids(3) == [1, 2, 3]
        assert session.next_job_ids(1) == [4]
    assert [desk.add(), desk.add()] == [1, 2], "nobody has seen those"


def test_an_id_that_anybody_may_have_seen_is_never_used_again(desk: Desk) -> None:
    """What was rolled back nobody saw; what was committed and then deleted somebody did."""
    first = desk.add()
    desk.claim()
    forgotten = desk.run_of(first)
    with desk.writing() as session:
        session.requeue(forgotten, failures=1, error="no", not_before=None, now=NOW, cause="executor")
    desk.look()
    desk.claim()
    assert desk.run_of(first).run > forgotten.run

    second = desk.add()
    with desk.writing() as session:
        session.spend("job", second)
        session.spend("job", first)  # the lower one changes nothing
    desk.raw(f"DELETE FROM event WHERE job = {second}")
    desk.raw(f"DELETE FROM job WHERE id = {second}")
    desk.raw("UPDATE lane SET ready = 0, precedence = NULL, position = NULL, created_at = NULL, job = NULL")
    assert desk.add() > second


def test_ids_taken_by_a_refused_request_leave_those_of_its_neighbours_distinct(desk: Desk) -> None:
    with desk.writing() as session:
        one = add_job(session)
        with suppress(ZeroDivisionError), session.savepoint():
            add_job(session)
            raise ZeroDivisionError
        two = add_job(session)
    assert [job for (job,) in desk.raw("SELECT id FROM job ORDER BY id")] == [one, two]
    assert two > one
