"""A store that has lost records that its home still shows is not used as a new store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.backup.backup import back_up
from rota.backup.loss import accept_loss, find_loss, keep_orphaned_log, read_home_numbers
from rota.backup.restore import restore
from rota.db.sqlite.backup import checkpoint_wal
from rota.db.sqlite.database import RECOVERY_HINT
from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store
from rota.errors import Conflict, StoreError
from rota.home import Home
from rota.ids import JobId
from tests.harness import Scheduler, SqlRunner


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    for directory in (home.jobs, home.reservations):
        directory.mkdir()
    return home


def detect_loss(home: Home, store: Store) -> str | None:
    return find_loss(home, store, read_home_numbers(home))


def delete_log(path: Path) -> None:
    """Create a database whose committed records are in its log, then delete the log."""
    with closing(SqliteStore(path).session()):
        content = path.read_bytes()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(b"")


def leave_missing(path: Path) -> None:
    assert not path.exists()


def create_store(path: Path) -> None:
    SqliteStore(path).session().close()


@pytest.mark.parametrize("damage", [leave_missing, truncate, delete_log, create_store])
def test_emptied_store_of_home_with_jobs_is_a_loss(home: Home, damage: Callable[[Path], None]) -> None:
    damage(home.database)
    store = SqliteStore(home.database)
    assert detect_loss(home, store) is None, "a new home"
    (home.jobs / "9").mkdir()
    (home.jobs / "12").mkdir()
    before = home.database.read_bytes() if home.database.exists() else None
    assert detect_loss(home, store) == (
        f"{home.database} has lost records: it has no job, and {home.jobs} goes up to job-12; {RECOVERY_HINT}"
    )
    assert (home.database.read_bytes() if home.database.exists() else None) == before, "the file does not change"
    with closing(store.session()) as session:
        session.begin()
        accept_loss(session, read_home_numbers(home))
        session.commit()
        session.begin()
        assert session.ids.allocate("job", 1) == 13
        session.rollback()
    assert detect_loss(home, store) is None


@pytest.mark.parametrize(
    ("damage", "state"), [(leave_missing, "is gone"), (truncate, "is empty"), (delete_log, "is empty")]
)
def test_emptied_store_of_home_without_started_jobs_is_a_loss(
    home: Home, damage: Callable[[Path], None], state: str
) -> None:
    damage(home.database)
    home.supervisor_journal.write_text('{"type":"generation","generation":3}\n')
    assert detect_loss(home, SqliteStore(home.database)) == (
        f"{home.database} {state}, and this home had a scheduler before; {RECOVERY_HINT}"
    )


def test_store_without_last_scheduler_start_is_a_loss(home: Home) -> None:
    """Without the log of the last start, the scheduler would start a job again that has run since then."""
    store = SqliteStore(home.database)
    with closing(store.session()) as session:
        session.begin()
        session.raise_epoch(min_epoch=1)
        session.commit()
    home.supervisor_journal.write_text('{"type":"generation","generation":2}\n')
    assert detect_loss(home, store) is None
    home.supervisor_journal.write_text('{"type":"generation","generation":3}\n')
    assert detect_loss(home, store) == (
        f"{home.database} has lost records: the last start of this home's scheduler is not in it; {RECOVERY_HINT}"
    )
    with closing(store.session()) as session:
        session.begin()
        accept_loss(session, known := read_home_numbers(home))
        session.raise_epoch(min_epoch=known.epoch)
        session.commit()
    assert detect_loss(home, store) is None


@pytest.mark.both_databases
def test_store_behind_job_directories_is_a_loss(scheduler: Scheduler, store: Store, home: Home) -> None:
    scheduler.submit()
    (home.jobs / "1").mkdir()
    (home.jobs / ".removed").mkdir()
    assert detect_loss(home, store) is None
    (home.jobs / "4").mkdir()
    assert f"it ends at job-1, and {home.jobs} goes up to job-4" in str(detect_loss(home, store))
    scheduler.run_request(lambda tx: accept_loss(tx.session, read_home_numbers(home)))
    assert detect_loss(home, store) is None
    assert scheduler.submit() == 5
    (home.reservations / "2").mkdir()
    assert f"it has no reservation, and {home.reservations} goes up to reservation-2" in str(detect_loss(home, store))


@pytest.mark.damages_store
@pytest.mark.both_databases
def test_collected_jobs_are_not_a_loss(scheduler: Scheduler, store: Store, home: Home, run_sql: SqlRunner) -> None:
    job = scheduler.submit()
    scheduler.end_run(job)
    (home.jobs / str(job)).mkdir()
    scheduler.run_request(lambda tx: tx.ids.retire("job", job))
    for table in ("run", "product", "job", "spec"):
        run_sql(f"DELETE FROM {table}")
    assert detect_loss(home, store) is None


@pytest.mark.damages_store
def test_store_with_missing_table_is_damaged(
    scheduler: Scheduler, store: Store, home: Home, run_sql: SqlRunner
) -> None:
    run_sql("DROP TABLE reservation")
    with pytest.raises(StoreError, match="is damaged: it has no table reservation; restore a backup"):
        detect_loss(home, store)


def test_epoch_exceeds_generation_of_supervisor(scheduler: Scheduler) -> None:
    assert scheduler.run_request(lambda tx: tx.session.raise_epoch(min_epoch=7)) == 8
    assert scheduler.run_request(lambda tx: tx.session.raise_epoch(min_epoch=2)) == 9


def test_backup_of_store_with_loss_does_not_replace_good_backup(home: Home, tmp_path: Path) -> None:
    create_store(home.database)
    (home.jobs / "3").mkdir()
    good = tmp_path / "backup.db"
    shutil.copyfile(home.database, good)
    before = good.read_bytes()
    with pytest.raises(StoreError, match="has lost records"):
        back_up(home, good, with_logs=False, force=True, now=datetime.now(UTC), progress=lambda *_: None)
    assert good.read_bytes() == before


def orphan_log(home: Home) -> bytes:
    """Leave all records in the log only, like a scheduler that is killed soon after its start. Return the log."""
    path = home.database
    with closing(SqliteStore(path).session()) as session:
        session.begin()
        session.ids.retire("job", 3)
        session.commit()
        content = path.with_name("rota.db-wal").read_bytes()
    path.with_name("rota.db-wal").write_bytes(content)
    path.with_name("rota.db-shm").unlink(missing_ok=True)
    return content


def back_up_home(home: Home) -> None:
    target = home.root.parent / "backup.db"
    back_up(home, target, with_logs=False, force=False, now=datetime.now(UTC), progress=lambda *_: None)


OPENINGS: dict[str, Callable[[Home], Any]] = {
    "start": lambda home: find_loss(home, SqliteStore(home.database), read_home_numbers(home)),
    "reader": lambda home: SqliteStore(home.database).reader(),
    "session": lambda home: SqliteStore(home.database).session(),
    "backup": back_up_home,
    "archive": lambda home: checkpoint_wal(home.database),
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize(("damage", "state"), [(truncate, "is empty"), (Path.unlink, "is gone")])
def test_log_without_database_is_refused_and_kept(
    home: Home, damage: Callable[[Path], None], state: str, opening: str
) -> None:
    content = orphan_log(home)
    damage(home.database)
    with pytest.raises(StoreError, match=rf"rota\.db {state}, but .*rota\.db-wal has [\d,]+ bytes") as refused:
        OPENINGS[opening](home)
    assert "Keep a copy of both files" in refused.value.message
    assert home.database.with_name("rota.db-wal").read_bytes() == content
    assert not home.database.exists() or home.database.read_bytes() == b""


def test_accepted_loss_renames_orphaned_log(home: Home) -> None:
    content = orphan_log(home)
    truncate(home.database)
    store = SqliteStore(home.database)
    keep_orphaned_log(store, datetime(2026, 1, 2, tzinfo=UTC))
    assert home.database.with_name("rota.db-wal.lost-20260102T000000000000").read_bytes() == content
    store.session().close()
    assert detect_loss(home, store) is None


def test_restore_keeps_orphaned_log(home: Home) -> None:
    content = orphan_log(home)
    back_up_home(home)
    orphaned = home.database.with_name("rota.db-wal")
    home.database.unlink()
    orphaned.write_bytes(content)
    backup = home.root.parent / "backup.db"
    with pytest.raises(Conflict, match="--force"):
        restore(home, backup, force=False, now=datetime.now(UTC), progress=lambda *_: None)
    restored = restore(home, backup, force=True, now=datetime.now(UTC), progress=lambda *_: None)
    assert restored.kept_directory is not None
    assert (Path(restored.kept_directory) / "rota.db-wal").read_bytes() == content


@pytest.mark.both_databases
def test_lost_job_is_not_reported_as_collected(scheduler: Scheduler, home: Home) -> None:
    scheduler.submit()
    for last in (3, 6):
        (home.jobs / str(last)).mkdir()
        scheduler.run_request(lambda tx: accept_loss(tx.session, read_home_numbers(home)))
        assert scheduler.submit() == last + 1
    for job, text in ((2, "its record was lost"), (3, "jobs/3 of the home"), (6, "was lost"), (9, "lists all jobs")):
        output = scheduler.run_request(lambda tx, job=job: str(tx.jobs.not_found(JobId(job))))
        assert text in output
        assert "retention" not in output
