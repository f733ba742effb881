"""NOTIFY wakes the scheduler: it learns at once of changes by other clients and of the end of its session."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.db.postgres.address import parse_address
from rota.db.postgres.store import PostgresStore
from rota.db.session import Session
from rota.engine.loop import EngineLoop
from rota.engine.transaction import Transaction, TurnRequest
from rota.kernel.status import Status
from tests.harness import Scheduler
from tests.postgres_server import Schema

WAIT_MS = 20_000


def is_readable(session: Session) -> bool:
    poll = select.poll()
    poll.register(session.fileno(), select.POLLIN)
    return bool(poll.poll(WAIT_MS))


@pytest.fixture
def session(postgres_store: PostgresStore) -> Iterator[Session]:
    with closing(postgres_store.session()) as session:
        yield session


def notify(schema: Schema) -> None:
    schema.run_sql(f"NOTIFY {parse_address(schema.url).channel}")


def test_own_commits_are_not_notifications(session: Session) -> None:
    for n in range(3):
        session.begin()
        session.meta.set("k", str(n))
        session.commit()
    assert not session.poll_notifications()


def test_change_by_another_client_is_a_notification(session: Session, postgres_schema: Schema) -> None:
    notify(postgres_schema)
    assert is_readable(session)
    assert session.poll_notifications()
    assert not session.poll_notifications()


def test_notification_during_own_turn_is_not_lost(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    """The notification arrives with the results of the scheduler's own statements, so the socket does not become
    readable."""
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        job = scheduler.submit(delay="1h")

        def notify_meanwhile(_: Transaction) -> None:
            notify(postgres_schema)

        scheduler.engine.turn([TurnRequest(notify_meanwhile, lambda _: None)])
        postgres_schema.run_sql(f"UPDATE job SET not_before = NULL, dirty = 1 WHERE id = {job}")
        assert scheduler.engine.has_more
        scheduler.run_turns()
        assert scheduler.status(job) is Status.DISPATCHED


def test_end_of_the_session_is_a_notification(session: Session, postgres_schema: Schema) -> None:
    pid, _since = session._db._connection.backend  # type: ignore[attr-defined]
    postgres_schema.run_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
    assert is_readable(session)
    while not session.poll_notifications():  # messages of the server arrive before the end
        assert is_readable(session)
    assert session.fileno() == -1  # nothing more can arrive


def test_idle_scheduler_acts_on_change_by_another_client(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        job = scheduler.submit(delay="1h")
        started = threading.Event()
        scheduler.executor.send = lambda orders: started.set() if orders else None  # type: ignore[method-assign]
        loop = EngineLoop(scheduler.engine, scheduler.executor, scheduler.clock, lambda: None)
        is_idle = threading.Event()
        loop.start(is_idle.set)
        assert is_idle.wait(WAIT_MS / 1000)
        postgres_schema.run_sql(f"UPDATE job SET not_before = NULL, dirty = 1 WHERE id = {job}")
        notify(postgres_schema)
        assert started.wait(WAIT_MS / 1000)
        loop.stop()
        assert scheduler.status(job) is Status.DISPATCHED
