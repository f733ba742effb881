"""What an earlier run of a job left is set aside before the next one opens its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from executor.rig import Rig
from rota.leftover import set_aside


def tree(folder: Path) -> dict[str, str]:
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


def test_logs_and_session_are_kept_and_outcome_and_patch_go(folder: Path) -> None:
    set_aside(str(folder), 7)
    assert tree(folder) == KEPT
    set_aside(str(folder), 7)
    assert tree(folder) == KEPT, "twice is once"


@pytest.mark.parametrize("steps", range(6))
def test_what_was_killed_half_way_is_carried_on(folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of its renames and removals."""
    left = [steps]

    def counted(act: object) -> object:
        def call(*words: str) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            act(*words)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", counted(os.rename))
        patched.setattr(os, "unlink", counted(os.unlink))
        with pytest.raises(KeyboardInterrupt):
            set_aside(str(folder), 7)
    set_aside(str(folder), 7)
    assert tree(folder) == KEPT


def test_nothing_that_was_kept_is_replaced(folder: Path) -> None:
    set_aside(str(folder), 7)
    (folder / "stdout.log").write_text("of a start that was called back")
    (folder / "stderr.log").write_text("")
    set_aside(str(folder), 7)
    assert tree(folder) == {**KEPT, "runs/7/stdout.log.1": "of a start that was called back", "stderr.log": ""}


def test_a_job_without_a_directory_has_nothing_to_keep(tmp_path: Path) -> None:
    set_aside(str(tmp_path / "9"), 7)
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_begins_with_empty_logs(rig: Rig) -> None:
    rig.shell(1, "echo old; echo old >&2; exit 3", skip_if="echo checked; false")
    rig.exited(1)
    folder = str(rig.directory(1))
    again = {"directory": folder, "cwd": folder, "aside": 1, "skip_if": "echo again; echo session > session; false"}
    rig.shell(2, "echo new", **again)
    assert rig.exited(2).code == 0
    found = tree(rig.directory(1))
    assert (found["stdout.log"], found["stderr.log"], found["skip_if.log"]) == ("new\n", "", "again\n")
    assert found["session"] == "session\n", "what the run itself wrote stays"
    assert found["runs/1/stdout.log"] == found["runs/1/stderr.log"] == "old\n"
    assert found["runs/1/skip_if.log"] == "checked\n"


def test_a_run_whose_logs_would_be_mixed_is_not_started(rig: Rig) -> None:
    rig.shell(1, "echo old")
    rig.exited(1)
    (rig.directory(1) / "runs").write_text("in the way")
    rig.shell(2, "echo new", directory=str(rig.directory(1)), aside=1)
    assert rig.failed(2).startswith("cannot be started: ")
    assert rig.stdout(1) == "old\n"
