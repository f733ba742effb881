"""Workspaces of real runs: the steps before and after the command, and failures meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.executor.port import (
    ConnectionLoss,
    EnvironmentUpload,
    ExitReport,
    PrefetchOrder,
    PrefetchStart,
    RunInventory,
    RunReport,
    StartConfirmation,
    StartFailure,
    WithdrawConfirmation,
)
from tests.repository import IDENTITY, Repository
from tests.supervisor.rig import Fifo, Rig, ends_within, is_alive, open_rig

MakeFifo = Callable[[str], Fifo]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def rig(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    with open_rig(home) as rig:
        yield rig


@pytest.fixture
def launch_run(rig: Rig, repo: Repository) -> Callable[..., None]:
    """Return a function that starts run 1, by default with its own worktree."""

    def start(script: str, *, overlay: dict[str, str] | None = None, **fields: Any) -> None:
        options = {name: fields.pop(name) for name in ("skip_if", "timeout", "idle_timeout") if name in fields}
        workspace = {
            "home": str(rig.home),
            "job": "job-1",
            "directory": str(rig.directory(1)),
            "cwd": str(repo.path),
            "repository": repo.common,
            "base": repo.git("rev-parse", "HEAD"),
            "limit": 20.0,
            **fields,
        }
        variables = {**IDENTITY, **(overlay or {})}
        rig.start_shell(1, script, cwd=str(repo.path), workspace=workspace, overlay=variables, **options)

    return start


class SlowFilter:
    """Repository whose first checkout (smudge) or `git add` (clean) reports its pid and waits for the test."""

    def __init__(self, repo: Repository, command: str, channel: Fifo, gate: Fifo) -> None:
        repo.write(".gitattributes", "file filter=slow\n")
        repo.commit("slow")
        script = repo.path.parent / "slow.sh"
        once = f"if mkdir {script}.begun 2>/dev/null; then echo $$ > {channel.path}; read x < {gate.path}; fi"
        script.write_text(f"#!/bin/sh\n{once}; exec cat\n")
        script.chmod(0o755)
        repo.git("config", f"filter.slow.{command}", str(script))
        self.channel, self.gate = channel, gate


@pytest.fixture
def make_slow_filter(repo: Repository, make_fifo: MakeFifo) -> Callable[[str], SlowFilter]:
    return lambda command: SlowFilter(repo, command, make_fifo("channel"), make_fifo("gate"))


def _patch_path(rig: Rig) -> Path:
    return rig.directory(1) / "command.patch"


def test_command_runs_in_its_worktree_and_leaves_a_patch(
    rig: Rig, repo: Repository, launch_run: Callable[..., None]
) -> None:
    launch_run("pwd; echo $PWD; echo more >> deep", subdirectory="below")
    end = rig.wait_for_exit(1)
    assert (end.code, end.workspace_error) == (0, "")
    assert "+more" in _patch_path(rig).read_text()
    worktree = rig.home.resolve() / "worktrees/job-1"
    assert rig.read_stdout(1) == f"{worktree}/below\n" * 2
    assert (worktree / "below/deep").read_text() == "deep\nmore\n"
    assert [type(m) for m in rig.received if isinstance(m, StartConfirmation | ExitReport)] == [
        StartConfirmation,
        ExitReport,
    ]


def test_unchanged_worktree_is_removed_before_the_exit_is_reported(
    rig: Rig, repo: Repository, launch_run: Callable[..., None]
) -> None:
    launch_run("cat file; exit 3")
    assert rig.wait_for_exit(1).code == 3
    assert rig.read_stdout(1) == "one\ntwo\n", "there is no output of git"
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])
    assert (rig.directory(1) / "workspace.log").read_text() == ""


def test_git_variables_of_a_hook_do_not_reach_the_command(rig: Rig, launch_run: Callable[..., None]) -> None:
    stale = {"PATH": os.environ["PATH"], "GIT_INDEX_FILE": "/stale", "GIT_DIR": "/stale", "PWD": "/stale"}
    rig.send(EnvironmentUpload(environment_id=1, variables=stale))
    launch_run('echo "${GIT_INDEX_FILE-unset}"; git rev-parse --abbrev-ref HEAD')
    rig.wait_for_exit(1)
    assert rig.read_stdout(1) == "unset\nrota/job-1\n"


def test_skip_if_runs_in_the_worktree(rig: Rig, repo: Repository, launch_run: Callable[..., None]) -> None:
    launch_run("echo main", skip_if="pwd; git rev-parse --abbrev-ref HEAD >&2")
    end = rig.wait_for_exit(1)
    assert end.skip_reason == str(rig.home.resolve() / "worktrees/job-1")
    assert repo.worktrees() == []


def test_failed_start_leaves_no_worktree(rig: Rig, repo: Repository, launch_run: Callable[..., None]) -> None:
    launch_run("true", subdirectory="not/there")
    missing = rig.home.resolve() / "worktrees/job-1/not/there"
    assert rig.wait_for_failure(1) == f"working directory does not exist: {missing}"
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])
    assert not [m for m in rig.received if isinstance(m, StartConfirmation)], "it counts as a failed start"


def test_missing_base_fails_the_start_with_the_git_error(
    rig: Rig, repo: Repository, launch_run: Callable[..., None]
) -> None:
    launch_run("true", base="1234567890" * 4)
    failed = rig.wait_for(StartFailure, 1)
    assert failed.error.startswith("the workspace could not be set up: git worktree add: fatal: ")
    assert "1234567890" in failed.error
    assert not failed.is_machine_failure
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])
    assert not [m for m in rig.received if isinstance(m, StartConfirmation)]


def test_setup_past_its_limit_fails_the_start(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("smudge")
    launch_run("true", limit=0.5)
    assert rig.wait_for_failure(1) == "the workspace could not be set up: git reset timed out"
    assert ends_within(slow.channel.read_number())
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])


def test_stop_during_setup_leaves_nothing(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("smudge")
    launch_run("echo main")
    pid = slow.channel.read_number()
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert end.ended_by == "stop"
    assert not is_alive(pid)
    assert not (rig.directory(1) / "stdout.log").exists(), "the command never ran"
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])


def test_timeout_but_not_idle_timeout_applies_to_setup(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("smudge")
    launch_run("echo main", timeout=2.0, idle_timeout=0.3)
    pid = slow.channel.read_number()
    assert rig.wait_for_exit(1).ended_by == "timeout"
    assert not is_alive(pid)


def test_setup_process_is_not_reported_as_the_command(
    rig: Rig, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("smudge")
    launch_run("exit 4")
    slow.channel.read_number()
    rig.reconnect()
    assert rig.inventory.runs == [RunReport(run=rig.inventory.runs[0].run, pid=None)]
    slow.gate.release()
    assert rig.wait_for_exit(1).code == 4


@pytest.mark.parametrize("ended_by", ["stop", "timeout"])
def test_patch_contains_the_changes_of_a_stopped_command(
    rig: Rig, launch_run: Callable[..., None], make_fifo: MakeFifo, ended_by: str
) -> None:
    channel = make_fifo("channel")
    limit = {"timeout": 3.0} if ended_by == "timeout" else {}
    launch_run(f"echo half > half; echo x > {channel.path}; exec sleep 1000", **limit)
    channel.read_line()
    if ended_by == "stop":
        rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.ended_by, end.signal, end.workspace_error) == (ended_by, signal.SIGTERM, "")
    assert "+half" in _patch_path(rig).read_text()


def test_stop_during_finish_keeps_the_result(
    rig: Rig, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file; exit 5")
    pid = slow.channel.read_number()
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (5, None)
    assert end.workspace_error == "the workspace was not finished: it was terminated before it was done"
    assert not is_alive(pid)
    assert not _patch_path(rig).exists()
    assert (rig.home / "worktrees/job-1/file").read_text() == "changed\n"


def test_unfinished_workspace_ends_the_prefetch_series(rig: Rig, launch_run: Callable[..., None]) -> None:
    """It needs attention first."""
    launch_run('rm -rf "$PWD"')
    rig.send(PrefetchOrder(series=1, max_running=1, starts=[rig.make_order(2, ["true"])]))
    end = rig.wait_for_exit(1)
    assert (end.code, "does not exist" in end.workspace_error) == (0, True)
    rig.wait_for_message(lambda message: message == WithdrawConfirmation(series=1), "the end of the series")
    assert not [message for message in rig.received if isinstance(message, PrefetchStart)]


def test_hanging_finish_keeps_the_result_and_the_worktree(
    rig: Rig, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file; echo oh >&2; exit 6", limit=1.0)
    pid = slow.channel.read_number()
    end = rig.wait_for_exit(1)
    assert (end.code, end.tail) == (6, "oh\n")
    assert "the patch could not be created: git add timed out" in end.workspace_error
    assert ends_within(pid)
    assert (rig.home / "worktrees/job-1/file").read_text() == "changed\n"
    assert end.workspace_error in (rig.home / "supervisor.log").read_text()


def test_timeout_does_not_apply_to_finish(
    rig: Rig, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file", timeout=3.0)
    slow.channel.read_number()
    rig.start(2, ["sleep", "1000"], timeout=3.0)
    assert rig.wait_for_exit(2).ended_by == "timeout", "the timeout of the first run has passed too"
    slow.gate.release()
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by, end.workspace_error) == (0, None, "")
    assert "+changed" in _patch_path(rig).read_text()


def test_scheduler_reconnecting_during_finish_gets_the_real_exit(
    rig: Rig, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file; exit 7")
    slow.channel.read_number()
    rig.reconnect()
    (report,) = rig.inventory.runs
    assert (report.pid, report.has_ended) == (None, False)
    slow.gate.release()
    assert rig.wait_for_exit(1).code == 7
    assert "+changed" in _patch_path(rig).read_text()


def test_next_supervisor_completes_an_interrupted_finish(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file; exit 8")
    pid = slow.channel.read_number()
    rig.kill_supervisor()
    end = rig.wait_for_exit(1)
    assert (end.code, end.is_observed, end.workspace_error) == (8, True, "")
    assert not is_alive(pid), "no process of the run is left when its exit is reported"
    assert "+changed" in _patch_path(rig).read_text()
    assert _kept_reason(rig) == "uncommitted: file"
    assert repo.branches() == ["main", "rota/job-1"]


def test_existing_patch_is_not_recreated_from_a_partly_removed_worktree(
    rig: Rig,
    repo: Repository,
    launch_run: Callable[..., None],
    make_slow_filter: Callable[[str], SlowFilter],
    tmp_path: Path,
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file")
    slow.channel.read_number()
    rig.suspend_supervisor()
    record = rig.directory(1) / "workspace.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "is_patched": True}))
    _patch_path(rig).write_text("the existing patch\n")
    shutil.rmtree(rig.home / "worktrees/job-1")
    rig.kill_supervisor()
    assert rig.wait_for_exit(1).code == 0
    assert _patch_path(rig).read_text() == "the existing patch\n"
    assert repo.branches() == ["main"]


def test_finish_that_completes_without_a_supervisor_is_accepted(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("clean")
    launch_run("echo changed > file")
    pid = slow.channel.read_number()
    finish_process = os.getsid(pid)
    rig.suspend_supervisor()
    slow.gate.release()
    assert ends_within(finish_process)
    rig.kill_supervisor()
    end = rig.wait_for_exit(1)
    assert (end.code, end.workspace_error) == (0, "")
    assert "+changed" in _patch_path(rig).read_text()
    assert _kept_reason(rig) == "uncommitted: file"
    assert repo.branches() == ["main", "rota/job-1"]


def test_patch_in_place_is_not_created_late(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    """Later changes by the user are not the job's."""
    repo.write(".gitattributes", "late filter=slow\n")
    slow = make_slow_filter("clean")
    repo.write(".gitattributes", "late filter=slow\n")
    launch_run("echo changed > late", base=None, patch=True)
    slow.channel.read_number()
    rig.kill_supervisor()
    end = rig.wait_for_exit(1)
    assert end.code == 0
    assert "the supervisor was lost, and later changes by others cannot be distinguished" in end.workspace_error
    assert not _patch_path(rig).exists()


def test_start_failure_is_recorded_before_finish(rig: Rig, repo: Repository, launch_run: Callable[..., None]) -> None:
    """Otherwise a successor would take a command that never started for one that ended."""
    workspace = {
        "home": str(rig.home),
        "job": "job-1",
        "directory": str(rig.directory(1)),
        "cwd": str(repo.path),
        "repository": repo.common,
        "base": repo.git("rev-parse", "HEAD"),
        "limit": 20.0,
    }
    rig.start(1, ["/nowhere/program"], cwd=str(repo.path), workspace=workspace)
    assert "program not found" in rig.wait_for_failure(1)
    lines = [json.loads(line) for line in (rig.home / "supervisor.journal").read_text().splitlines()]
    kinds = [line.get("step", line["type"]) for line in lines if line.get("run") == 1]
    assert kinds == ["SET_UP", "started", "MAIN", "failed_to_start", "FINISH", "finished"]


def test_next_supervisor_finishes_the_workspace_of_a_running_command(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_fifo: MakeFifo
) -> None:
    gate = make_fifo("gate")
    launch_run(f"read x < {gate.path}; echo changed > file; git commit -qam mine; git branch merged")
    pid = rig.wait_for_start(1).pid
    rig.kill_supervisor()
    rig.wait_for(ConnectionLoss)
    assert [report.pid for report in rig.wait_for(RunInventory).runs] == [pid]
    gate.release()
    end = rig.wait_for_exit(1)
    assert (end.code, end.is_observed, end.workspace_error) == (None, True, "")
    assert not is_alive(pid)
    assert "+changed" in _patch_path(rig).read_text()
    assert not (rig.home / "worktrees/job-1").exists()
    assert repo.branches() == ["main", "merged"]


def test_supervisor_killed_during_setup_leaves_nothing(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_slow_filter: Callable[[str], SlowFilter]
) -> None:
    slow = make_slow_filter("smudge")
    launch_run("echo main")
    slow.channel.read_number()
    rig.kill_supervisor()
    assert (
        rig.wait_for_failure(1) == "the supervisor was lost while the workspace was being set up; the command never ran"
    )
    assert not (rig.directory(1) / "stdout.log").exists()
    assert repo.branches() == ["main"]


def test_supervisor_killed_during_skip_if_does_not_start_the_command(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], make_fifo: MakeFifo
) -> None:
    channel = make_fifo("channel")
    launch_run("echo main", skip_if=f"echo $$ > {channel.path}; sleep 1000")
    pid = channel.read_number()
    rig.kill_supervisor()
    assert rig.wait_for_failure(1) == "the supervisor was lost while `skip_if` was running; the command never ran"
    assert not is_alive(pid)
    assert not (rig.directory(1) / "stdout.log").exists()
    assert repo.branches() == ["main"], "its worktree is removed"


def test_finish_is_not_repeated(rig: Rig, launch_run: Callable[..., None]) -> None:
    launch_run("echo changed > file")
    assert rig.wait_for_exit(1).code == 0
    _patch_path(rig).unlink()
    rig.kill_supervisor()
    rig.wait_for(ConnectionLoss)
    assert rig.wait_for_exit(1).code == 0
    assert not _patch_path(rig).exists()


def _kept_reason(rig: Rig) -> object:
    return json.loads((rig.directory(1) / "workspace.json").read_text())["kept_reason"]


def test_leftovers_are_ended_before_the_patch_is_created(
    rig: Rig, launch_run: Callable[..., None], make_fifo: MakeFifo
) -> None:
    channel = make_fifo("channel")
    launch_run(
        f"setsid sh -c 'trap \"echo late > late; exit\" TERM; echo $$ > {channel.path}; sleep 1000 & wait' & "
        f"read x < {channel.path}"
    )
    assert rig.wait_for_exit(1).code == 0
    assert "+late" in _patch_path(rig).read_text()


def test_command_that_removes_its_worktree_keeps_its_exit_code(rig: Rig, launch_run: Callable[..., None]) -> None:
    launch_run('rm -rf "$PWD"; exit 9')
    end = rig.wait_for_exit(1)
    assert end.code == 9
    assert "does not exist" in end.workspace_error


def test_record_changed_by_the_command_is_ignored(
    rig: Rig, repo: Repository, launch_run: Callable[..., None], tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    repo.git("worktree", "add", "-q", "-b", "precious", str(precious))
    changed = rig.directory(1) / "workspace.json"
    launch_run(f"""echo '{{"worktree": "{precious}", "branch": "precious"}}' > {changed}""")
    assert rig.wait_for_exit(1).workspace_error == ""
    assert precious.is_dir()
    assert repo.branches() == ["main", "precious"]


def test_patch_without_a_worktree(rig: Rig, repo: Repository, launch_run: Callable[..., None]) -> None:
    repo.write("mine", "mine\n")
    launch_run("pwd; echo more >> file", base=None, patch=True)
    assert rig.wait_for_exit(1).code == 0
    assert rig.read_stdout(1) == f"{repo.path}\n"
    text = _patch_path(rig).read_text()
    assert "+more" in text
    assert "mine" not in text


def test_concurrent_worktree_runs(rig: Rig, repo: Repository, make_fifo: MakeFifo) -> None:
    gates = {run: make_fifo(f"gate-{run}") for run in (1, 2)}
    base = repo.git("rev-parse", "HEAD")
    for run, gate in gates.items():
        workspace = {
            "home": str(rig.home),
            "job": f"job-{run}",
            "directory": str(rig.directory(run)),
            "cwd": str(repo.path),
            "repository": repo.common,
            "base": base,
            "limit": 20.0,
        }
        script = f"read x < {gate.path}; echo {run} > file; git commit -qam {run}"
        rig.start_shell(run, script, cwd=str(repo.path), workspace=workspace, overlay=dict(IDENTITY))
    for run in gates:
        rig.wait_for_start(run)
    assert len(repo.worktrees()) == 2
    for gate in gates.values():
        gate.release()
    assert [rig.wait_for_exit(run).code for run in gates] == [0, 0]
    for run in gates:
        assert f"+{run}\n" in (rig.directory(run) / "command.patch").read_text()
        assert repo.git("show", f"rota/job-{run}:file") == str(run)


def test_full_disk_during_setup_is_a_machine_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'fatal: could not write: No space left on device' >&2; exit 128\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with open_rig(tmp_path / "another") as rig:
        workspace = {
            "home": str(rig.home),
            "job": "job-1",
            "directory": str(rig.directory(1)),
            "cwd": "/",
            "repository": "/",
            "base": "1",
            "limit": 20.0,
        }
        rig.start_shell(1, "true", workspace=workspace)
        assert rig.wait_for(StartFailure, 1).is_machine_failure
