"""Transactions: atomic, with savepoints that undo rows and events, and events that match what was stored."""

from __future__ import annotations

import pytest

from rota.db.session import Session
from rota.db.store import Store
from rota.kernel.edges import DependencyPolicy
from rota.kernel.events import Event
from tests.db.harness import NOW, StoreHarness, add_job, claim_all
from tests.harness import SqlRunner


class RequestRefused(Exception):
    """Error of a request that must leave no trace."""


def claim_and_fail(session: Session) -> None:
    add_job(session, demand={"global": 5}, locks=["k"])
    claim_all(session)
    session.meta.set("k", "v")
    raise RequestRefused


def add_and_fail(session: Session) -> None:
    add_job(session)
    raise RequestRefused


def nest_and_fail(session: Session) -> None:
    with session.savepoint():
        add_job(session)
    raise RequestRefused


def stored_events(harness: StoreHarness, since: int) -> list[Event]:
    return [event for _seq, event in harness.reader.events.since(since, 10_000)]


def test_commit_returns_exactly_the_events_it_stored(harness: StoreHarness) -> None:
    harness.add()
    seq = harness.reader.events.since(0, 100)[-1][0]
    with harness.transaction() as session:
        add_job(session, locks=["k"])
        claim_all(session)
        session.events.emit(
            Event(kind="scheduler.recovered", at=7, cause="recovery", data={"requeued": 2, "text": "ä\n"})
        )
    assert stored_events(harness, seq) == harness.events
    assert [event.kind for event in harness.events] == ["job.submitted", "job.dispatched", "scheduler.recovered"]


def test_events_of_one_commit_do_not_leak_into_the_next(harness: StoreHarness) -> None:
    harness.add()
    with harness.transaction() as session:
        session.meta.set("k", "v")
    assert harness.events == []
    harness.add()
    assert len(harness.events) == 1


def test_rollback_leaves_nothing(harness: StoreHarness) -> None:
    harness.add()
    before = harness.reader.events.since(0, 100)
    with pytest.raises(RequestRefused), harness.transaction() as session:
        claim_and_fail(session)
    assert harness.reader.events.since(0, 100) == before
    assert harness.reader.meta.get("k") is None
    assert harness.run_sql(
        "SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM run), (SELECT count(*) FROM lock)"
    ) == [(1, 0, 0)]
    harness.add()
    assert len(harness.events) == 1  # events of the rolled back transaction are not emitted later


def test_savepoint_undoes_only_its_own_rows_and_events(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        with session.savepoint():
            first = add_job(session)
        with pytest.raises(RequestRefused), session.savepoint():
            claim_and_fail(session)
        with session.savepoint():
            second = add_job(session)
    assert [job for (job,) in harness.run_sql("SELECT id FROM job ORDER BY id")] == [first, second]
    assert [event.job for event in harness.events] == [first, second]
    assert harness.run_sql("SELECT count(*) FROM event") == [(2,)]
    assert harness.run_sql("SELECT count(*) FROM lock") == [(0,)]


def test_buffered_writes_are_visible_to_reads(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        first = add_job(session)
        second = add_job(session, after=[(first, DependencyPolicy.SUCCESS)])
        assert [job.id for job in session.jobs.find_all([first, second])] == [first, second]
        with pytest.raises(RequestRefused), session.savepoint():
            add_and_fail(session)
        third = add_job(session)
        assert third == second + 1, "the rolled back id is used again, and its buffered row is gone"
        with session.savepoint():
            fourth = add_job(session)
    assert [job.id for job in harness.reader.jobs.find_all([first, second, third, fourth])] == [
        first,
        second,
        third,
        fourth,
    ]


def test_inner_savepoint_is_undone_with_outer_one(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        with pytest.raises(RequestRefused), session.savepoint():
            nest_and_fail(session)
        with session.savepoint():
            with pytest.raises(RequestRefused), session.savepoint():
                claim_and_fail(session)
            add_job(session)
    assert len(harness.events) == 1
    assert harness.run_sql("SELECT count(*) FROM job") == [(1,)]


def test_reader_sees_only_committed_transactions(harness: StoreHarness) -> None:
    harness.session.begin()
    job = add_job(harness.session)
    assert harness.reader.jobs.find(job) is None
    assert harness.reader.events.since(0, 10) == []
    harness.session.commit()
    assert harness.reader.jobs.find(job) is not None
    assert len(harness.reader.events.since(0, 10)) == 1


def test_read_transaction_sees_one_snapshot(harness: StoreHarness) -> None:
    harness.add()
    with harness.reader.read_transaction():
        assert len(harness.reader.jobs.list_ids(harness.reader.jobs.count_by_status(), limit=10)) == 1
        harness.add()
        assert sum(harness.reader.jobs.count_by_status().values()) == 1
    assert sum(harness.reader.jobs.count_by_status().values()) == 2


def test_next_session_sees_committed_data(store: Store, run_sql: SqlRunner) -> None:
    harness = StoreHarness(store, run_sql)
    job = harness.add()
    harness.close()
    reopened = StoreHarness(store, run_sql)
    assert reopened.reader.jobs.find(job) is not None
    reopened.close()


def test_meta_is_overwritten_and_epoch_grows_with_each_session(store: Store, harness: StoreHarness) -> None:
    assert harness.reader.meta.get("k") is None
    for value in ("1", "2"):
        with harness.transaction() as session:
            session.meta.set("k", value)
        assert harness.reader.meta.get("k") == value
    epochs = []
    harness.close()
    for _ in range(3):
        session = store.session()
        session.begin()
        epochs.append(session.raise_epoch())
        session.commit()
        session.close()
    assert epochs == [1, 2, 3]


def test_event_numbers_ascend_across_pages(harness: StoreHarness) -> None:
    jobs = [harness.add() for _ in range(5)]
    first = harness.reader.events.since(0, 2)
    rest = harness.reader.events.since(first[-1][0], 100)
    assert [event.job for _seq, event in first + rest] == jobs
    assert [row[0] for row in first + rest] == sorted({row[0] for row in first + rest})
    assert harness.reader.events.since(rest[-1][0], 100) == []
    assert [event.job for _seq, event in harness.reader.events.of_job(jobs[2])] == [jobs[2]]


def test_event_has_time_cause_and_actor(harness: StoreHarness) -> None:
    job = harness.add()
    ((_seq, event),) = harness.reader.events.of_job(job)
    at = int(NOW.timestamp() * 1_000_000)
    assert event == Event(kind="job.submitted", at=at, cause="submit", actor="tester", job=job)


def test_session_can_read(harness: StoreHarness) -> None:
    job = harness.add()
    assert isinstance(harness.session, Session)
    assert harness.session.jobs.find(job) == harness.reader.jobs.find(job)
