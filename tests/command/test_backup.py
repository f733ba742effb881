"""Backup and restore: one moment of the store, in one file, and back, on either database."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tracemalloc
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import Scheduler, sqlite_raw
from rota import config
from rota.command import restore as restoring
from rota.command.backup import Contents, back_up
from rota.command.restore import Restored, restore
from rota.core.status import Status
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, StorageFull, StoreError
from rota.home import Home
from rota.ids import JobId, RunId
from rota.occupancy import sole_occupant
from rota.store.port import Store
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite import backup as sqlite_backup
from rota.store.sqlite.store import SqliteStore

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def quiet(_thing: str, _done: int, _total: int) -> None: ...


def save(home: Home, file: Path, *, with_logs: bool = False, force: bool = False, **options: Any) -> Contents:
    return back_up(home, file, with_logs=with_logs, force=force, now=NOW, **{"progress": quiet, **options})


def load(home: Home, file: Path, *, force: bool = False) -> Restored:
    return restore(home, file, force=force, now=NOW, progress=quiet)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def other(tmp_path: Path) -> Home:
    return Home(tmp_path / "other")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


@pytest.fixture(params=["sqlite", "postgres"])
def at_work(request: pytest.FixtureRequest, home: Home) -> Any:
    """A scheduler that goes on while it is backed up, on a home with either database."""
    store: Store = SqliteStore(home.database)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        config.edit(home.config, "store.url", url)
        store = PostgresStore(url)
    scheduler = Scheduler(store, home.root, {"global": 2})
    yield scheduler
    scheduler.close()


def scheduler_of(home: Home) -> Scheduler:
    return Scheduler(SqliteStore(home.database), home.root, {"global": 2})


def test_all_of_it_comes_back_and_goes_on(at_work: Scheduler, home: Home, other: Home, file: Path) -> None:
    done, running, claimed = at_work.submit(), at_work.submit("x", locks=["k"]), at_work.submit()
    at_work.start(done)
    at_work.end(done, 3, tail="oops")
    at_work.start(running)
    waiting = [at_work.submit(after=[running]), at_work.submit(delay="1h", flow="f")]
    jobs = [done, running, claimed, *waiting]
    before = [at_work.show(job) for job in jobs]
    told: list[str] = []
    made = save(home, file, progress=lambda thing, _done, _total: told.append(thing))
    assert told, "somebody who waits is told"
    assert (made.jobs, made.runs, made.bytes, made.has_logs) == (5, 3, file.stat().st_size, False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.glob("*backup*")] == [file.name]
    later = at_work.submit()
    back = load(other, file)
    assert (back.contents.jobs, back.kept, back.contents.made_at) == (5, None, NOW.isoformat())
    with closing(SqliteStore(other.database).reader()) as reader:
        assert [job.status for job in reader.jobs(jobs)] == [
            Status.FAILED, Status.RUNNING, Status.DISPATCHED, Status.WAITING_ON_DEPS, Status.QUEUED,
        ]  # fmt: skip
        assert reader.job(later) is None
    with closing(scheduler_of(other)) as scheduler:
        # What ran then is recovered, what was claimed waits again, the rest is as it was.
        assert scheduler.engine.recovery == {"running_jobs_recovered": 1, "requeued": 1}
        assert scheduler.job(running).reason == "Scheduler crash recovery"
        assert scheduler.status(waiting[0]) is Status.BLOCKED_BY_DEPENDENCY
        assert scheduler.started() == [claimed]
        assert scheduler.show(done).run.error == before[0].run.error  # type: ignore[union-attr]
        assert scheduler.submit() == later, "what came after the backup cannot be known here"
        kinds = [event.kind for _, event in scheduler.reader.events_since(0, 1000)]
        assert kinds.count("scheduler.restored") == 1
    at_work.end(running)
    assert at_work.status(waiting[0]) is not Status.BLOCKED_BY_DEPENDENCY, "the original goes on as if nothing was"


def test_what_an_executor_was_given_ahead_is_not_restored(
    at_work: Scheduler, home: Home, other: Home, file: Path
) -> None:
    """What it has taken of it since, another store knows: here the jobs stand in the queue."""
    jobs = [at_work.submit() for _ in range(3)]
    at_work.session.begin()
    at_work.session.give_ahead({jobs[2]: RunId(9)}, NOW)
    at_work.session.commit()
    save(home, file)
    load(other, file)
    with closing(SqliteStore(other.database).session()) as session:
        assert session.given_ahead() == []


def test_writers_go_on_while_it_is_copied(at_work: Scheduler, home: Home, file: Path) -> None:
    """Each word on the progress is answered with a submit: a copy that starts over with every commit never ends."""
    jobs = [at_work.submit("x" * 3000) for _ in range(40)]
    submitted: list[JobId] = []

    def submit(_thing: str, _done: int, _total: int) -> None:
        submitted.append(at_work.submit("y" * 3000))
        assert len(submitted) < 500, "it never ends"

    made = save(home, file, progress=submit)
    assert len(submitted) > 1
    assert made.jobs == len(jobs), "one moment, and that is its beginning"
    assert sqlite_raw(file)("PRAGMA integrity_check") == [("ok",)]
    assert at_work.job(submitted[-1]).status is Status.QUEUED


@pytest.fixture(autouse=True)
def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_backup, "_PAGES", 5)


def test_settings_come_with_it_but_not_where_the_records_were(home: Home, other: Home, file: Path) -> None:
    home.config.write_text('# mine\n[pools]\nglobal = 3\n\n[store]\nurl = "postgresql://nowhere/x"\n')
    SqliteStore(file).session().close()
    with sqlite_backup.archive(file, writes=True) as kept:
        kept.make({})
        kept.add("rota.toml", 0, home.config.read_bytes())
    back = load(other, file)
    assert (back.config, back.is_url_dropped) == (str(other.config), True)
    assert "# mine" in other.config.read_text()
    assert config.load(other.config).pools["global"] == 3
    assert config.load(other.config).store.url is None


def test_settings_that_are_there_stay(home: Home, other: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    home.config.write_text("[pools]\nglobal = 3\n")
    save(home, file)
    other.prepare()
    other.config.write_text("[pools]\nglobal = 7\n")
    back = load(other, file)
    assert back.config == f"{other.config}.backup"
    assert config.load(other.config).pools["global"] == 7
    assert (other.root / "rota.toml.backup").read_text() == "[pools]\nglobal = 3\n"


def test_the_jobs_files_are_in_it_when_they_are_asked_for(home: Home, other: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        job, empty = scheduler.submit(), scheduler.submit()
        for each in (job, empty):
            scheduler.start(each)
            scheduler.end(each)
    data = os.urandom((5 << 20) + 3)
    for number, content in ((job, data), (empty, b"")):
        (home.jobs / str(number)).mkdir(parents=True)
        (home.jobs / str(number) / "stdout.log").write_bytes(content)
    (home.jobs / ".spare").mkdir()
    os.mkfifo(home.jobs / "1" / "stderr.log")  # a child may put anything there
    assert save(home, file).files == 0
    tracemalloc.start()
    made = save(home, file, with_logs=True, force=True)
    load(other, file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (made.files, made.has_logs) == (2, True)
    assert (other.jobs / "1" / "stdout.log").read_bytes() == data
    assert (other.jobs / "2" / "stdout.log").read_bytes() == b""
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in other.jobs.rglob("*")} == {0}
    assert stat.S_IMODE(other.jobs.stat().st_mode) == 0o700
    assert peak < 4 << 20, "a part at a time"
    assert other.database.stat().st_size < 1 << 20, "the records alone"


def test_what_was_there_is_kept_and_its_numbers_are_spent(home: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        started, queued = scheduler.submit(), scheduler.submit(delay="1h")
        scheduler.start(started)
        save(home, file)
        for _ in range(7):
            scheduler.submit()
        last = scheduler.reader.events_since(0, 1000)[-1][0]
    for number in (started, queued, 40):
        (home.jobs / str(number)).mkdir(parents=True)
        (home.jobs / str(number) / "stdout.log").write_text(f"{number}")
    home.supervisor_journal.write_text(
        '{"type":"generation","generation":12}\n'
        '{"type":"starting","run":90,"boot":"b","directory":"/","kill_after":5,"deadline":null,"idle_timeout":null}\n'
    )
    with pytest.raises(Conflict, match="--force restores all the same"):
        load(home, file)
    old = home.database.read_bytes()
    for name in ("before-restore-20260102T030405", "before-restore-20260102T030405-2"):
        back = load(home, file, force=True)
        kept = home.root / name
        assert back.kept == str(kept)
        assert len(SqliteStore(kept / "rota.db").reader().jobs([JobId(n) for n in range(1, 50)])) in (9, 2)
    assert (home.root / "before-restore-20260102T030405" / "rota.db").read_bytes() == old
    assert not (home.jobs / str(queued)).exists(), "it had not started then: its logs begin anew"
    assert (home.root / "before-restore-20260102T030405/jobs/2/stdout.log").read_text() == "2"
    assert (home.jobs / str(started) / "stdout.log").read_text() == "1"
    with closing(scheduler_of(home)) as scheduler:
        assert scheduler.submit("true") == 41, "the highest directory was 40"
        assert scheduler.executor.starts[-1].run == 91, "the highest run in the journal was 90"
        seen = [seq for seq, _ in scheduler.reader.events_since(0, 1000)]
        assert max(seen) > last
        assert len(seen) == len(set(seen))
        scheduler.session.begin()
        assert scheduler.session.raise_epoch() == 13, "else the supervisor would not listen"
        scheduler.session.rollback()


def test_a_restored_home_may_have_its_records_on_a_server(
    home: Home, other: Home, file: Path, postgres_url: str
) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    save(home, file)
    other.prepare()
    config.edit(other.config, "store.url", postgres_url)
    assert load(other, file).store.startswith("postgresql://")
    assert not other.database.exists()
    assert list(other.root.glob("*.restored*")) == []
    with closing(Scheduler(PostgresStore(postgres_url), other.root)) as scheduler:
        assert scheduler.submit() == 2
    with pytest.raises(Conflict, match="not empty"):
        load(other, file, force=True)


def test_a_damaged_database_is_replaced_and_kept_with_its_journal(home: Home, file: Path) -> None:
    """The likeliest reason for a restore; a journal left beside the new database would spoil it."""
    with closing(scheduler_of(home)) as scheduler:
        job = scheduler.submit()
    save(home, file)
    wal = home.database.with_name("rota.db-wal")
    home.database.write_bytes(b"rubbish" * 1000)
    wal.write_bytes(b"more of it")
    kept = Path(load(home, file, force=True).kept or "")
    assert (kept / "rota.db").read_bytes() == b"rubbish" * 1000
    assert (kept / "rota.db-wal").read_bytes() == b"more of it"
    assert not wal.exists()
    with closing(scheduler_of(home)) as scheduler:
        assert scheduler.started() == [job]


@pytest.mark.parametrize("damage", ["none", "directory", "text", "other database", "cut", "flipped", "newer"])
def test_what_is_not_a_backup_is_refused_and_nothing_is_touched(
    home: Home, other: Home, file: Path, damage: str
) -> None:
    with closing(scheduler_of(home)) as scheduler:
        for _ in range(50):
            scheduler.submit("x" * 2000)
    save(home, file)
    whole = file.read_bytes()
    expected: dict[str, tuple[type[RotaError], str]] = {
        "none": (NotFound, "there is no file"),
        "directory": (InvalidInput, "is not a file"),
        "text": (InvalidInput, "not a backup of Rota: it is not a database at all"),
        "other database": (InvalidInput, "not a backup of Rota: it is a database of something else"),
        "cut": (StoreError, "damaged"),
        "flipped": (StoreError, "damaged"),
        "newer": (StoreError, "written by a newer version of Rota"),
    }
    if damage in ("none", "directory", "other database"):
        file.unlink()
    if damage == "directory":
        file.mkdir()
    elif damage == "text":
        file.write_text("[pools]\n")
    elif damage == "other database":
        sqlite_raw(file)("CREATE TABLE song (name TEXT)")
    elif damage == "cut":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        middle = len(whole) // 2 // 4096 * 4096
        file.write_bytes(whole[:middle] + b"\xff" * 4096 + whole[middle + 4096 :])
    elif damage == "newer":
        sqlite_raw(file)("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    kind, words = expected[damage]
    with pytest.raises(kind, match=words):
        load(other, file)
    assert not other.root.exists()


def test_a_database_copied_by_hand_can_be_restored(home: Home, other: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    shutil.copy(home.database, file)
    back = load(other, file)
    assert (back.contents.jobs, back.contents.made_at, back.config) == (1, None, None)


def test_a_backup_may_lie_where_nothing_can_be_written(home: Home, other: Home, tmp_path: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    place = tmp_path / "place"
    place.mkdir()
    save(home, place / "b.db")
    load(other, place / "b.db")
    assert [path.name for path in place.iterdir()] == ["b.db"], "nothing is made beside it"


def test_a_file_outside_the_jobs_directories_is_not_written(home: Home, other: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    save(home, file)
    for name in ("jobs/../../evil", "jobs/1/../x", "/etc/evil", "jobs/x/stdout.log", "jobs/1/a/b", "jobs/1/.."):
        sqlite_raw(file)("DELETE FROM backup_file")
        sqlite_raw(file)(f"INSERT INTO backup_file VALUES ('{name}', 0, x'00')")
        with pytest.raises(InvalidInput, match="no job's"):
            load(other, file)
    assert not other.database.exists()


def spoilt(file: Path, name: str = "jobs/1/../x") -> Path:
    """The same backup with one file more, that may not be."""
    bad = file.with_name("spoilt.db")
    shutil.copy(file, bad)
    sqlite_raw(bad)(f"INSERT INTO backup_file VALUES ('{name}', 0, x'00')")
    return bad


def contents(home: Home) -> dict[str, bytes]:
    files = (path for path in home.root.rglob("*") if path.is_file() and path != home.lock)
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ["jobs/1/../x", "zz", "jobs/1/a' || char(0) || 'b"])
def test_a_file_that_is_no_jobs_is_found_before_anything_is_touched(
    home: Home, other: Home, file: Path, name: str
) -> None:
    with closing(scheduler_of(home)) as scheduler:
        queued = scheduler.submit(delay="1h")
        save(home, file)
    (home.jobs / str(queued)).mkdir(parents=True)
    (home.jobs / str(queued) / "stdout.log").write_text("since")
    before = contents(home)
    bad = spoilt(file, name)
    with pytest.raises(InvalidInput, match="no job's"):
        load(home, bad, force=True)
    assert contents(home) == before
    with pytest.raises(InvalidInput, match="no job's"):
        load(other, bad)
    assert not other.root.exists()


def test_no_record_goes_to_a_server_before_the_whole_file_is_checked(
    home: Home, other: Home, file: Path, postgres_url: str
) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    save(home, file)
    other.prepare()
    config.edit(other.config, "store.url", postgres_url)
    with pytest.raises(InvalidInput, match="no job's"):
        load(other, spoilt(file))
    assert load(other, file).contents.jobs == 1, "it is still empty"


def test_a_restore_that_fails_half_way_leaves_the_home_as_good_as_before(
    home: Home, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(scheduler_of(home)) as scheduler:
        job, queued = scheduler.submit(), scheduler.submit(delay="1h")
        scheduler.start(job)
    (home.jobs / str(job)).mkdir(parents=True)
    (home.jobs / str(job) / "stdout.log").write_text("then")
    save(home, file, with_logs=True)
    shutil.rmtree(home.jobs / str(job))
    (home.jobs / str(queued)).mkdir(parents=True)
    (home.jobs / str(queued) / "stdout.log").write_text("since")
    before = contents(home)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as broken:
        broken.setattr(restoring, "_write", full)
        with pytest.raises(OSError, match="no room"):
            load(home, file, force=True)
    assert contents(home) == before
    load(home, file, force=True)
    assert (home.jobs / str(job) / "stdout.log").read_text() == "then"
    assert not (home.jobs / str(queued)).exists()


def test_what_a_job_wrote_since_gives_way_to_no_file_of_the_backup(home: Home, file: Path) -> None:
    """The directory of a job that had not started is kept as it was, and its logs begin empty."""
    with closing(scheduler_of(home)) as scheduler:
        queued = scheduler.submit(delay="1h")
    directory = home.jobs / str(queued)
    directory.mkdir(parents=True)
    (directory / "stderr.log").write_text("a start that came to nothing")
    save(home, file, with_logs=True)
    (directory / "stderr.log").unlink()
    (directory / "stdout.log").write_text("since")
    kept = Path(load(home, file, force=True).kept or "") / "jobs" / str(queued)
    assert [path.name for path in kept.iterdir()] == ["stdout.log"]
    assert not directory.exists()


def test_the_old_database_is_kept_where_there_are_no_hard_links(
    home: Home, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
        save(home, file)
        scheduler.submit()

    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    old = home.database.read_bytes()
    kept = Path(load(home, file, force=True).kept or "") / "rota.db"
    assert kept.read_bytes() == old
    assert stat.S_IMODE(kept.stat().st_mode) & 0o077 == 0
    assert sqlite_raw(home.database)("SELECT count(*) FROM job") == [(1,)]


def test_a_live_home_is_refused(home: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    save(home, file)
    with sole_occupant(home), pytest.raises(Conflict, match="use it, or `rota down` first"):
        load(home, file, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_a_backup_that_fails_leaves_no_trace(home: Home, file: Path, force: bool) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit("x" * 100_000)
    if force:
        file.write_text("the one before")

    def fail(_thing: str, _done: int, _total: int) -> None:
        raise StorageFull("no room")

    with pytest.raises(StorageFull, match="no backup was made"):
        save(home, file, force=force, progress=fail)
    assert [path.name for path in file.parent.iterdir() if path.is_file()] == [file.name] * force
    assert not force or file.read_text() == "the one before"


def test_what_is_there_is_not_replaced(home: Home, file: Path) -> None:
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    file.write_text("precious")
    with pytest.raises(Conflict, match="--force to replace it"):
        save(home, file)

    def appear(_thing: str, _done: int, _total: int) -> None:
        file.write_text("precious")

    file.unlink()
    with pytest.raises(Conflict, match="meanwhile"):
        save(home, file, progress=appear)
    assert file.read_text() == "precious"
    save(home, file, force=True)
    assert sqlite_raw(file)("SELECT count(*) FROM job") == [(1,)]


def test_places_that_cannot_be(home: Home, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing to back up"):
        save(home, tmp_path / "b.db")
    with closing(scheduler_of(home)) as scheduler:
        scheduler.submit()
    for place, words in (
        (home.database, "inside the home"),
        (home.root / "backups.db", "inside the home"),
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "b.db", "there is no directory"),
    ):
        with pytest.raises(InvalidInput, match=words):
            save(home, place, force=True)
