"""One transaction: whole or not at all, savepoints that undo rows and events, events that tell what was stored."""

from __future__ import annotations

import pytest

from harness import Raw
from rota.core.after import AfterPolicy
from rota.core.event import Event
from rota.store.port import Store
from rota.store.session import Session
from store.desk import NOW, Desk, add_job, claim_all


class Refused(Exception):
    """What a request raises that is to leave no trace."""


def act_and_refuse(session: Session) -> None:
    add_job(session, draws={"global": 5}, locks=["k"])
    claim_all(session)
    session.set_meta("k", "v")
    raise Refused


def add_and_refuse(session: Session) -> None:
    add_job(session)
    raise Refused


def nest_and_refuse(session: Session) -> None:
    with session.savepoint():
        add_job(session)
    raise Refused


def stored_events(desk: Desk, since: int) -> list[Event]:
    return [event for _seq, event in desk.reader.events_since(since, 10_000)]


def test_commit_returns_exactly_the_events_it_stored(desk: Desk) -> None:
    desk.add()
    seq = desk.reader.events_since(0, 100)[-1][0]
    with desk.writing() as session:
        add_job(session, locks=["k"])
        claim_all(session)
        session.emit(Event(kind="scheduler.recovered", at=7, cause="recovery", data={"requeued": 2, "text": "ä\n"}))
    assert stored_events(desk, seq) == desk.events
    assert [event.kind for event in desk.events] == ["job.submitted", "job.dispatched", "scheduler.recovered"]


def test_a_commit_without_events_returns_none_and_the_next_starts_afresh(desk: Desk) -> None:
    desk.add()
    with desk.writing() as session:
        session.set_meta("k", "v")
    assert desk.events == []
    desk.add()
    assert len(desk.events) == 1


def test_nothing_of_a_rolled_back_transaction_is_left(desk: Desk) -> None:
    desk.add()
    before = desk.reader.events_since(0, 100)
    with pytest.raises(Refused), desk.writing() as session:
        act_and_refuse(session)
    assert desk.reader.events_since(0, 100) == before
    assert desk.reader.meta("k") is None
    assert desk.raw("SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM run), (SELECT count(*) FROM lock)") == [
        (1, 0, 0)
    ]
    desk.add()
    assert len(desk.events) == 1  # those of the rolled back one are not told later


def test_a_savepoint_undoes_the_rows_and_the_events_of_one_request_only(desk: Desk) -> None:
    with desk.writing() as session:
        with session.savepoint():
            kept = add_job(session)
        with pytest.raises(Refused), session.savepoint():
            act_and_refuse(session)
        with session.savepoint():
            also = add_job(session)
    assert [job for (job,) in desk.raw("SELECT id FROM job ORDER BY id")] == [kept, also]
    assert [event.job for event in desk.events] == [kept, also]
    assert desk.raw("SELECT count(*) FROM event") == [(2,)]
    assert desk.raw("SELECT count(*) FROM lock") == [(0,)]


def test_what_is_put_off_is_there_for_whoever_asks(desk: Desk) -> None:
    with desk.writing() as session:
        first = add_job(session)
        second = add_job(session, after=[(first, AfterPolicy.SUCCESS)])
        assert [job.id for job in session.jobs([first, second])] == [first, second]
        with pytest.raises(Refused), session.savepoint():
            add_and_refuse(session)
        third = add_job(session)
        assert third == second + 1, "the number of the one that was undone, whose row is not in the way"
        with session.savepoint():
            fourth = add_job(session)
    assert [job.id for job in desk.reader.jobs([first, second, third, fourth])] == [first, second, third, fourth]


def test_an_inner_savepoint_goes_with_its_outer_one(desk: Desk) -> None:
    with desk.writing() as session:
        with pytest.raises(Refused), session.savepoint():
            nest_and_refuse(session)
        with session.savepoint():
            with pytest.raises(Refused), session.savepoint():
                act_and_refuse(session)
            add_job(session)
    assert len(desk.events) == 1
    assert desk.raw("SELECT count(*) FROM job") == [(1,)]


def test_a_reader_sees_a_transaction_only_once_it_is_committed(desk: Desk) -> None:
    desk.session.begin()
    job = add_job(desk.session)
    assert desk.reader.job(job) is None
    assert desk.reader.events_since(0, 10) == []
    desk.session.commit()
    assert desk.reader.job(job) is not None
    assert len(desk.reader.events_since(0, 10)) == 1


def test_what_is_read_inside_reading_is_of_one_moment(desk: Desk) -> None:
    desk.add()
    with desk.reader.reading():
        assert len(desk.reader.list_jobs(desk.reader.counts(), limit=10)) == 1
        desk.add()
        assert sum(desk.reader.counts().values()) == 1
    assert sum(desk.reader.counts().values()) == 2


def test_what_was_committed_is_there_for_the_next_session(store: Store, raw: Raw) -> None:
    desk = Desk(store, raw)
    job = desk.add()
    desk.close()
    again = Desk(store, raw)
    assert again.reader.job(job) is not None
    again.close()


def test_meta_is_set_again_and_the_epoch_grows_with_every_opening(store: Store, desk: Desk) -> None:
    assert desk.reader.meta("k") is None
    for value in ("1", "2"):
        with desk.writing() as session:
            session.set_meta("k", value)
        assert desk.reader.meta("k") == value
    epochs = []
    desk.close()
    for _ in range(3):
        session = store.session()
        session.begin()
        epochs.append(session.raise_epoch())
        session.commit()
        session.close()
    assert epochs == [1, 2, 3]


def test_events_are_numbered_upwards_and_paged(desk: Desk) -> None:
    jobs = [desk.add() for _ in range(5)]
    first = desk.reader.events_since(0, 2)
    rest = desk.reader.events_since(first[-1][0], 100)
    assert [event.job for _seq, event in first + rest] == jobs
    assert [row[0] for row in first + rest] == sorted({row[0] for row in first + rest})
    assert desk.reader.events_since(rest[-1][0], 100) == []
    assert [event.job for _seq, event in desk.reader.events_of(jobs[2])] == [jobs[2]]


def test_every_event_says_when_why_and_who(desk: Desk) -> None:
    job = desk.add()
    ((_seq, event),) = desk.reader.events_of(job)
    at = int(NOW.timestamp() * 1_000_000)
    assert event == Event(kind="job.submitted", at=at, cause="submit", actor="tester", job=job)


def test_a_session_is_a_reader_too(desk: Desk) -> None:
    job = desk.add()
    assert isinstance(desk.session, Session)
    assert desk.session.job(job) == desk.reader.job(job)
