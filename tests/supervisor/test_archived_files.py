"""Files of an earlier run are archived before the next run of the job opens its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.job_files import archive_run_files
from tests.supervisor.rig import Rig


def read_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("stdout.log", "stderr.log", "skip_if.log", "session", "outcome.json", "command.patch", "input.patch"):
        (tmp_path / name).write_text(name)
    return tmp_path


KEPT = {
    "runs/7/stdout.log": "stdout.log",
    "runs/7/stderr.log": "stderr.log",
    "runs/7/skip_if.log": "skip_if.log",
    "runs/7/session": "session",
    "input.patch": "input.patch",
}


def test_logs_and_session_are_archived_and_outcome_and_patch_removed(folder: Path) -> None:
    archive_run_files(str(folder), 7)
    assert read_files(folder) == KEPT
    archive_run_files(str(folder), 7)
    assert read_files(folder) == KEPT, "repeating it changes nothing"


@pytest.mark.parametrize("steps", range(6))
def test_interrupted_archiving_is_resumed(folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after any number of renames and removals."""
    remaining = [steps]

    def limit(function: object) -> object:
        def call(*paths: str) -> None:
            if not remaining[0]:
                raise KeyboardInterrupt
            remaining[0] -= 1
            function(*paths)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", limit(os.rename))
        patched.setattr(os, "unlink", limit(os.unlink))
        with pytest.raises(KeyboardInterrupt):
            archive_run_files(str(folder), 7)
    archive_run_files(str(folder), 7)
    assert read_files(folder) == KEPT


def test_archived_files_are_not_overwritten(folder: Path) -> None:
    archive_run_files(str(folder), 7)
    (folder / "stdout.log").write_text("of a cancelled start")
    (folder / "stderr.log").write_text("")
    archive_run_files(str(folder), 7)
    assert read_files(folder) == {**KEPT, "runs/7/stdout.log.1": "of a cancelled start", "stderr.log": ""}


def test_missing_directory_is_ignored(tmp_path: Path) -> None:
    archive_run_files(str(tmp_path / "9"), 7)
    assert list(tmp_path.iterdir()) == []


def test_next_run_starts_with_empty_logs(rig: Rig) -> None:
    rig.start_shell(1, "echo old; echo old >&2; exit 3", skip_if="echo checked; false")
    rig.wait_for_exit(1)
    folder = str(rig.directory(1))
    options = {
        "directory": folder,
        "cwd": folder,
        "superseded_run": 1,
        "skip_if": "echo again; echo session > session; false",
    }
    rig.start_shell(2, "echo new", **options)
    assert rig.wait_for_exit(2).code == 0
    files = read_files(rig.directory(1))
    assert (files["stdout.log"], files["stderr.log"], files["skip_if.log"]) == ("new\n", "", "again\n")
    assert files["session"] == "session\n", "files of the run itself are kept"
    assert files["runs/1/stdout.log"] == files["runs/1/stderr.log"] == "old\n"
    assert files["runs/1/skip_if.log"] == "checked\n"


def test_run_does_not_start_if_archiving_fails(rig: Rig) -> None:
    rig.start_shell(1, "echo old")
    rig.wait_for_exit(1)
    (rig.directory(1) / "runs").write_text("in the way")
    rig.start_shell(2, "echo new", directory=str(rig.directory(1)), superseded_run=1)
    assert rig.wait_for_failure(2).startswith("cannot be started: ")
    assert rig.read_stdout(1) == "old\n"
