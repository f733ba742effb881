"""The SQLite file: schema, version, permissions, damage and full disks."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rota.db.database import SupersededError
from rota.db.session import Session
from rota.db.sqlite import checkpoint
from rota.db.sqlite import database as sqlite_database
from rota.db.sqlite import store as sqlite_store
from rota.db.sqlite.checkpoint import AUTOCHECKPOINT_PAGES
from rota.db.sqlite.database import SqliteDatabase, translate_statement
from rota.db.sqlite.store import SqliteStore
from rota.db.statements import load_migrations
from rota.db.store import check_schema_version
from rota.engine.transaction import TurnRequest
from rota.errors import StorageFull, StoreError, StoreUnavailable
from rota.executor.port import ExitReport
from rota.jobs.cancel import cancel
from rota.kernel.status import Status
from tests.db.invariants import check_store
from tests.harness import Scheduler, make_sqlite_runner


@pytest.fixture(autouse=True)
def unsynced_sqlite() -> None:
    """Disable the shared fixture: these tests need real file settings."""


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


def test_migrated_schema_equals_fresh_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(tmp_path / "fresh.db").session().close()
    for count in range(1, len(load_migrations(translate_statement)) + 1):
        monkeypatch.setattr(
            sqlite_store, "load_migrations", lambda translate, count=count: load_migrations(translate)[:count]
        )
        SqliteStore(tmp_path / "migrated.db").session().close()
    assert schema_of(tmp_path / "migrated.db") == schema_of(tmp_path / "fresh.db")


def test_later_migration_keeps_existing_data(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(SqliteStore(path), path.parent)
    job = scheduler.submit()
    scheduler.close()
    later = "ALTER TABLE job ADD COLUMN later TEXT;"
    monkeypatch.setattr(sqlite_store, "load_migrations", lambda translate: [*load_migrations(translate), later])
    for _ in range(2):  # the second opening applies no migration again
        session = SqliteStore(path).session()
        assert session.jobs.find(job) is not None
        assert session.meta.get("schema_version") == str(len(load_migrations(str)) + 1)
        session.close()


def test_failed_migration_leaves_the_old_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).session().close()
    before = schema_of(path)
    broken = "CREATE TABLE partial (id INTEGER);\nSELECT nonsense;\n"
    monkeypatch.setattr(sqlite_store, "load_migrations", lambda translate: [*load_migrations(translate), broken])
    with pytest.raises(StoreError, match="nonsense"):
        SqliteStore(path).session()
    assert schema_of(path) == before


def test_newer_database_is_refused_and_unchanged(path: Path) -> None:
    SqliteStore(path).session().close()
    make_sqlite_runner(path)("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=r"newer version of Rota \(schema 999, .*\); upgrade Rota, or use another home"
    ):
        SqliteStore(path).session()
    assert path.read_bytes() == before


def test_different_schema_with_same_version_is_refused(path: Path) -> None:
    SqliteStore(path).session().close()
    make_sqlite_runner(path)("UPDATE meta SET value = 'other' WHERE key = 'schema_digest'")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"written by another version of Rota .*; use the version that wrote it"):
        SqliteStore(path).session()
    with pytest.raises(StoreError, match="written by another version of Rota"):
        check_schema_version(SqliteStore(path))
    assert path.read_bytes() == before


def test_writes_are_durable(path: Path) -> None:
    session = SqliteStore(path).session()
    connection = connection_of(session)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    session.close()


def test_reader_cannot_write(path: Path) -> None:
    store = SqliteStore(path)
    session, reader = store.session(), store.reader()
    database = reader._db
    assert isinstance(database, SqliteDatabase)
    with pytest.raises(StoreError, match="readonly"):
        database.run("set_meta", key="k", value="v")
    reader.close()
    session.close()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_database_files_are_private(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        session = SqliteStore(path).session()
        session.begin()
        session.meta.set("k", "v")
        session.commit()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("rota.db*")}
        session.close()
    finally:
        os.umask(before)
    assert modes == {"rota.db": 0o600, "rota.db-wal": 0o600, "rota.db-shm": 0o600}


def test_path_with_uri_metacharacters_works(tmp_path: Path) -> None:
    directory = tmp_path / "100% odd? #1 ä"
    directory.mkdir()
    SqliteStore(directory / "rota.db").session().close()
    assert [file.name for file in directory.iterdir()] == ["rota.db"]


def test_non_database_file_is_refused_and_unchanged(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1000)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"rota\.db is damaged or not a Rota database .*restore it from a backup"):
        SqliteStore(path).session()
    assert path.read_bytes() == before


def test_session_and_reader_report_damaged_file(path: Path) -> None:
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
        reader.jobs.count_by_status()
    assert not isinstance(damaged.value, StoreUnavailable), "a damaged file is not a temporary failure"
    reader.close()


def test_locked_file_is_temporarily_unavailable(path: Path) -> None:
    with closing(SqliteStore(path).session()) as session, closing(sqlite3.connect(path, isolation_level=None)) as other:
        connection_of(session).execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"another program has locked .*rota\.db"):
            session.begin()
        other.execute("ROLLBACK")
        session.begin()
        session.commit()


def test_directory_instead_of_file_is_refused_by_name(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=r"rota\.db"):
        SqliteStore(path).session()


def test_missing_directory_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(tmp_path / "nowhere" / "rota.db").session()


# Full disk: `max_page_count` makes SQLite report the same error.


@pytest.fixture
def busy(path: Path) -> Iterator[Scheduler]:
    """Scheduler with one running and one queued job."""
    scheduler = Scheduler(SqliteStore(path), path.parent)
    scheduler.submit("first")
    scheduler.submit("second")
    yield scheduler
    scheduler.close()


def fill_disk(scheduler: Scheduler) -> None:
    connection_of(scheduler.session).execute("PRAGMA max_page_count = 1")  # SQLite rounds this up to the current size


def free_disk(scheduler: Scheduler) -> None:
    connection_of(scheduler.session).execute("PRAGMA max_page_count = 1000000")


def is_disk_full(scheduler: Scheduler) -> bool:
    return isinstance(scheduler.engine.store_error, StorageFull)


BIG_TEXT = "x" * 200_000
BIG_COMMAND = (BIG_TEXT[:100_000],) * (len(BIG_TEXT) // 100_000 + 1)
"""Command of that size in several arguments, because a single argument cannot be so long."""


def test_submit_on_full_disk_is_refused_and_stores_nothing(busy: Scheduler, path: Path) -> None:
    fill_disk(busy)
    with pytest.raises(StorageFull, match=r"is full; nothing was stored: free some space"):
        busy.submit(*BIG_COMMAND)
    assert is_disk_full(busy)
    run_sql = make_sqlite_runner(path)
    assert run_sql("SELECT count(*) FROM job") == [(2,)]
    assert run_sql("SELECT count(*) FROM spec") == [(2,)]
    check_store(run_sql)
    free_disk(busy)
    job = busy.submit(*BIG_COMMAND)
    assert not is_disk_full(busy)
    assert busy.job(job).spec.command == BIG_COMMAND


def test_end_on_full_disk_is_recorded_once_there_is_room(busy: Scheduler, path: Path) -> None:
    first, second = busy.started_jobs()[0], max(busy.reader.jobs.list_ids(Status, limit=9))
    run = busy.find_run(first)
    fill_disk(busy)
    busy.receive(ExitReport(run=run, at=busy.clock.moment.timestamp(), code=1, tail=BIG_TEXT))
    assert is_disk_full(busy)
    assert busy.status(first) is Status.DISPATCHED
    assert busy.executor.acknowledged == []  # so the executor keeps the report
    assert busy.started_jobs() == [first]  # nothing starts for a claim that is not stored
    check_store(make_sqlite_runner(path))
    busy.run_turns()
    assert is_disk_full(busy)
    free_disk(busy)
    busy.run_turns()
    assert not is_disk_full(busy)
    assert busy.status(first) is Status.FAILED
    assert busy.executor.acknowledged == [run]
    assert busy.started_jobs() == [first, second]
    check_store(make_sqlite_runner(path))


def test_failed_turn_refuses_all_its_requests(busy: Scheduler, path: Path) -> None:
    fill_disk(busy)
    responses: list[object] = []
    first, second = busy.started_jobs()[0], max(busy.reader.jobs.list_ids(Status, limit=9))
    busy.engine.turn(
        [
            TurnRequest(lambda tx: cancel(tx, second, actor="me"), responses.append),
            TurnRequest(lambda tx: tx.meta.set("k", BIG_TEXT), responses.append),
        ]
    )
    assert [type(response) for response in responses] == [StorageFull, StorageFull]
    assert busy.status(second) is Status.QUEUED
    assert busy.status(first) is Status.DISPATCHED
    assert busy.executor.stops == []
    check_store(make_sqlite_runner(path))


def test_checkpoints_run_while_the_writer_commits(tmp_path: Path) -> None:
    """The log stays small while the writer commits, and no commit waits for a checkpoint."""
    path = tmp_path / "rota.db"
    with closing(SqliteStore(path).session()) as session:
        before = path.stat().st_size
        deadline = time.monotonic() + 60
        while path.stat().st_size == before:
            assert time.monotonic() < deadline
            session.begin()
            session.meta.set(str(time.monotonic_ns()), "x" * 2000)
            session.commit()
        assert (tmp_path / "rota.db-wal").stat().st_size < 2 * AUTOCHECKPOINT_PAGES * 4096


def test_writer_checkpoints_a_large_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "COMMITS_PER_CHECKPOINT", 1 << 60)
    monkeypatch.setattr(sqlite_database, "AUTOCHECKPOINT_PAGES", 20)
    with closing(SqliteStore(tmp_path / "rota.db").session()) as session:
        for n in range(100):
            session.begin()
            session.meta.set(str(n), "x" * 4000)
            session.commit()
        assert (tmp_path / "rota.db").stat().st_size > 80 * 4096


def test_preallocated_log_space_is_never_read(path: Path) -> None:
    """After a crash a reader finds only what was committed."""
    with closing(SqliteStore(path).session()) as session:
        log = path.with_name("rota.db-wal")
        length = log.stat().st_size
        assert length > AUTOCHECKPOINT_PAGES * 4096
        for n in range(20):
            session.begin()
            session.meta.set(f"k{n}", "x" * 1000)
            session.commit()
        assert log.stat().st_size == length
        copy = path.with_name("copy.db")
        copy.write_bytes(path.read_bytes())
        copy.with_name("copy.db-wal").write_bytes(log.read_bytes())  # the files as `kill -9` leaves them
    with closing(SqliteStore(copy).session()) as session:
        assert [session.meta.get(f"k{n}") for n in range(21)] == ["x" * 1000] * 20 + [None]
        assert connection_of(session).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("change", ["job SET status", "spec SET params", "spec SET name"])
def test_non_utf8_text_blocks_no_other_job(path: Path, change: str) -> None:
    scheduler = Scheduler(SqliteStore(path), path.parent)
    running, damaged, intact = (scheduler.submit() for _ in range(3))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {change} = CAST(X'7BFF7D' AS TEXT) WHERE id = {damaged}")
        connection.commit()
    scheduler.end_run(running)
    if scheduler.started_jobs()[-1] == damaged:
        scheduler.end_run(damaged)
    assert scheduler.started_jobs()[-1] == intact
    assert scheduler.engine.errors == []
    shown = scheduler.show_job(damaged)
    assert shown.unreadable is not None or shown.name == "{\ufffd}"


def test_transaction_is_refused_once_another_scheduler_has_raised_the_epoch(path: Path) -> None:
    with closing(SqliteStore(path).session()) as session, closing(SqliteStore(path).session()) as other:
        for opened in (session, other):
            opened.begin()
            opened.raise_epoch()
            opened.commit()
        with pytest.raises(SupersededError, match="another scheduler has taken over"):
            session.begin()
        other.begin()
        other.commit()
