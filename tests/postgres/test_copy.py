"""A store's content in another, either way, with nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness import Scheduler
from postgres.proxy import Proxy, proxied
from postgres_server import Schema, Server
from rota.errors import Conflict, StoreAway
from rota.store.copy import copy
from rota.store.port import Store
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite.store import SqliteStore


@pytest.fixture
def proxy(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(postgres_server.root, tmp_path_factory.mktemp("p")) as proxy:
        yield proxy


def content(store: Store) -> dict[str, Any]:
    with closing(store.reader()) as reader, reader.reading():
        bulk = reader.bulk()
        tables = {
            table: sorted((row for page in bulk.scan(table, sorted(columns)) for row in page), key=repr)
            for table, columns in bulk.tables().items()
        }
        tables["meta"] = [row for row in tables["meta"] if row[0] not in ("turn", "schema_version")]
        return tables


def work_on(store: Store, home: Path) -> None:
    """Something of everything, and one that runs."""
    with closing(Scheduler(store, home, {"global": 2})) as scheduler:
        scheduler.session.begin()
        scheduler.session.raise_epoch()
        scheduler.session.commit()
        done = scheduler.submit("echo", "ä", params={"a": "\x00"}, locks=["k"])
        scheduler.start(done)
        scheduler.end(done, code=3, tail="oops")
        runs = scheduler.submit(locks=["k"], delay=None)
        scheduler.once("once", "it", lambda _: "done")
        scheduler.start(runs)
        scheduler.submit(after=[runs], locks=["k:shared"])
        scheduler.submit(delay="1h", flow="f")
        scheduler.submit(after=[done])


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite", "sqlite to sqlite"])
def stores(request: pytest.FixtureRequest, postgres_store: PostgresStore, tmp_path: Path) -> tuple[Store, Store]:
    here, there = SqliteStore(tmp_path / "here.db"), SqliteStore(tmp_path / "there.db")
    return {
        "sqlite to postgres": (here, postgres_store),
        "postgres to sqlite": (postgres_store, there),
        "sqlite to sqlite": (here, there),
    }[request.param]  # type: ignore[return-value]


def test_everything_arrives_and_the_queue_goes_on(stores: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = stores
    work_on(source, tmp_path)
    told: list[tuple[str, int, int]] = []
    copied = copy(source, target, lambda *progress: told.append(progress))
    before, after = content(source), content(target)
    assert after == before or {**before, "meta": after["meta"]} == after
    assert dict(after["meta"]).items() >= {"epoch": "1"}.items()
    assert copied["job"] == 5
    assert told[-1][1] == told[-1][2]
    assert {table for table, done, total in told if done == total} == set(copied)
    last = max(row[-1] for row in content(target)["event"] if isinstance(row[-1], int))
    with closing(Scheduler(target, tmp_path, {"global": 4})) as scheduler:
        scheduler.session.begin()
        assert scheduler.session.raise_epoch() == 2
        scheduler.session.commit()
        assert scheduler.submit() == 6  # ids go on where they were
        assert scheduler.reader.events_since(last, 1)[0][0] == last + 1
        scheduler.drain()


def test_numbers_that_were_given_once_are_not_given_again(stores: tuple[Store, Store], tmp_path: Path) -> None:
    """Also of rows that are gone."""
    source, target = stores
    with closing(source.session()) as session:
        session.begin()
        session.spend("event", 500)
        session.commit()
    copy(source, target)
    with closing(Scheduler(target, tmp_path)) as scheduler:
        scheduler.submit()
        assert scheduler.reader.events_since(0, 1)[0][0] == 501


def test_a_target_that_is_not_new_is_refused_and_left_alone(stores: tuple[Store, Store], tmp_path: Path) -> None:
    for store in stores:
        work_on(store, tmp_path)
    before = content(stores[1])
    with pytest.raises(Conflict, match="not empty"):
        copy(*stores)
    assert content(stores[1]) == before


def test_a_copy_that_fails_half_way_leaves_nothing(stores: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = stores
    work_on(source, tmp_path)

    def fail(table: str, done: int, total: int) -> None:
        if table == "run":
            raise RuntimeError("pulled out")

    with pytest.raises(RuntimeError):
        copy(source, target, fail)
    assert copy(source, target)["job"] == 5


@pytest.mark.parametrize("direction", ["to", "from"])
@pytest.mark.parametrize(("table", "has_begun"), [("job", False), ("event", False), ("run", True)])
def test_a_server_that_goes_away_half_way_is_trouble_with_the_store_and_leaves_nothing(
    proxy: Proxy, postgres_url: str, tmp_path: Path, direction: str, table: str, *, has_begun: bool
) -> None:
    """Before the first rows of a table, and behind them."""
    file, server = SqliteStore(tmp_path / "a.db"), PostgresStore(postgres_url)
    source, target = (file, server) if direction == "to" else (server, file)
    work_on(source, tmp_path)

    def lose(at: str, done: int, _total: int) -> None:
        if at == table and bool(done) == has_begun:
            proxy.cut()

    far = PostgresStore(proxy.url(postgres_url))
    with pytest.raises(StoreAway, match="is away"):
        copy(file if direction == "to" else far, far if direction == "to" else file, lose)
    assert copy(source, target)["job"] == 5


def test_a_session_that_the_server_ends_half_way_is_trouble_with_the_store(
    postgres_url: str, postgres_schema: Schema, tmp_path: Path
) -> None:
    source = SqliteStore(tmp_path / "here.db")
    work_on(source, tmp_path)
    sessions = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = current_schema()"

    def end(table: str, _done: int, _total: int) -> None:
        if table == "run":
            postgres_schema.raw(sessions)

    with pytest.raises(StoreAway, match="terminating connection"):
        copy(source, PostgresStore(postgres_url), end)
    assert copy(source, PostgresStore(postgres_url))["job"] == 5


def test_a_store_with_a_scheduler_at_work_is_not_copied(postgres_url: str, tmp_path: Path) -> None:
    store = PostgresStore(postgres_url, lock_wait=0.1)
    with closing(store.session()), pytest.raises(Conflict, match="another scheduler"):
        copy(store, SqliteStore(tmp_path / "there.db"))


def test_a_nul_that_sqlite_had_becomes_the_sign_for_it(postgres_store: PostgresStore, tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "here.db")
    with closing(source.session()) as session:
        session.begin()
        session._db.run("add_answer", key="a\x00b", digest="d", status=201, answer="{}", at=0)
        session.commit()
    copy(source, postgres_store)
    with closing(postgres_store.session()) as session:
        assert session.answer("a\ufffdb") == ("d", 201, "{}")
