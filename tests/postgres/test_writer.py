"""One scheduler to a store; no answer before the outcome is known; a lost connection loses nothing else."""

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

from e2e.rig import eventually
from harness import Scheduler
from postgres.proxy import Loss, Proxy, proxied
from postgres_server import Schema, Server, own_server
from rota.core.status import Status
from rota.engine.work import Request
from rota.errors import Conflict, InvalidInput, StorageFull, StoreAway, StoreError
from rota.store.database import OutcomeUnknown, Superseded
from rota.store.postgres.store import PostgresStore
from rota.store.postgres.trouble import meaning
from rota.store.session import Session

_UNDER_WAY = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def proxy(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(postgres_server.root, tmp_path_factory.mktemp("p")) as proxy:
        yield proxy


def end_session(schema: Schema, session: Session) -> None:
    """The server ends it, as an administrator does."""
    pid, _since = session._db._connection.backend  # type: ignore[attr-defined]
    schema.raw(f"SELECT pg_terminate_backend({pid}, 5000)")


def store_meta(session: Session, value: str) -> None:
    session.begin()
    session.set_meta("k", value)
    session.commit()


def break_it(session: Session) -> None:
    session.set_meta("other", "undone")
    session._db.run("add_edge", job=7, sequence=0, predecessor=1, chain=1, policy="success", state="open", implied=0)


def break_it_among_many(session: Session) -> None:
    session.set_meta("other", "undone")
    edge = {"sequence": 0, "predecessor": 1, "chain": 1, "policy": "success", "state": "open", "implied": 0}
    session._db.run_many("add_edge", [{"job": n, **edge} for n in range(5)])


# One scheduler to a store.


def test_a_second_scheduler_is_refused_and_told_who_has_it(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, lock_wait=0.1)
    with closing(store.session()) as session:
        pid = session._db._connection.backend[0]  # type: ignore[attr-defined]
        with pytest.raises(Conflict, match=f"session {pid} from its own machine"):
            store.session()
        store.reader().close()  # those who look are welcome
    store.session().close()


def test_a_dead_holder_never_wedges_the_next(postgres_url: str) -> None:
    program = (
        "import sys; from rota.store.postgres.store import PostgresStore\n"
        f"session = PostgresStore({postgres_url!r}).session(); session.begin(); session.set_meta('k', 'v')\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with closing(PostgresStore(postgres_url).session()) as session:
        assert session.meta("k") is None


def test_one_whose_epoch_is_over_stops(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        assert session.raise_epoch() == 1
        session.commit()
        store_meta(session, "mine")
        postgres_schema.raw("UPDATE meta SET value = '2' WHERE key = 'epoch'")
        with pytest.raises(Superseded):
            session.begin()
        with pytest.raises(Superseded):
            session.begin()
    assert postgres_schema.raw("SELECT value FROM meta WHERE key = 'k'") == [("mine",)]


def test_one_that_lost_its_place_while_it_was_away_stops(postgres_url: str, postgres_schema: Schema) -> None:
    store = PostgresStore(postgres_url, lock_wait=0.1)
    with closing(store.session()) as session:
        end_session(postgres_schema, session)
        with closing(store.session()), pytest.raises(Superseded, match="took"):
            session.begin()


def test_the_epochs_row_is_locked_for_the_length_of_a_turn(
    postgres_store: PostgresStore, postgres_schema: Schema
) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            postgres_schema.raw("SELECT value FROM meta WHERE key = 'epoch' FOR UPDATE NOWAIT")
        session.rollback()
        postgres_schema.raw("SELECT value FROM meta WHERE key = 'epoch' FOR UPDATE NOWAIT")


def test_an_engine_that_cannot_go_on_tells_everybody_and_ends(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        postgres_schema.raw("UPDATE meta SET value = '9' WHERE key = 'epoch'")
        answers: list[Any] = []
        with pytest.raises(Superseded):
            scheduler.engine.turn([Request(lambda _: None, answers.append)])
        assert isinstance(answers[0], Superseded)


# Transactions.


def test_a_commit_is_told_to_those_who_listen(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        listener = postgres_schema._connection
        listener.execute(f"LISTEN rota_{postgres_schema.name}".encode())
        session.begin()
        session.commit()  # nothing happened
        store_meta(session, "a")
        session.begin()
        session.set_meta("k", "b")
        session.rollback()
        heard = [notice.channel for notice in listener.notifies(timeout=0.3)]
        listener.execute("UNLISTEN *")
        assert heard == [f"rota_{postgres_schema.name}"]


def test_a_broken_invariant_is_a_defect_of_its_caller_and_undoes_only_itself(postgres_store: PostgresStore) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        with session.savepoint():
            session.set_meta("k", "kept")
        for act in (break_it, break_it_among_many):
            with pytest.raises(psycopg.IntegrityError), session.savepoint():
                act(session)
        with session.savepoint():
            session.set_meta("last", "kept")
        session.commit()
        assert (session.meta("k"), session.meta("other"), session.meta("last")) == ("kept", None, "kept")


def test_a_transaction_in_which_something_failed_is_not_taken_for_stored(postgres_store: PostgresStore) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        session.set_meta("k", "v")
        with pytest.raises(psycopg.IntegrityError):
            break_it(session)
        with pytest.raises(StoreError):
            session.commit()
        session.rollback()
        assert session.meta("k") is None


def test_a_refusal_undoes_and_answers_only_itself(postgres_store: PostgresStore, tmp_path: Path) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        answers: list[Any] = []

        def refuse(work: Any) -> None:
            work.session.set_meta("refused", "yes")
            raise InvalidInput("no")

        def keep(key: str) -> Request[Any]:
            return Request(lambda work: work.session.set_meta(key, "yes"), answers.append)

        scheduler.engine.turn(
            [keep("a"), Request(refuse, answers.append), Request(lambda _: None, answers.append), keep("b")]
        )
        assert [type(answer) for answer in answers] == [type(None), InvalidInput, type(None), type(None)]
        assert [scheduler.reader.meta(key) for key in ("a", "refused", "b")] == ["yes", None, "yes"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DiskFull("no space left on device"), StorageFull),
        (psycopg.errors.AdminShutdown("terminating connection"), StoreAway),
        (psycopg.errors.TooManyConnections("sorry"), StoreAway),
        (psycopg.errors.SerializationFailure("again"), StoreError),
        (psycopg.OperationalError("server closed the connection unexpectedly\n\tThis probably"), StoreAway),
        (psycopg.errors.DataCorrupted("invalid page in block 3"), StoreError),
        (psycopg.errors.UndefinedTable("there is no job"), StoreError),
        (psycopg.errors.UniqueViolation("twice"), psycopg.IntegrityError),
        (psycopg.errors.NumericValueOutOfRange("bigint out of range"), psycopg.DataError),
    ],
)
def test_what_the_servers_errors_mean(error: psycopg.Error, kind: type[Exception]) -> None:
    found = meaning(error, "there")
    assert isinstance(found, kind)
    assert isinstance(found, StoreAway) == (kind is StoreAway), "what does not come back by itself is not away"


# The connection is lost.


def test_a_connection_lost_between_turns_is_not_noticed(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session, closing(postgres_store.reader()) as reader:
        store_meta(session, "a")
        for one in (session, reader):
            end_session(postgres_schema, one)  # type: ignore[arg-type]
        store_meta(session, "b")
        assert reader.meta("k") == "b"
        end_session(postgres_schema, reader)  # type: ignore[arg-type]
        with reader.reading():
            assert reader.meta("k") == "b"


def test_a_connection_lost_within_a_turn_undoes_it(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    with closing(postgres_store.session()) as session:
        session.begin()
        session.set_meta("k", "lost")
        end_session(postgres_schema, session)
        with pytest.raises(StoreError), session.savepoint():
            session.set_meta("k", "lost too")
        session.rollback()
        store_meta(session, "after")
        assert session.meta("k") == "after"


def test_after_a_reconnect_every_waiting_job_is_looked_at_again(
    postgres_store: PostgresStore, postgres_schema: Schema, tmp_path: Path
) -> None:
    with closing(Scheduler(postgres_store, tmp_path)) as scheduler:
        first = scheduler.submit()
        second = scheduler.submit(after=[first])
        scheduler.start(first)
        # A wake-up gets lost: the edge is met, and nobody marked the job that waits for it.
        postgres_schema.raw("UPDATE edge SET state = 'met'")
        postgres_schema.raw(f"UPDATE job SET unmet = 0 WHERE id = {second}")
        scheduler.turn()
        assert scheduler.status(second) is Status.WAITING_ON_DEPS
        end_session(postgres_schema, scheduler.session)
        scheduler.turn()
        assert scheduler.status(second) is Status.QUEUED


@pytest.mark.parametrize(("loss", "is_stored"), [("answer lost", True), ("not sent", False)])
def test_the_unknown_outcome_of_a_commit_is_looked_up(
    proxy: Proxy, postgres_url: str, postgres_schema: Schema, loss: Loss, is_stored: bool
) -> None:
    with closing(PostgresStore(proxy.url(postgres_url)).session()) as session:
        store_meta(session, "before")
        proxy.loss = loss
        if is_stored:
            store_meta(session, "after")
        else:
            with pytest.raises(StoreAway, match="nothing was stored"):
                store_meta(session, "after")
            session.rollback()
        assert postgres_schema.raw("SELECT value FROM meta WHERE key = 'k'") == [("after" if is_stored else "before",)]
        store_meta(session, "next")


def test_claims_of_a_turn_whose_answer_was_lost_are_started_once(
    proxy: Proxy, postgres_url: str, tmp_path: Path
) -> None:
    with closing(Scheduler(PostgresStore(proxy.url(postgres_url)), tmp_path)) as scheduler:
        proxy.loss = "answer lost"
        kept = scheduler.submit()
        assert scheduler.started() == [kept]
        proxy.loss = "not sent"
        with pytest.raises(StoreError):
            scheduler.submit()
        assert scheduler.started() == [kept]
        proxy.loss = "not sent"
        scheduler.end(kept)
        assert scheduler.engine.trouble is not None
        assert scheduler.status(kept) is Status.DISPATCHED
        scheduler.turn()
        assert scheduler.status(kept) is Status.COMPLETED
        assert sum(scheduler.reader.counts().values()) == 1


def test_where_the_server_stays_away_the_scheduler_stops_without_an_answer(
    proxy: Proxy, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = PostgresStore(proxy.url(postgres_url), patience=0.3).session()
    proxy.loss = "not sent"
    session.begin()
    session.set_meta("k", "v")
    proxy.refuse()
    with pytest.raises(OutcomeUnknown, match="is not known"):
        session.commit()
    (said,) = caplog.messages
    assert said.endswith("; whether what was sent last is stored is asked for 300ms")
    session.close()


def test_a_commit_still_under_way_is_waited_for(tmp_path: Path) -> None:
    """The old session waits for a standby that never comes, unaware that nobody listens any more."""
    with own_server() as server, proxied(server.root, tmp_path) as proxy:
        url = server.url()
        with closing(PostgresStore(proxy.url(url)).session()) as session:
            store_meta(session, "before")
            with psycopg.connect(url.partition("&")[0], autocommit=True) as admin:
                admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                admin.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
                session.begin()
                session.set_meta("k", "after")
                proxy.loss = "not awaited"
                proxy.wait = lambda: eventually(lambda: admin.execute(_UNDER_WAY).fetchone(), what="its wait")
                session.commit()
                assert session.meta("k") == "after"
                admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
                admin.execute("SELECT pg_reload_conf()")
