"""The PostgreSQL writer: one scheduler for each store, no response before the outcome is known, and no loss from a lost
connection beyond its own turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota.db.database import SupersededError, UnknownOutcomeError
from rota.db.postgres.connection import translate_error
from rota.db.postgres.store import PostgresStore
from rota.db.session import Session
from rota.engine.transaction import TurnRequest
from rota.errors import Conflict, InvalidInput, StorageFull, StoreError, StoreUnavailable
from rota.kernel.status import Status
from tests.db.postgres.proxy import Loss, Proxy, proxied
from tests.e2e.rig import eventually
from tests.harness import Scheduler
from tests.postgres_server import Schema, Server, own_server

_WAITING_COMMITS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def proxy(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(postgres_server.root, tmp_path_factory.mktemp("p")) as proxy:
        yield proxy


def end_session(schema: Schema, session: Session) -> None:
    """Terminate the session on the server, as an administrator does."""
    pid, _since = session._db._connection.backend  # type: ignore[attr-defined]
    schema.run_sql(f"SELECT pg_terminate_backend({pid}, 5000)")


def store_meta(session: Session, value: str) -> None:
    session.begin()
    session.meta.set("k", value)
    session.commit()


def violate_constraint(session: Session) -> None:
    session.meta.set("other", "undone")
    session._db.run("add_edge", job=7, sequence=0, predecessor=1, chain=1, policy="success", state="open", implied=0)


def violate_constraint_in_bulk(session: Session) -> None:
    session.meta.set("other", "undone")
    edge = {"sequence": 0, "predecessor": 1, "chain": 1, "policy": "success", "state": "open", "implied": 0}
    session._db.run_many("add_edge", [{"job": n, **edge} for n in range(5)])


# One scheduler for each store.


def test_second_scheduler_is_refused_and_holder_is_named(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, lock_timeout=0.1)
    with closing(store.session()) as session:
        pid = session._db._connection.backend[0]  # type: ignore[attr-defined]
        with pytest.raises(Conflict, match=f"session {pid} from a local socket"):
            store.session()
        store.reader().close()  # readers are allowed
    store.session().close()


def test_killed_scheduler_does_not_block_the_next(postgres_url: str) -> None:
    program = (
        "import sys; from rota.db.postgres.store import PostgresStore\n"
        f"session = PostgresStore({postgres_url!r}).session(); session.begin(); session.meta.set('k', 'v')\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with closing(PostgresStore(postgres_url).session()) as session:
        assert session.meta.get("k") is None


def test_scheduler_with_an_old_epoch_stops(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        assert session.raise_epoch() == 1
        session.commit()
        store_meta(session, "mine")
        postgres_schema.run_sql("UPDATE meta SET value = '2' WHERE key = 'epoch'")
        with pytest.raises(SupersededError):
            session.begin()
        with pytest.raises(SupersededError):
            session.begin()
    assert postgres_schema.run_sql("SELECT value FROM meta WHERE key = 'k'") == [("mine",)]


def test_scheduler_that_lost_its_lock_stops(postgres_url: str, postgres_schema: Schema) -> None:
    store = PostgresStore(postgres_url, lock_timeout=0.1)
    with closing(store.session()) as session:
        end_session(postgres_schema, session)
        with closing(store.session()), pytest.raises(SupersededError, match="taken over"):
            session.begin()


def test_turn_locks_the_epoch_row(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            postgres_schema.run_sql("SELECT value FROM meta WHERE key = 'epoch' FOR UPDATE NOWAIT")
        session.rollback()
        postgres_schema.run_sql("SELECT value FROM meta WHERE key = 'epoch' FOR UPDATE NOWAIT")


def test_superseded_engine_fails_its_requests_and_stops(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        postgres_schema.run_sql("UPDATE meta SET value = '9' WHERE key = 'epoch'")
        responses: list[Any] = []
        with pytest.raises(SupersededError):
            scheduler.engine.turn([TurnRequest(lambda _: None, responses.append)])
        assert isinstance(responses[0], SupersededError)


# Transactions.


def test_only_commits_with_changes_notify_listeners(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        listener = postgres_schema._connection
        listener.execute(f"LISTEN rota_{postgres_schema.name}".encode())
        session.begin()
        session.commit()  # nothing changed
        store_meta(session, "a")
        session.begin()
        session.meta.set("k", "b")
        session.rollback()
        received = [notice.channel for notice in listener.notifies(timeout=0.3)]
        listener.execute("UNLISTEN *")
        assert received == [f"rota_{postgres_schema.name}"]


def test_integrity_error_undoes_only_its_savepoint(postgres_store: PostgresStore) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        with session.savepoint():
            session.meta.set("k", "kept")
        for violate in (violate_constraint, violate_constraint_in_bulk):
            with pytest.raises(psycopg.IntegrityError), session.savepoint():
                violate(session)
        with session.savepoint():
            session.meta.set("last", "kept")
        session.commit()
        assert (session.meta.get("k"), session.meta.get("other"), session.meta.get("last")) == ("kept", None, "kept")


def test_commit_of_failed_transaction_is_refused(postgres_store: PostgresStore) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        session.meta.set("k", "v")
        with pytest.raises(psycopg.IntegrityError):
            violate_constraint(session)
        with pytest.raises(StoreError):
            session.commit()
        session.rollback()
        assert session.meta.get("k") is None


def test_refused_request_undoes_only_itself(postgres_store: PostgresStore, tmp_path: Path) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        responses: list[Any] = []

        def refuse(tx: Any) -> None:
            tx.meta.set("refused", "yes")
            raise InvalidInput("no")

        def keep(key: str) -> TurnRequest[Any]:
            return TurnRequest(lambda tx: tx.meta.set(key, "yes"), responses.append)

        scheduler.engine.turn(
            [keep("a"), TurnRequest(refuse, responses.append), TurnRequest(lambda _: None, responses.append), keep("b")]
        )
        assert [type(response) for response in responses] == [type(None), InvalidInput, type(None), type(None)]
        assert [scheduler.reader.meta.get(key) for key in ("a", "refused", "b")] == ["yes", None, "yes"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DiskFull("no space left on device"), StorageFull),
        (psycopg.errors.AdminShutdown("terminating connection"), StoreUnavailable),
        (psycopg.errors.TooManyConnections("sorry"), StoreUnavailable),
        (psycopg.errors.SerializationFailure("again"), StoreError),
        (psycopg.OperationalError("server closed the connection unexpectedly\n\tThis probably"), StoreUnavailable),
        (psycopg.errors.DataCorrupted("invalid page in block 3"), StoreError),
        (psycopg.errors.UndefinedTable("there is no job"), StoreError),
        (psycopg.errors.UniqueViolation("twice"), psycopg.IntegrityError),
        (psycopg.errors.NumericValueOutOfRange("bigint out of range"), psycopg.DataError),
    ],
)
def test_server_errors_are_translated(error: psycopg.Error, kind: type[Exception]) -> None:
    translated = translate_error(error, "there")
    assert isinstance(translated, kind)
    assert isinstance(translated, StoreUnavailable) == (kind is StoreUnavailable), (
        "only a temporary failure is unavailable"
    )


# Lost connections.


def test_connection_lost_between_turns_is_reopened(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session, closing(postgres_store.reader()) as reader:
        store_meta(session, "a")
        for client in (session, reader):
            end_session(postgres_schema, client)  # type: ignore[arg-type]
        store_meta(session, "b")
        assert reader.meta.get("k") == "b"
        end_session(postgres_schema, reader)  # type: ignore[arg-type]
        with reader.read_transaction():
            assert reader.meta.get("k") == "b"


def test_connection_lost_within_a_turn_undoes_it(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        session.meta.set("k", "lost")
        end_session(postgres_schema, session)
        with pytest.raises(StoreError), session.savepoint():
            session.meta.set("k", "lost too")
        session.rollback()
        store_meta(session, "after")
        assert session.meta.get("k") == "after"


def test_reconnect_wakes_every_waiting_job(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        first = scheduler.submit()
        second = scheduler.submit(after=[first])
        scheduler.confirm_start(first)
        # A lost wake-up: the edge is met, but the waiting job was not marked dirty.
        postgres_schema.run_sql("UPDATE edge SET state = 'met'")
        postgres_schema.run_sql(f"UPDATE job SET unmet_edges = 0 WHERE id = {second}")
        scheduler.run_turns()
        assert scheduler.status(second) is Status.WAITING_ON_DEPS
        end_session(postgres_schema, scheduler.session)
        scheduler.run_turns()
        assert scheduler.status(second) is Status.QUEUED


@pytest.mark.parametrize(("loss", "is_stored"), [("response lost", True), ("not sent", False)])
def test_unknown_commit_outcome_is_looked_up(
    proxy: Proxy, postgres_url: str, postgres_schema: Schema, loss: Loss, is_stored: bool
) -> None:
    with closing(PostgresStore(proxy.url(postgres_url)).session()) as session:
        store_meta(session, "before")
        proxy.loss = loss
        if is_stored:
            store_meta(session, "after")
        else:
            with pytest.raises(StoreUnavailable, match="nothing was stored"):
                store_meta(session, "after")
            session.rollback()
        assert postgres_schema.run_sql("SELECT value FROM meta WHERE key = 'k'") == [
            ("after" if is_stored else "before",)
        ]
        store_meta(session, "next")


def test_claims_with_lost_commit_response_start_once(proxy: Proxy, postgres_url: str, tmp_path: Path) -> None:
    with closing(Scheduler(PostgresStore(proxy.url(postgres_url)), tmp_path)) as scheduler:
        proxy.loss = "response lost"
        kept = scheduler.submit()
        assert scheduler.started_jobs() == [kept]
        proxy.loss = "not sent"
        with pytest.raises(StoreError):
            scheduler.submit()
        assert scheduler.started_jobs() == [kept]
        proxy.loss = "not sent"
        scheduler.end_run(kept)
        assert scheduler.engine.store_error is not None
        assert scheduler.status(kept) is Status.DISPATCHED
        scheduler.run_turns()
        assert scheduler.status(kept) is Status.COMPLETED
        assert sum(scheduler.reader.jobs.count_by_status().values()) == 1


def test_scheduler_stops_if_commit_outcome_stays_unknown(
    proxy: Proxy, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = PostgresStore(proxy.url(postgres_url), reconnect_timeout=0.3).session()
    proxy.loss = "not sent"
    session.begin()
    session.meta.set("k", "v")
    proxy.refuse()
    with pytest.raises(UnknownOutcomeError, match="is not known"):
        session.commit()
    (warning,) = caplog.messages
    assert warning.endswith("; retrying for 300ms to learn the outcome of the last transaction")
    session.close()


def test_commit_in_progress_is_awaited(tmp_path: Path) -> None:
    """The old session waits for a standby that never responds and does not notice that its client is gone."""
    with own_server() as server, proxied(server.root, tmp_path) as proxy:
        url = server.url()
        with closing(PostgresStore(proxy.url(url)).session()) as session:
            store_meta(session, "before")
            with psycopg.connect(url.partition("&")[0], autocommit=True) as admin:
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
                admin.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
                session.begin()
                session.meta.set("k", "after")
                proxy.loss = "not awaited"
                proxy.wait = lambda: eventually(
                    lambda: admin.execute(_WAITING_COMMITS).fetchone(), description="the commit to wait"
                )
                session.commit()
                assert session.meta.get("k") == "after"
                admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
                admin.execute("SELECT pg_reload_conf()")
