"""Submits, ids, environments and idempotency keys."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from rota.ids import JobId
from rota.kernel.edges import DependencyPolicy, EdgeState
from rota.kernel.job import Spec
from rota.kernel.locks import Lock, LockMode
from rota.kernel.status import Status
from tests.db.harness import NOW, StoreHarness, add_job


def test_stored_job_is_read_back_unchanged(harness: StoreHarness) -> None:
    predecessor = harness.add()
    with harness.transaction() as session:
        spec = Spec(
            command=("sh", "-c", "echo 'ä\n€' \"$1\""),
            cwd="/tmp/ä",
            environment=session.jobs.environment_id({"A": "1"}),
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
        demand = {"global": 1, "resource/gpu": 2}
        not_before = NOW + timedelta(seconds=5, microseconds=7)
        job = add_job(
            session,
            after=[(predecessor, DependencyPolicy.FINISHED)],
            spec=spec,
            demand=demand,
            priority=-7,
            not_before=not_before,
            locks=("a", "b:shared"),
        )
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert record.spec == spec
    assert (record.id, record.chain, record.retry_of, record.attempt) == (job, job, None, 1)
    assert (record.status, record.priority, record.position) == (Status.QUEUED, -7, job * 100)
    assert (record.created_at, record.queued_at, record.not_before) == (NOW, NOW, not_before)
    assert (record.started_at, record.finished_at, record.exit_code, record.reason, record.run) == (None,) * 5
    assert record.demand == demand
    assert [(edge.predecessor, edge.chain, edge.policy) for edge in record.after] == [
        (predecessor, predecessor, DependencyPolicy.FINISHED)
    ]


def test_only_unblocked_job_enters_its_lane_at_submit(harness: StoreHarness) -> None:
    unblocked = harness.add()
    dependent = harness.add(after=[(unblocked, DependencyPolicy.SUCCESS)])
    locked = harness.add(locks=["k"])
    delayed = harness.add(not_before=NOW + timedelta(seconds=1))
    assert harness.ready_jobs() == [unblocked]
    assert harness.dirty_jobs() == [dependent, locked, delayed]


def test_jobs_with_the_same_demand_share_a_lane(harness: StoreHarness) -> None:
    for demand in ({"global": 1}, {"global": 1, "flow/a": 1}, {"global": 1}, {"global": 2}):
        harness.add(demand=demand)
    assert sorted((ready, demand["global"]) for demand, ready in harness.reader.lanes.depths()) == [
        (1, 1),
        (1, 2),
        (2, 1),
    ]


def test_batch_updates_every_lane(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        for n in range(10):
            add_job(session, demand={"global": 1 + n % 2})
    assert sorted(ready for _, ready in harness.reader.lanes.depths()) == [5, 5]


def test_equal_environments_share_one_row(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        first = session.jobs.environment_id({"A": "1", "B": "2"})
        same = session.jobs.environment_id({"B": "2", "A": "1"})
        other = session.jobs.environment_id({"A": "1"})
    assert first == same != other
    assert harness.session.jobs.environment_variables(first) == {"A": "1", "B": "2"}
    assert harness.run_sql("SELECT count(*) FROM environment") == [(2,)]


def test_chain_states_skip_missing_jobs(harness: StoreHarness) -> None:
    dispatched, queued = harness.add(), harness.add()
    harness.claim(**{"global": 1})
    states = harness.session.chains.states([dispatched, queued, JobId(99)])
    assert {job: (state.chain, state.last, state.status) for job, state in states.items()} == {
        dispatched: (dispatched, dispatched, Status.DISPATCHED),
        queued: (queued, queued, Status.QUEUED),
    }


def test_edge_to_ended_chain_is_resolved_at_submit(harness: StoreHarness) -> None:
    ended = harness.add()
    harness.claim()
    harness.finish(ended)
    met = harness.add(after=[(ended, DependencyPolicy.SUCCESS)])
    unmeetable = harness.add(after=[(ended, DependencyPolicy.FAILED)])
    assert harness.ready_jobs() == [met]
    assert harness.run_sql("SELECT job, state FROM edge ORDER BY job") == [
        (met, EdgeState.MET.value),
        (unmeetable, EdgeState.UNMEETABLE.value),
    ]


def test_response_is_stored_once_per_key(harness: StoreHarness) -> None:
    assert harness.session.responses.find("k") is None
    with harness.transaction() as session:
        session.responses.add("k", "digest", 201, '{"job": 1}', NOW)
    assert harness.session.responses.find("k") == ("digest", 201, '{"job": 1}')
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"), harness.transaction() as session:
        session.responses.add("k", "other", 201, "{}", NOW)
    assert harness.session.responses.find("k") == ("digest", 201, '{"job": 1}')


def test_ids_are_allocated_in_ascending_blocks(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        assert session.ids.allocate_jobs(3) == [1, 2, 3]
        assert session.ids.allocate_jobs(1) == [4]
    assert [harness.add(), harness.add()] == [1, 2], "the ids were not committed"


def test_committed_id_is_never_reused(harness: StoreHarness) -> None:
    """An id that was rolled back can be reused, because no client has seen it. A committed id cannot, even after its
    row is deleted."""
    first = harness.add()
    harness.claim()
    old_run = harness.run_of(first)
    with harness.transaction() as session:
        session.runs.requeue(old_run, dispatch_failures=1, error="no", not_before=None, now=NOW, cause="executor")
    harness.evaluate()
    harness.claim()
    assert harness.run_of(first).run > old_run.run

    second = harness.add()
    with harness.transaction() as session:
        session.ids.retire("job", second)
        session.ids.retire("job", first)  # a lower id changes nothing
    harness.run_sql(f"DELETE FROM event WHERE job = {second}")
    harness.run_sql(f"DELETE FROM job WHERE id = {second}")
    harness.run_sql(
        "UPDATE lane SET ready_count = 0, precedence = NULL, position = NULL, created_at = NULL, job = NULL"
    )
    assert harness.add() > second


def test_refused_request_leaves_other_ids_distinct(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        first = add_job(session)
        with suppress(ZeroDivisionError), session.savepoint():
            add_job(session)
            raise ZeroDivisionError
        second = add_job(session)
    assert [job for (job,) in harness.run_sql("SELECT id FROM job ORDER BY id")] == [first, second]
    assert second > first
