"""Backup and restore: one moment of the store in one file, and back, for both databases."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import tracemalloc
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota import config
from rota.backup import restore as backup_restore
from rota.backup.backup import BackupContents, back_up
from rota.backup.restore import RestoreOutcome, restore
from rota.db.postgres.store import PostgresStore
from rota.db.sqlite import backup as sqlite_backup
from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, StorageFull, StoreError
from rota.home import Home, acquire_home_lock
from rota.ids import JobId, RunId
from rota.kernel.status import Status
from tests.harness import Scheduler, make_sqlite_runner

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ignore_progress(_thing: str, _done: int, _total: int) -> None: ...


def make_backup(
    home: Home, backup_file: Path, *, with_logs: bool = False, force: bool = False, **options: Any
) -> BackupContents:
    return back_up(
        home, backup_file, with_logs=with_logs, force=force, now=NOW, **{"progress": ignore_progress, **options}
    )


def restore_backup(home: Home, backup_file: Path, *, force: bool = False) -> RestoreOutcome:
    return restore(home, backup_file, force=force, now=NOW, progress=ignore_progress)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def other_home(tmp_path: Path) -> Home:
    return Home(tmp_path / "other")


@pytest.fixture
def backup_file(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


@pytest.fixture(params=["sqlite", "postgres"])
def live_scheduler(request: pytest.FixtureRequest, home: Home) -> Any:
    """Scheduler that continues during a backup, on each database."""
    store: Store = SqliteStore(home.database)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        config.edit(home.config, "store.url", url)
        store = PostgresStore(url)
    scheduler = Scheduler(store, home.root, {"global": 2})
    yield scheduler
    scheduler.close()


def open_scheduler(home: Home) -> Scheduler:
    return Scheduler(SqliteStore(home.database), home.root, {"global": 2})


def test_restore_returns_all_records_and_scheduler_continues(
    live_scheduler: Scheduler, home: Home, other_home: Home, backup_file: Path
) -> None:
    done, running, claimed = (live_scheduler.submit(), live_scheduler.submit("x", locks=["k"]), live_scheduler.submit())
    live_scheduler.confirm_start(done)
    live_scheduler.end_run(done, 3, tail="oops")
    live_scheduler.confirm_start(running)
    waiting = [live_scheduler.submit(after=[running]), live_scheduler.submit(delay="1h", flow="f")]
    jobs = [done, running, claimed, *waiting]
    before = [live_scheduler.show_job(job) for job in jobs]
    result: list[str] = []
    backup = make_backup(home, backup_file, progress=lambda thing, _done, _total: result.append(thing))
    assert result, "progress is reported"
    assert (backup.jobs, backup.runs, backup.bytes, backup.has_logs) == (5, 3, backup_file.stat().st_size, False)
    assert stat.S_IMODE(backup_file.stat().st_mode) == 0o600
    assert [path.name for path in backup_file.parent.glob("*backup*")] == [backup_file.name]
    later = live_scheduler.submit()
    restored = restore_backup(other_home, backup_file)
    assert (restored.contents.jobs, restored.kept_directory, restored.contents.made_at) == (5, None, NOW.isoformat())
    with closing(SqliteStore(other_home.database).reader()) as reader:
        assert [job.status for job in reader.jobs.find_all(jobs)] == [
            Status.FAILED,
            Status.RUNNING,
            Status.DISPATCHED,
            Status.WAITING_ON_DEPS,
            Status.QUEUED,
        ]
        assert reader.jobs.find(later) is None
    with closing(open_scheduler(other_home)) as scheduler:
        # Running jobs are recovered, dispatched jobs are queued again, and other jobs are unchanged.
        assert scheduler.engine.recovery_counts == {"running_jobs_recovered": 1, "requeued": 1}
        assert scheduler.job(running).reason == "Scheduler crash recovery"
        assert scheduler.status(waiting[0]) is Status.BLOCKED_BY_DEPENDENCY
        assert scheduler.started_jobs() == [claimed]
        assert scheduler.show_job(done).run.error == before[0].run.error  # type: ignore[union-attr]
        assert scheduler.submit() == later, "ids that were allocated after the backup are unknown here"
        kinds = [event.kind for _, event in scheduler.reader.events.since(0, 1000)]
        assert kinds.count("scheduler.restored") == 1
    live_scheduler.end_run(running)
    assert live_scheduler.status(waiting[0]) is not Status.BLOCKED_BY_DEPENDENCY, "the original scheduler continues"


def test_unreadable_record_is_backed_up_and_restored(home: Home, other_home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        bad = scheduler.submit(delay="1h")
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE job SET status = 'SUSPENDED'")
        connection.commit()
    make_backup(home, backup_file)
    restore_backup(other_home, backup_file)
    with closing(open_scheduler(other_home)) as scheduler:
        assert scheduler.status(bad) is Status.UNREADABLE
        assert scheduler.show_job(bad).unreadable == "its status 'SUSPENDED' is unknown"


def test_prefetched_jobs_are_not_restored(
    live_scheduler: Scheduler, home: Home, other_home: Home, backup_file: Path
) -> None:
    """Only the other store knows the starts since the backup; in the restored store the jobs are queued."""
    jobs = [live_scheduler.submit() for _ in range(3)]
    live_scheduler.session.begin()
    live_scheduler.session.prefetch.offer({jobs[2]: RunId(9)}, NOW)
    live_scheduler.session.commit()
    make_backup(home, backup_file)
    restore_backup(other_home, backup_file)
    with closing(SqliteStore(other_home.database).session()) as session:
        assert session.prefetch.offered_runs() == []


def test_backup_ends_while_writers_continue(live_scheduler: Scheduler, home: Home, backup_file: Path) -> None:
    """Every progress report submits a job: a copy that starts over after each commit would never end."""
    jobs = [live_scheduler.submit("x" * 3000) for _ in range(40)]
    submitted: list[JobId] = []

    def submit(_thing: str, _done: int, _total: int) -> None:
        submitted.append(live_scheduler.submit("y" * 3000))
        assert len(submitted) < 500, "the backup does not end"

    backup = make_backup(home, backup_file, progress=submit)
    assert len(submitted) > 1
    assert backup.jobs == len(jobs), "the backup shows the moment of its start"
    assert make_sqlite_runner(backup_file)("PRAGMA integrity_check") == [("ok",)]
    assert live_scheduler.job(submitted[-1]).status is Status.QUEUED


@pytest.fixture(autouse=True)
def small_copy_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_backup, "_PAGES_PER_STEP", 5)


def test_restore_drops_store_url_from_configuration(home: Home, other_home: Home, backup_file: Path) -> None:
    home.config.write_text('# mine\n[pools]\nglobal = 3\n\n[store]\nurl = "postgresql://nowhere/x"\n')
    SqliteStore(backup_file).session().close()
    with sqlite_backup.open_archive(backup_file, is_writable=True) as kept:
        kept.create({})
        kept.add("rota.toml", 0, home.config.read_bytes())
    restored = restore_backup(other_home, backup_file)
    assert (restored.config_path, restored.is_url_dropped) == (str(other_home.config), True)
    assert "# mine" in other_home.config.read_text()
    assert config.load(other_home.config).pools["global"] == 3
    assert config.load(other_home.config).store.url is None


def test_restore_keeps_existing_configuration(home: Home, other_home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    home.config.write_text("[pools]\nglobal = 3\n")
    make_backup(home, backup_file)
    other_home.prepare()
    other_home.config.write_text("[pools]\nglobal = 7\n")
    restored = restore_backup(other_home, backup_file)
    assert restored.config_path == f"{other_home.config}.backup"
    assert config.load(other_home.config).pools["global"] == 7
    assert (other_home.root / "rota.toml.backup").read_text() == "[pools]\nglobal = 3\n"


def test_backup_with_logs_contains_job_files(home: Home, other_home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        job, empty = scheduler.submit(), scheduler.submit()
        for number in (job, empty):
            scheduler.confirm_start(number)
            scheduler.end_run(number)
    data = os.urandom((5 << 20) + 3)
    for number, content in ((job, data), (empty, b"")):
        (home.jobs / str(number)).mkdir(parents=True)
        (home.jobs / str(number) / "stdout.log").write_bytes(content)
    (home.jobs / ".spare").mkdir()
    os.mkfifo(home.jobs / "1" / "stderr.log")  # a child process may create any file
    assert make_backup(home, backup_file).files == 0
    tracemalloc.start()
    backup = make_backup(home, backup_file, with_logs=True, force=True)
    restore_backup(other_home, backup_file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (backup.files, backup.has_logs) == (2, True)
    assert (other_home.jobs / "1" / "stdout.log").read_bytes() == data
    assert (other_home.jobs / "2" / "stdout.log").read_bytes() == b""
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in other_home.jobs.rglob("*")} == {0}
    assert stat.S_IMODE(other_home.jobs.stat().st_mode) == 0o700
    assert peak < 4 << 20, "one part at a time is in memory"
    assert other_home.database.stat().st_size < 1 << 20, "the database has the records only"


def test_restore_keeps_old_database_and_retires_its_ids(home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        started, queued = scheduler.submit(), scheduler.submit(delay="1h")
        scheduler.confirm_start(started)
        make_backup(home, backup_file)
        for _ in range(7):
            scheduler.submit()
        last = scheduler.reader.events.since(0, 1000)[-1][0]
    for number in (started, queued, 40):
        (home.jobs / str(number)).mkdir(parents=True)
        (home.jobs / str(number) / "stdout.log").write_text(f"{number}")
    home.supervisor_journal.write_text(
        '{"type":"generation","generation":12}\n'
        '{"type":"starting","run":90,"boot":"b","directory":"/","kill_after":5,"deadline":null,"idle_timeout":null}\n'
    )
    with pytest.raises(Conflict, match="use --force to restore anyway"):
        restore_backup(home, backup_file)
    old = home.database.read_bytes()
    for name in ("before-restore-20260102T030405", "before-restore-20260102T030405-2"):
        restored = restore_backup(home, backup_file, force=True)
        kept = home.root / name
        assert restored.kept_directory == str(kept)
        assert len(SqliteStore(kept / "rota.db").reader().jobs.find_all([JobId(n) for n in range(1, 50)])) in (9, 2)
    assert (home.root / "before-restore-20260102T030405" / "rota.db").read_bytes() == old
    assert not (home.jobs / str(queued)).exists(), "it had not started by then, so its logs are empty"
    assert (home.root / "before-restore-20260102T030405/jobs/2/stdout.log").read_text() == "2"
    assert (home.jobs / str(started) / "stdout.log").read_text() == "1"
    with closing(open_scheduler(home)) as scheduler:
        assert scheduler.submit("true") == 41, "the highest directory was 40"
        assert scheduler.executor.starts[-1].run == 91, "the highest run in the journal was 90"
        seen = [seq for seq, _ in scheduler.reader.events.since(0, 1000)]
        assert max(seen) > last
        assert len(seen) == len(set(seen))
        scheduler.session.begin()
        assert scheduler.session.raise_epoch() == 13, "the supervisor ignores a lower generation"
        scheduler.session.rollback()


def test_restore_into_postgres_store(home: Home, other_home: Home, backup_file: Path, postgres_url: str) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    make_backup(home, backup_file)
    other_home.prepare()
    config.edit(other_home.config, "store.url", postgres_url)
    assert restore_backup(other_home, backup_file).store.startswith("postgresql://")
    assert not other_home.database.exists()
    assert list(other_home.root.glob("*.restored*")) == []
    with closing(Scheduler(PostgresStore(postgres_url), other_home.root)) as scheduler:
        assert scheduler.submit() == 2
    with pytest.raises(Conflict, match="not empty"):
        restore_backup(other_home, backup_file, force=True)


def test_restore_keeps_damaged_database_with_its_journal(home: Home, backup_file: Path) -> None:
    """Damage is the likeliest reason for a restore; a journal left beside the new database would corrupt it."""
    with closing(open_scheduler(home)) as scheduler:
        job = scheduler.submit()
    make_backup(home, backup_file)
    wal = home.database.with_name("rota.db-wal")
    home.database.write_bytes(b"rubbish" * 1000)
    wal.write_bytes(b"more of it")
    kept = Path(restore_backup(home, backup_file, force=True).kept_directory or "")
    assert (kept / "rota.db").read_bytes() == b"rubbish" * 1000
    assert (kept / "rota.db-wal").read_bytes() == b"more of it"
    assert not wal.exists()
    with closing(open_scheduler(home)) as scheduler:
        assert scheduler.started_jobs() == [job]


@pytest.mark.parametrize("damage", ["none", "directory", "text", "other database", "cut", "flipped", "newer"])
def test_invalid_backup_is_refused_without_changes(
    home: Home, other_home: Home, backup_file: Path, damage: str
) -> None:
    with closing(open_scheduler(home)) as scheduler:
        for _ in range(50):
            scheduler.submit("x" * 2000)
    make_backup(home, backup_file)
    whole = backup_file.read_bytes()
    expected: dict[str, tuple[type[RotaError], str]] = {
        "none": (NotFound, "there is no file"),
        "directory": (InvalidInput, "is not a file"),
        "text": (InvalidInput, "not a backup of Rota: it is not a SQLite database"),
        "other database": (InvalidInput, "not a backup of Rota: it has no tables of Rota"),
        "cut": (StoreError, "damaged"),
        "flipped": (StoreError, "damaged"),
        "newer": (StoreError, "written by a newer version of Rota"),
    }
    if damage in ("none", "directory", "other database"):
        backup_file.unlink()
    if damage == "directory":
        backup_file.mkdir()
    elif damage == "text":
        backup_file.write_text("[pools]\n")
    elif damage == "other database":
        make_sqlite_runner(backup_file)("CREATE TABLE song (name TEXT)")
    elif damage == "cut":
        backup_file.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        middle = len(whole) // 2 // 4096 * 4096
        backup_file.write_bytes(whole[:middle] + b"\xff" * 4096 + whole[middle + 4096 :])
    elif damage == "newer":
        make_sqlite_runner(backup_file)("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    kind, words = expected[damage]
    with pytest.raises(kind, match=words):
        restore_backup(other_home, backup_file)
    assert not other_home.root.exists()


def test_copied_database_can_be_restored(home: Home, other_home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    shutil.copy(home.database, backup_file)
    restored = restore_backup(other_home, backup_file)
    assert (restored.contents.jobs, restored.contents.made_at, restored.config_path) == (1, None, None)


def test_restore_writes_nothing_beside_backup(home: Home, other_home: Home, tmp_path: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    place = tmp_path / "place"
    place.mkdir()
    make_backup(home, place / "b.db")
    restore_backup(other_home, place / "b.db")
    assert [path.name for path in place.iterdir()] == ["b.db"], "no file is created beside it"


def test_restore_writes_no_file_outside_job_directories(home: Home, other_home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    make_backup(home, backup_file)
    for name in ("jobs/../../evil", "jobs/1/../x", "/etc/evil", "jobs/x/stdout.log", "jobs/1/a/b", "jobs/1/.."):
        make_sqlite_runner(backup_file)("DELETE FROM backup_file")
        make_sqlite_runner(backup_file)(f"INSERT INTO backup_file VALUES ('{name}', 0, x'00')")
        with pytest.raises(InvalidInput, match="belongs to no job"):
            restore_backup(other_home, backup_file)
    assert not other_home.database.exists()


def make_invalid_backup(backup_file: Path, name: str = "jobs/1/../x") -> Path:
    """Copy the backup and add a file with an invalid name."""
    bad = backup_file.with_name("damaged.db")
    shutil.copy(backup_file, bad)
    make_sqlite_runner(bad)(f"INSERT INTO backup_file VALUES ('{name}', 0, x'00')")
    return bad


def read_files(home: Home) -> dict[str, bytes]:
    files = (path for path in home.root.rglob("*") if path.is_file() and path != home.lock)
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ["jobs/1/../x", "zz", "jobs/1/a' || char(0) || 'b"])
def test_restore_refuses_foreign_file_before_any_change(
    home: Home, other_home: Home, backup_file: Path, name: str
) -> None:
    with closing(open_scheduler(home)) as scheduler:
        queued = scheduler.submit(delay="1h")
        make_backup(home, backup_file)
    (home.jobs / str(queued)).mkdir(parents=True)
    (home.jobs / str(queued) / "stdout.log").write_text("since")
    before = read_files(home)
    bad = make_invalid_backup(backup_file, name)
    with pytest.raises(InvalidInput, match="belongs to no job"):
        restore_backup(home, bad, force=True)
    assert read_files(home) == before
    with pytest.raises(InvalidInput, match="belongs to no job"):
        restore_backup(other_home, bad)
    assert not other_home.root.exists()


def test_restore_checks_file_before_writing_to_postgres(
    home: Home, other_home: Home, backup_file: Path, postgres_url: str
) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    make_backup(home, backup_file)
    other_home.prepare()
    config.edit(other_home.config, "store.url", postgres_url)
    with pytest.raises(InvalidInput, match="belongs to no job"):
        restore_backup(other_home, make_invalid_backup(backup_file))
    assert restore_backup(other_home, backup_file).contents.jobs == 1, "the store is still empty"


def test_failed_restore_leaves_home_unchanged(home: Home, backup_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_scheduler(home)) as scheduler:
        job, queued = scheduler.submit(), scheduler.submit(delay="1h")
        scheduler.confirm_start(job)
    (home.jobs / str(job)).mkdir(parents=True)
    (home.jobs / str(job) / "stdout.log").write_text("then")
    make_backup(home, backup_file, with_logs=True)
    shutil.rmtree(home.jobs / str(job))
    (home.jobs / str(queued)).mkdir(parents=True)
    (home.jobs / str(queued) / "stdout.log").write_text("since")
    before = read_files(home)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as broken:
        broken.setattr(backup_restore, "_write_new", full)
        with pytest.raises(OSError, match="no room"):
            restore_backup(home, backup_file, force=True)
    assert read_files(home) == before
    restore_backup(home, backup_file, force=True)
    assert (home.jobs / str(job) / "stdout.log").read_text() == "then"
    assert not (home.jobs / str(queued)).exists()


def test_restore_moves_files_of_unstarted_job_aside(home: Home, backup_file: Path) -> None:
    """The directory of a job that had not started is kept aside, and its logs are empty."""
    with closing(open_scheduler(home)) as scheduler:
        queued = scheduler.submit(delay="1h")
    directory = home.jobs / str(queued)
    directory.mkdir(parents=True)
    (directory / "stderr.log").write_text("a start that came to nothing")
    make_backup(home, backup_file, with_logs=True)
    (directory / "stderr.log").unlink()
    (directory / "stdout.log").write_text("since")
    kept = Path(restore_backup(home, backup_file, force=True).kept_directory or "") / "jobs" / str(queued)
    assert [path.name for path in kept.iterdir()] == ["stdout.log"]
    assert not directory.exists()


def test_restore_keeps_old_database_without_hard_links(
    home: Home, backup_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
        make_backup(home, backup_file)
        scheduler.submit()

    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    old = home.database.read_bytes()
    kept = Path(restore_backup(home, backup_file, force=True).kept_directory or "") / "rota.db"
    assert kept.read_bytes() == old
    assert stat.S_IMODE(kept.stat().st_mode) & 0o077 == 0
    assert make_sqlite_runner(home.database)("SELECT count(*) FROM job") == [(1,)]


def test_restore_into_running_home_is_refused(home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    make_backup(home, backup_file)
    with acquire_home_lock(home), pytest.raises(Conflict, match="use it, or run `rota down` first"):
        restore_backup(home, backup_file, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_failed_backup_leaves_no_file(home: Home, backup_file: Path, force: bool) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit("x" * 100_000)
    if force:
        backup_file.write_text("the one before")

    def fail(_thing: str, _done: int, _total: int) -> None:
        raise StorageFull("no room")

    with pytest.raises(StorageFull, match="no backup was made"):
        make_backup(home, backup_file, force=force, progress=fail)
    assert [path.name for path in backup_file.parent.iterdir() if path.is_file()] == [backup_file.name] * force
    assert not force or backup_file.read_text() == "the one before"


def test_backup_does_not_replace_existing_file(home: Home, backup_file: Path) -> None:
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    backup_file.write_text("precious")
    with pytest.raises(Conflict, match="--force to replace it"):
        make_backup(home, backup_file)

    def appear(_thing: str, _done: int, _total: int) -> None:
        backup_file.write_text("precious")

    backup_file.unlink()
    with pytest.raises(Conflict, match="in the meantime"):
        make_backup(home, backup_file, progress=appear)
    assert backup_file.read_text() == "precious"
    make_backup(home, backup_file, force=True)
    assert make_sqlite_runner(backup_file)("SELECT count(*) FROM job") == [(1,)]


def test_backup_refuses_invalid_target(home: Home, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing to back up"):
        make_backup(home, tmp_path / "b.db")
    with closing(open_scheduler(home)) as scheduler:
        scheduler.submit()
    for place, words in (
        (home.database, "inside the home"),
        (home.root / "backups.db", "inside the home"),
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "b.db", "does not exist; create it first"),
    ):
        with pytest.raises(InvalidInput, match=words):
            make_backup(home, place, force=True)
