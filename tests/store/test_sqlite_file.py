"""The file: its schema, its version, its mode, what happens when it is damaged or full. SQLite only."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness import Scheduler, sqlite_raw
from rota.command.cancel import cancel
from rota.core.status import Status
from rota.engine.work import Request
from rota.errors import StorageFull, StoreAway, StoreError
from rota.executor.port import Exited
from rota.store.session import Session
from rota.store.sqlite import checkpoint, database, schema
from rota.store.sqlite.checkpoint import LARGE
from rota.store.sqlite.database import SqliteDatabase, translate
from rota.store.sqlite.store import SqliteStore
from rota.store.statement import migrations
from store.invariants import check_store


@pytest.fixture(autouse=True)
def unsynced() -> None:
    """Here a file is as everybody has it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


def connection_of(session: Session) -> sqlite3.Connection:
    database = session._db
    assert isinstance(database, SqliteDatabase)
    return database._connection


def schema_of(path: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def test_a_migrated_schema_is_the_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(tmp_path / "fresh.db").session().close()
    scripts = migrations(translate)
    for known in range(1, len(scripts) + 1):
        monkeypatch.setattr(schema, "migrations", lambda _, known=known: scripts[:known])
        SqliteStore(tmp_path / "migrated.db").session().close()
    assert schema_of(tmp_path / "migrated.db") == schema_of(tmp_path / "fresh.db")


def test_a_later_script_keeps_what_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(SqliteStore(path), path.parent)
    job = scheduler.submit()
    scheduler.close()
    scripts = [*migrations(translate), "ALTER TABLE job ADD COLUMN later TEXT;"]
    monkeypatch.setattr(schema, "migrations", lambda _: scripts)
    for _ in range(2):  # the second opening applies nothing again
        session = SqliteStore(path).session()
        assert session.job(job) is not None
        assert session.meta("schema_version") == str(len(scripts))
        session.close()


def test_a_migration_that_fails_half_way_leaves_the_old_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).session().close()
    before = schema_of(path)
    scripts = [*migrations(translate), "CREATE TABLE half (way INTEGER);\nSELECT nonsense;\n"]
    monkeypatch.setattr(schema, "migrations", lambda _: scripts)
    with pytest.raises(StoreError, match="nonsense"):
        SqliteStore(path).session()
    assert schema_of(path) == before


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    SqliteStore(path).session().close()
    sqlite_raw(path)("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=r"newer version of Rota \(schema 999, .*\); upgrade Rota, or use another home"
    ):
        SqliteStore(path).session()
    assert path.read_bytes() == before


def test_what_was_accepted_is_on_disk(path: Path) -> None:
    session = SqliteStore(path).session()
    connection = connection_of(session)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    session.close()


def test_a_reader_cannot_write(path: Path) -> None:
    store = SqliteStore(path)
    session, reader = store.session(), store.reader()
    database = reader._db
    assert isinstance(database, SqliteDatabase)
    with pytest.raises(StoreError, match="readonly"):
        database.run("set_meta", key="k", value="v")
    reader.close()
    session.close()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_file_and_its_companions_are_the_owners_only(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        session = SqliteStore(path).session()
        session.begin()
        session.set_meta("k", "v")
        session.commit()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("rota.db*")}
        session.close()
    finally:
        os.umask(before)
    assert modes == {"rota.db": 0o600, "rota.db-wal": 0o600, "rota.db-shm": 0o600}


def test_a_path_with_signs_that_mean_something_in_a_uri_works(tmp_path: Path) -> None:
    folder = tmp_path / "100% odd? #1 ä"
    folder.mkdir()
    SqliteStore(folder / "rota.db").session().close()
    assert [file.name for file in folder.iterdir()] == ["rota.db"]


def test_a_file_that_is_no_database_is_named_and_not_touched(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1000)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"rota\.db is damaged or not a Rota database .*restore it from a backup"):
        SqliteStore(path).session()
    assert path.read_bytes() == before


def test_damage_inside_the_file_is_said_by_session_and_reader(path: Path) -> None:
    store = SqliteStore(path)
    scheduler = Scheduler(store, path.parent)
    for _ in range(50):
        scheduler.submit("x" * 1000)
    scheduler.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreError, match="damaged or not a Rota database"):
        store.session()
    reader = store.reader()
    with pytest.raises(StoreError, match="damaged or not a Rota database") as damaged:
        reader.counts()
    assert not isinstance(damaged.value, StoreAway), "it does not come back by itself"
    reader.close()


def test_a_file_that_another_program_keeps_locked_is_only_away(path: Path) -> None:
    with closing(SqliteStore(path).session()) as session, closing(sqlite3.connect(path, isolation_level=None)) as other:
        connection_of(session).execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreAway, match=r"another program keeps .*rota\.db locked"):
            session.begin()
        other.execute("ROLLBACK")
        session.begin()
        session.commit()


def test_a_directory_in_the_place_of_the_file_is_an_error_with_its_name(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=r"rota\.db"):
        SqliteStore(path).session()


def test_a_missing_folder_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(tmp_path / "nowhere" / "rota.db").session()


# A full disk: `max_page_count` makes SQLite answer as it does on one.


@pytest.fixture
def tight(path: Path) -> Iterator[Scheduler]:
    """One job runs, one is queued behind it."""
    scheduler = Scheduler(SqliteStore(path), path.parent)
    scheduler.submit("first")
    scheduler.submit("second")
    yield scheduler
    scheduler.close()


def fill(scheduler: Scheduler) -> None:
    connection_of(scheduler.session).execute("PRAGMA max_page_count = 1")  # taken as: what there is, and no more


def make_room(scheduler: Scheduler) -> None:
    connection_of(scheduler.session).execute("PRAGMA max_page_count = 1000000")


def is_in_trouble(scheduler: Scheduler) -> bool:
    return isinstance(scheduler.engine.trouble, StorageFull)


BIG = "x" * 200_000
MUCH = (BIG[:100_000],) * (len(BIG) // 100_000 + 1)
"""A command of that size: no single argument can have it."""


def test_a_submit_on_a_full_disk_is_refused_and_nothing_is_stored(tight: Scheduler, path: Path) -> None:
    fill(tight)
    with pytest.raises(StorageFull, match=r"is full; nothing was stored: free some space"):
        tight.submit(*MUCH)
    assert is_in_trouble(tight)
    raw = sqlite_raw(path)
    assert raw("SELECT count(*) FROM job") == [(2,)]
    assert raw("SELECT count(*) FROM spec") == [(2,)]
    check_store(raw)
    make_room(tight)
    job = tight.submit(*MUCH)
    assert not is_in_trouble(tight)
    assert tight.job(job).spec.command == MUCH


def test_an_end_that_cannot_be_stored_is_kept_and_booked_when_there_is_room(tight: Scheduler, path: Path) -> None:
    first, second = tight.started()[0], max(tight.reader.list_jobs(Status, limit=9))
    run = tight.run_of(first)
    fill(tight)
    tight.say(Exited(run=run, at=tight.clock.moment.timestamp(), code=1, tail=BIG))
    assert is_in_trouble(tight)
    assert tight.status(first) is Status.DISPATCHED
    assert tight.executor.acknowledged == []  # so the executor keeps it too
    assert tight.started() == [first]  # and nothing was spawned for a claim that is not stored
    check_store(sqlite_raw(path))
    tight.turn()
    assert is_in_trouble(tight)
    make_room(tight)
    tight.turn()
    assert not is_in_trouble(tight)
    assert tight.status(first) is Status.FAILED
    assert tight.executor.acknowledged == [run]
    assert tight.started() == [first, second]
    check_store(sqlite_raw(path))


def test_everybody_in_a_turn_that_could_not_be_stored_is_told(tight: Scheduler, path: Path) -> None:
    fill(tight)
    answers: list[object] = []
    first, second = tight.started()[0], max(tight.reader.list_jobs(Status, limit=9))
    tight.engine.turn(
        [
            Request(lambda work: cancel(work, second, actor="me"), answers.append),
            Request(lambda work: work.session.set_meta("k", BIG), answers.append),
        ]
    )
    assert [type(answer) for answer in answers] == [StorageFull, StorageFull]
    assert tight.status(second) is Status.QUEUED
    assert tight.status(first) is Status.DISPATCHED
    assert tight.executor.stops == []
    check_store(sqlite_raw(path))


def test_the_log_is_copied_back_beside_the_writer(tmp_path: Path) -> None:
    """And stays small while the writer goes on, without a commit that has to wait for it."""
    path = tmp_path / "rota.db"
    with closing(SqliteStore(path).session()) as session:
        before = path.stat().st_size
        until = time.monotonic() + 60
        while path.stat().st_size == before:
            assert time.monotonic() < until
            session.begin()
            session.set_meta(str(time.monotonic_ns()), "x" * 2000)
            session.commit()
        assert (tmp_path / "rota.db-wal").stat().st_size < 2 * LARGE * 4096


def test_a_writer_that_never_rests_sees_to_its_log_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY", 1 << 60)
    monkeypatch.setattr(database, "LARGE", 20)
    with closing(SqliteStore(tmp_path / "rota.db").session()) as session:
        for n in range(100):
            session.begin()
            session.set_meta(str(n), "x" * 4000)
            session.commit()
        assert (tmp_path / "rota.db").stat().st_size > 80 * 4096


def test_a_commit_finds_room_in_the_log_and_what_lies_behind_it_is_never_read(path: Path) -> None:
    """Also by whoever comes after a crash: nothing but what was committed is there."""
    with closing(SqliteStore(path).session()) as session:
        log = path.with_name("rota.db-wal")
        length = log.stat().st_size
        assert length > LARGE * 4096
        for n in range(20):
            session.begin()
            session.set_meta(f"k{n}", "x" * 1000)
            session.commit()
        assert log.stat().st_size == length
        copy = path.with_name("copy.db")
        copy.write_bytes(path.read_bytes())
        copy.with_name("copy.db-wal").write_bytes(log.read_bytes())  # as `kill -9` leaves it
    with closing(SqliteStore(copy).session()) as session:
        assert [session.meta(f"k{n}") for n in range(21)] == ["x" * 1000] * 20 + [None]
        assert connection_of(session).execute("PRAGMA integrity_check").fetchall() == [("ok",)]
