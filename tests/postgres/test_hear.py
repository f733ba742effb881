"""NOTIFY wakes the scheduler: a change that somebody else made, and a session that is over, are heard of at once."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness import Scheduler
from postgres_server import Schema
from rota.core.status import Status
from rota.engine.loop import Loop
from rota.engine.work import Request, Work
from rota.store.postgres.address import parse
from rota.store.postgres.store import PostgresStore
from rota.store.session import Session

WAIT = 20_000


def says_something(session: Session) -> bool:
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    return bool(poll.poll(WAIT))


@pytest.fixture
def session(postgres_store: PostgresStore) -> Iterator[Session]:
    with closing(postgres_store.session()) as session:
        yield session


def notify(schema: Schema) -> None:
    schema.raw(f"NOTIFY {parse(schema.url).channel}")


def test_its_own_commits_are_no_news(session: Session) -> None:
    for n in range(3):
        session.begin()
        session.set_meta("k", str(n))
        session.commit()
    assert not session.hear()


def test_somebody_elses_change_is(session: Session, postgres_schema: Schema) -> None:
    notify(postgres_schema)
    assert says_something(session)
    assert session.hear()
    assert not session.hear()


def test_so_is_one_that_came_while_it_was_busy_itself(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    """It comes in with the answers to its own statements, and nothing on the socket tells of it afterwards."""
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        job = scheduler.submit(delay="1h")

        def meanwhile(_: Work) -> None:
            notify(postgres_schema)

        scheduler.engine.turn([Request(meanwhile, lambda _: None)])
        postgres_schema.raw(f"UPDATE job SET not_before = NULL, stirred = 1 WHERE id = {job}")
        assert scheduler.engine.has_more
        scheduler.turn()
        assert scheduler.status(job) is Status.DISPATCHED


def test_so_is_the_end_of_the_session(session: Session, postgres_schema: Schema) -> None:
    pid, _since = session._db._connection.backend  # type: ignore[attr-defined]
    postgres_schema.raw(f"SELECT pg_terminate_backend({pid}, 5000)")
    assert says_something(session)
    while not session.hear():  # its last words come before the end itself
        assert says_something(session)
    assert session.fileno() == -1  # nothing more comes from there


def test_a_scheduler_at_rest_acts_on_what_somebody_else_wrote(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        job = scheduler.submit(delay="1h")
        begun = threading.Event()
        scheduler.executor.send = lambda orders: begun.set() if orders else None  # type: ignore[method-assign]
        loop = Loop(scheduler.engine, scheduler.executor, scheduler.clock, lambda: None)
        is_at_rest = threading.Event()
        loop.start(is_at_rest.set)
        assert is_at_rest.wait(WAIT / 1000)
        postgres_schema.raw(f"UPDATE job SET not_before = NULL, stirred = 1 WHERE id = {job}")
        notify(postgres_schema)
        assert begun.wait(WAIT / 1000)
        loop.stop()
        assert scheduler.status(job) is Status.DISPATCHED
