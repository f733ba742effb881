"""The files beside each job's logs: written in the background, complete, and caught up after a crash."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import msgspec
import pytest

from rota.jobs.files import META_KEY, JobFileMirror, _replace_record
from rota.schema_types import encode
from tests.harness import Scheduler

pytestmark = pytest.mark.both_databases


def mirror_files(scheduler: Scheduler) -> int:
    """Run a mirror until it has written all files, and return its last position. `stop` waits for that."""
    positions: list[int] = []
    mirror = JobFileMirror(scheduler.store, scheduler.home / "jobs", positions.append)
    mirror.start()
    mirror.stop()
    return positions[-1]


def test_finished_job_has_its_record_and_its_outcome(scheduler: Scheduler) -> None:
    job = scheduler.submit("echo", "ä")
    scheduler.confirm_start(job)
    scheduler.end_run(job, 3, tail="bad")
    mirror_files(scheduler)
    folder = scheduler.home / "jobs" / "1"
    shown = scheduler.show_job(job)
    assert msgspec.json.decode((folder / "job.json").read_bytes()) == msgspec.json.decode(encode(shown))
    assert (folder / "outcome.json").read_bytes() == (folder / "job.json").read_bytes()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "job.json", folder / "outcome.json")]
    assert modes == [0o700, 0o600, 0o600]
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", "outcome.json"]


def test_files_of_an_earlier_end_are_replaced(scheduler: Scheduler) -> None:
    """This includes incomplete files after a crash."""
    job = scheduler.submit()
    scheduler.end_run(job)
    folder = scheduler.home / "jobs" / "1"
    folder.mkdir(parents=True)
    for name in ("outcome.json", "outcome.tmp", "job.tmp"):
        (folder / name).write_text("half")
    mirror_files(scheduler)
    assert msgspec.json.decode((folder / "outcome.json").read_bytes())["status"] == "COMPLETED"
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", "outcome.json"]


def test_running_job_has_its_record_only(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    mirror_files(scheduler)
    assert [path.name for path in (scheduler.home / "jobs" / "1").iterdir()] == ["job.json"]


def test_job_that_never_ran_has_no_files(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    scheduler.cancel(job)
    mirror_files(scheduler)
    assert not (scheduler.home / "jobs" / str(job)).exists()


def test_mirror_continues_from_its_last_position(scheduler: Scheduler) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.end_run(first)
    position = mirror_files(scheduler)
    scheduler.session.begin()
    scheduler.session.meta.set(META_KEY, str(position))
    scheduler.session.commit()
    outcome = scheduler.home / "jobs" / "1" / "outcome.json"
    outcome.unlink()
    scheduler.end_run(second)
    mirror_files(scheduler)
    assert not outcome.exists()
    assert (scheduler.home / "jobs" / "2" / "outcome.json").exists()


def test_file_that_cannot_be_written_is_logged_and_others_are_written(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.end_run(first)
    scheduler.end_run(second)
    jobs: Path = scheduler.home / "jobs"
    jobs.mkdir()
    (jobs / "1").write_text("in the way")
    mirror_files(scheduler)
    assert "cannot write the files of job-1" in caplog.text
    assert (jobs / "2" / "outcome.json").exists()


@pytest.mark.parametrize("name", ["job.json", "outcome.json"])
def test_incomplete_file_after_a_crash_is_written_again(scheduler: Scheduler, name: str) -> None:
    """Cut at any byte, with its `.tmp` left behind: the store is the record, and recovery does not read these files."""
    job = scheduler.submit("echo", "ä")
    scheduler.end_run(job, 3, tail="bad")
    mirror_files(scheduler)
    folder = scheduler.home / "jobs" / "1"
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for cut in {0, 1, len(whole[name]) // 2, len(whole[name]) - 1}:
        (folder / name).write_bytes(whole[name][:cut])
        (folder / name).with_suffix(".tmp").write_bytes(whole[name][:cut])
        assert scheduler.show_job(job).status == "FAILED"
        for _ in range(2):
            mirror_files(scheduler)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_full_disk_leaves_the_old_file_complete(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    _replace_record(str(tmp_path), b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            _replace_record(str(tmp_path), b"x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old\n"
    _replace_record(str(tmp_path), b"new")
    assert path.read_bytes() == b"new\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.json"]


def test_flush_returns_the_last_event_written(scheduler: Scheduler) -> None:
    mirror = JobFileMirror(scheduler.store, scheduler.home / "jobs", lambda _position: None)
    mirror.start()
    for _ in range(2):
        job = scheduler.submit()
        scheduler.end_run(job)
        scheduler.cancel(scheduler.submit(delay="1h"))
        assert mirror.flush(30) == scheduler.reader.events.last_stored_seq()
        assert (scheduler.home / "jobs" / str(job) / "outcome.json").exists()
    mirror.stop()


def test_flush_does_not_count_events_that_could_not_be_written(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduler.submit()
    scheduler.end_run(job)
    mirror = JobFileMirror(scheduler.store, scheduler.home / "jobs", lambda _position: None)
    with monkeypatch.context() as patched:
        patched.setattr(JobFileMirror, "_write", lambda _self, _job: 1 / 0)
        mirror.start()
        assert mirror.flush(0.3) == 0
    assert mirror.flush(30) == scheduler.reader.events.last_stored_seq()
    mirror.stop()
