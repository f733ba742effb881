"""The files beside each job's logs: written behind, whole, and caught up after a crash."""

from __future__ import annotations

import resource
import stat
from pathlib import Path

import msgspec
import pytest

from harness import Scheduler
from rota.engine.mirror import META, Mirror, _replace
from rota.wire import encode


def mirrored(scheduler: Scheduler) -> int:
    """Start it and let it write what is outstanding: `stop` waits for that. How far it says it has come."""
    positions: list[int] = []
    mirror = Mirror(scheduler.store, scheduler.home / "jobs", positions.append)
    mirror.start()
    mirror.stop()
    return positions[-1]


def test_a_finished_job_has_its_record_and_its_outcome(scheduler: Scheduler) -> None:
    job = scheduler.submit("echo", "ä")
    scheduler.start(job)
    scheduler.end(job, 3, tail="bad")
    mirrored(scheduler)
    folder = scheduler.home / "jobs" / "1"
    form = scheduler.show(job)
    assert msgspec.json.decode((folder / "job.json").read_bytes()) == msgspec.json.decode(encode(form))
    assert (folder / "outcome.json").read_bytes() == (folder / "job.json").read_bytes()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "job.json", folder / "outcome.json")]
    assert modes == [0o700, 0o600, 0o600]
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", "outcome.json"]


def test_what_an_earlier_end_left_is_replaced(scheduler: Scheduler) -> None:
    """Also where a crash left something half made."""
    job = scheduler.submit()
    scheduler.end(job)
    folder = scheduler.home / "jobs" / "1"
    folder.mkdir(parents=True)
    for name in ("outcome.json", "outcome.tmp", "job.tmp"):
        (folder / name).write_text("half")
    mirrored(scheduler)
    assert msgspec.json.decode((folder / "outcome.json").read_bytes())["status"] == "COMPLETED"
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", "outcome.json"]


def test_a_running_job_has_its_record_only(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    mirrored(scheduler)
    assert [path.name for path in (scheduler.home / "jobs" / "1").iterdir()] == ["job.json"]


def test_a_job_that_never_ran_has_no_files(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    scheduler.cancel(job)
    mirrored(scheduler)
    assert not (scheduler.home / "jobs" / str(job)).exists()


def test_it_goes_on_from_where_it_had_got_to(scheduler: Scheduler) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.end(first)
    position = mirrored(scheduler)
    scheduler.session.begin()
    scheduler.session.set_meta(META, str(position))
    scheduler.session.commit()
    outcome = scheduler.home / "jobs" / "1" / "outcome.json"
    outcome.unlink()
    scheduler.end(second)
    mirrored(scheduler)
    assert not outcome.exists()
    assert (scheduler.home / "jobs" / "2" / "outcome.json").exists()


def test_a_file_that_cannot_be_written_is_said_and_the_others_are(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.end(first)
    scheduler.end(second)
    jobs: Path = scheduler.home / "jobs"
    jobs.mkdir()
    (jobs / "1").write_text("in the way")
    mirrored(scheduler)
    assert "cannot write the files of job-1" in caplog.text
    assert (jobs / "2" / "outcome.json").exists()


@pytest.mark.parametrize("name", ["job.json", "outcome.json"])
def test_what_a_crash_left_half_written_is_written_again(scheduler: Scheduler, name: str) -> None:
    """Cut at any byte, with its `.tmp` left behind: the store is the record, and nobody reads these to recover."""
    job = scheduler.submit("echo", "ä")
    scheduler.end(job, 3, tail="bad")
    mirrored(scheduler)
    folder = scheduler.home / "jobs" / "1"
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for cut in {0, 1, len(whole[name]) // 2, len(whole[name]) - 1}:
        (folder / name).write_bytes(whole[name][:cut])
        (folder / name).with_suffix(".tmp").write_bytes(whole[name][:cut])
        assert scheduler.show(job).status == "FAILED"
        for _ in range(2):
            mirrored(scheduler)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_a_disk_that_takes_only_a_part_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    _replace(str(tmp_path), b"old")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            _replace(str(tmp_path), b"x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert path.read_bytes() == b"old\n"
    _replace(str(tmp_path), b"new")
    assert path.read_bytes() == b"new\n"
    assert [each.name for each in tmp_path.iterdir()] == ["job.json"]


def test_who_asks_is_told_up_to_which_event_nobody_writes_any_more(scheduler: Scheduler) -> None:
    mirror = Mirror(scheduler.store, scheduler.home / "jobs", lambda _position: None)
    mirror.start()
    for _ in range(2):
        job = scheduler.submit()
        scheduler.end(job)
        scheduler.cancel(scheduler.submit(delay="1h"))
        assert mirror.settle(30) == scheduler.reader.last_event()
        assert (scheduler.home / "jobs" / str(job) / "outcome.json").exists()
    mirror.stop()


def test_and_what_could_not_be_written_is_not_promised(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    job = scheduler.submit()
    scheduler.end(job)
    mirror = Mirror(scheduler.store, scheduler.home / "jobs", lambda _position: None)
    with monkeypatch.context() as patched:
        patched.setattr(Mirror, "_write", lambda _self, _job: 1 / 0)
        mirror.start()
        assert mirror.settle(0.3) == 0
    assert mirror.settle(30) == scheduler.reader.last_event()
    mirror.stop()
