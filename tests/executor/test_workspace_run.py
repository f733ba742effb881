"""Workspaces of real runs: what the supervisor starts before and after them, and what can go wrong meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from executor.rig import Fifo, Rig, ends_within, lives, rig_in
from repository import IDENTITY, Repository
from rota.executor.port import (
    Account,
    Accounts,
    Ahead,
    Environment,
    Exited,
    FailedToStart,
    Lost,
    Started,
    Taken,
    Withdrawn,
)

MakeFifo = Callable[[str], Fifo]


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def rig(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    with rig_in(home) as rig:
        yield rig


@pytest.fixture
def launch(rig: Rig, repo: Repository) -> Callable[..., None]:
    """Starts run 1 with a worktree of its own, or with whatever workspace is asked for."""

    def start(script: str, *, overlay: dict[str, str] | None = None, **fields: Any) -> None:
        options = {name: fields.pop(name) for name in ("skip_if", "timeout", "idle_timeout") if name in fields}
        workspace = {
            "home": str(rig.home), "job": "job-1", "directory": str(rig.directory(1)), "cwd": str(repo.path),
            "repository": repo.common, "base": repo.git("rev-parse", "HEAD"), "limit": 20.0, **fields,
        }  # fmt: skip
        variables = {**IDENTITY, **(overlay or {})}
        rig.shell(1, script, cwd=str(repo.path), workspace=workspace, overlay=variables, **options)

    return start


class Slow:
    """A repository whose first checkout (smudge) or `git add` (clean) says so and then waits for us."""

    def __init__(self, repo: Repository, what: str, told: Fifo, gate: Fifo) -> None:
        repo.write(".gitattributes", "file filter=slow\n")
        repo.commit("slow")
        script = repo.path.parent / "slow.sh"
        once = f"if mkdir {script}.begun 2>/dev/null; then echo $$ > {told.path}; read x < {gate.path}; fi"
        script.write_text(f"#!/bin/sh\n{once}; exec cat\n")
        script.chmod(0o755)
        repo.git("config", f"filter.slow.{what}", str(script))
        self.told, self.gate = told, gate


@pytest.fixture
def slow(repo: Repository, fifo: MakeFifo) -> Callable[[str], Slow]:
    return lambda what: Slow(repo, what, fifo("told"), fifo("gate"))


def _patch(rig: Rig) -> Path:
    return rig.directory(1) / "command.patch"


def test_the_command_runs_in_its_worktree_and_its_end_comes_with_its_patch(
    rig: Rig, repo: Repository, launch: Callable[..., None]
) -> None:
    launch("pwd; echo $PWD; echo more >> deep", below="below")
    end = rig.exited(1)
    assert (end.code, end.trouble) == (0, "")
    assert "+more" in _patch(rig).read_text()
    worktree = rig.home.resolve() / "worktrees/job-1"
    assert rig.stdout(1) == f"{worktree}/below\n" * 2
    assert (worktree / "below/deep").read_text() == "deep\nmore\n"
    assert [type(m) for m in rig.seen if isinstance(m, Started | Exited)] == [Started, Exited]


def test_what_left_nothing_is_gone_when_its_end_is_told(
    rig: Rig, repo: Repository, launch: Callable[..., None]
) -> None:
    launch("cat file; exit 3")
    assert rig.exited(1).code == 3
    assert rig.stdout(1) == "one\ntwo\n", "and nothing of git's"
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])
    assert (rig.directory(1) / "workspace.log").read_text() == ""


def test_variables_of_a_hook_do_not_reach_the_command(rig: Rig, launch: Callable[..., None]) -> None:
    stale = {"PATH": os.environ["PATH"], "GIT_INDEX_FILE": "/stale", "GIT_DIR": "/stale", "PWD": "/stale"}
    rig.send(Environment(surroundings=1, variables=stale))
    launch('echo "${GIT_INDEX_FILE-unset}"; git rev-parse --abbrev-ref HEAD')
    rig.exited(1)
    assert rig.stdout(1) == "unset\nrota/job-1\n"


def test_skip_if_looks_at_the_worktree(rig: Rig, repo: Repository, launch: Callable[..., None]) -> None:
    launch("echo main", skip_if="pwd; git rev-parse --abbrev-ref HEAD >&2")
    end = rig.exited(1)
    assert end.skipped == str(rig.home.resolve() / "worktrees/job-1")
    assert repo.worktrees() == []


def test_a_command_that_cannot_be_started_leaves_no_worktree(
    rig: Rig, repo: Repository, launch: Callable[..., None]
) -> None:
    launch("true", below="not/there")
    missing = rig.home.resolve() / "worktrees/job-1/not/there"
    assert rig.failed(1) == f"working directory does not exist: {missing}"
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])
    assert not [m for m in rig.seen if isinstance(m, Started)], "so that it counts as a start that failed"


def test_a_base_that_is_gone_fails_the_start_with_what_git_said(
    rig: Rig, repo: Repository, launch: Callable[..., None]
) -> None:
    launch("true", base="1234567890" * 4)
    failed = rig.wait_for(FailedToStart, 1)
    assert failed.error.startswith("its workspace could not be made: git worktree add: fatal: ")
    assert "1234567890" in failed.error
    assert not failed.is_machine
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])
    assert not [m for m in rig.seen if isinstance(m, Started)]


def test_a_set_up_that_takes_too_long_says_so(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("smudge")
    launch("true", limit=0.5)
    assert rig.failed(1) == "its workspace could not be made: git reset did not end in time"
    assert ends_within(stuck.told.number())
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])


def test_stop_during_the_set_up_ends_all_of_it(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("smudge")
    launch("echo main")
    pid = stuck.told.number()
    rig.stop(1)
    end = rig.exited(1)
    assert end.ended_by == "stop"
    assert not lives(pid)
    assert not (rig.directory(1) / "stdout.log").exists(), "the command never began"
    assert (repo.worktrees(), repo.branches()) == ([], ["main"])


def test_the_set_up_is_under_the_runs_timeout_and_not_under_its_idle_timeout(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("smudge")
    launch("echo main", timeout=2.0, idle_timeout=0.3)
    pid = stuck.told.number()
    assert rig.exited(1).ended_by == "timeout"
    assert not lives(pid)


def test_a_scheduler_that_comes_back_during_the_set_up_does_not_take_it_for_the_job(
    rig: Rig, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("smudge")
    launch("exit 4")
    stuck.told.number()
    rig.reconnect()
    assert rig.accounts.runs == [Account(run=rig.accounts.runs[0].run, pid=None)]
    stuck.gate.release()
    assert rig.exited(1).code == 4


@pytest.mark.parametrize("ended_by", ["stop", "timeout"])
def test_what_a_stopped_command_did_is_in_its_patch(
    rig: Rig, launch: Callable[..., None], fifo: MakeFifo, ended_by: str
) -> None:
    told = fifo("said")
    limit = {"timeout": 3.0} if ended_by == "timeout" else {}
    launch(f"echo half > half; echo x > {told.path}; exec sleep 1000", **limit)
    told.line()
    if ended_by == "stop":
        rig.stop(1)
    end = rig.exited(1)
    assert (end.ended_by, end.signal, end.trouble) == (ended_by, signal.SIGTERM, "")
    assert "+half" in _patch(rig).read_text()


def test_stop_during_the_finishing_keeps_the_result(
    rig: Rig, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("clean")
    launch("echo changed > file; exit 5")
    pid = stuck.told.number()
    rig.stop(1)
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (5, None)
    assert end.trouble == "its workspace was not finished: it was ended before it was done"
    assert not lives(pid)
    assert not _patch(rig).exists()
    assert (rig.home / "worktrees/job-1/file").read_text() == "changed\n"


def test_a_success_whose_workspace_is_not_finished_ends_what_was_given_ahead(
    rig: Rig, launch: Callable[..., None]
) -> None:
    """Somebody has to look at it first."""
    launch('rm -rf "$PWD"')
    rig.send(Ahead(series=1, width=1, starts=[rig.order(2, ["true"])]))
    end = rig.exited(1)
    assert (end.code, "does not exist" in end.trouble) == (0, True)
    rig.wait_until(lambda message: message == Withdrawn(series=1), "the end of the series")
    assert not [message for message in rig.seen if isinstance(message, Taken)]


def test_a_finishing_that_hangs_keeps_the_result_and_the_worktree(
    rig: Rig, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("clean")
    launch("echo changed > file; echo oh >&2; exit 6", limit=1.0)
    pid = stuck.told.number()
    end = rig.exited(1)
    assert (end.code, end.tail) == (6, "oh\n")
    assert "the patch could not be taken: git add did not end in time" in end.trouble
    assert ends_within(pid)
    assert (rig.home / "worktrees/job-1/file").read_text() == "changed\n"
    assert end.trouble in (rig.home / "supervisor.log").read_text()


def test_the_timeout_of_the_run_is_not_the_finishings(
    rig: Rig, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("clean")
    launch("echo changed > file", timeout=3.0)
    stuck.told.number()
    rig.start(2, ["sleep", "1000"], timeout=3.0)
    assert rig.exited(2).ended_by == "timeout", "so the time of the first is over too"
    stuck.gate.release()
    end = rig.exited(1)
    assert (end.code, end.ended_by, end.trouble) == (0, None, "")
    assert "+changed" in _patch(rig).read_text()


def test_a_scheduler_that_comes_back_during_the_finishing_hears_the_real_end(
    rig: Rig, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("clean")
    launch("echo changed > file; exit 7")
    stuck.told.number()
    rig.reconnect()
    (account,) = rig.accounts.runs
    assert (account.pid, account.has_ended) == (None, False)
    stuck.gate.release()
    assert rig.exited(1).code == 7
    assert "+changed" in _patch(rig).read_text()


def test_a_supervisor_killed_during_the_finishing_is_finished_by_the_next(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("clean")
    launch("echo changed > file; exit 8")
    pid = stuck.told.number()
    rig.kill_supervisor()
    end = rig.exited(1)
    assert (end.code, end.watched, end.trouble) == (8, True, "")
    assert not lives(pid), "nothing of the run is left when its end is told"
    assert "+changed" in _patch(rig).read_text()
    assert _kept(rig) == "uncommitted: file"
    assert repo.branches() == ["main", "rota/job-1"]


def test_a_patch_that_was_taken_is_not_taken_again_from_a_worktree_that_is_half_removed(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow], tmp_path: Path
) -> None:
    stuck = slow("clean")
    launch("echo changed > file")
    stuck.told.number()
    rig.suspend_supervisor()
    record = rig.directory(1) / "workspace.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "is_patched": True}))
    _patch(rig).write_text("as it was taken\n")
    shutil.rmtree(rig.home / "worktrees/job-1")
    rig.kill_supervisor()
    assert rig.exited(1).code == 0
    assert _patch(rig).read_text() == "as it was taken\n"
    assert repo.branches() == ["main"]


def test_a_finishing_that_ends_by_itself_while_there_is_no_supervisor(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("clean")
    launch("echo changed > file")
    pid = stuck.told.number()
    finishing = os.getsid(pid)
    rig.suspend_supervisor()
    stuck.gate.release()
    assert ends_within(finishing)
    rig.kill_supervisor()
    end = rig.exited(1)
    assert (end.code, end.trouble) == (0, "")
    assert "+changed" in _patch(rig).read_text()
    assert _kept(rig) == "uncommitted: file"
    assert repo.branches() == ["main", "rota/job-1"]


def test_a_patch_of_the_users_own_tree_is_not_taken_late(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    """What the user has changed since is not the job's."""
    repo.write(".gitattributes", "late filter=slow\n")
    stuck = slow("clean")
    repo.write(".gitattributes", "late filter=slow\n")
    launch("echo changed > late", base=None, patch=True)
    stuck.told.number()
    rig.kill_supervisor()
    end = rig.exited(1)
    assert end.code == 0
    assert "the supervisor was lost, and what others changed there since cannot be told apart" in end.trouble
    assert not _patch(rig).exists()


def test_an_end_is_written_before_what_follows_it(rig: Rig, repo: Repository, launch: Callable[..., None]) -> None:
    """Else a successor would take a command that never began for one that ended."""
    workspace = {
        "home": str(rig.home), "job": "job-1", "directory": str(rig.directory(1)), "cwd": str(repo.path),
        "repository": repo.common, "base": repo.git("rev-parse", "HEAD"), "limit": 20.0,
    }  # fmt: skip
    rig.start(1, ["/nowhere/program"], cwd=str(repo.path), workspace=workspace)
    assert "program not found" in rig.failed(1)
    lines = [json.loads(line) for line in (rig.home / "supervisor.journal").read_text().splitlines()]
    kinds = [line.get("step", line["type"]) for line in lines if line.get("run") == 1]
    assert kinds == ["SET_UP", "started", "MAIN", "failed_to_start", "FINISH", "finished"]


def test_a_supervisor_killed_while_the_command_runs_leaves_its_workspace_to_the_next(
    rig: Rig, repo: Repository, launch: Callable[..., None], fifo: MakeFifo
) -> None:
    gate = fifo("gate")
    launch(f"read x < {gate.path}; echo changed > file; git commit -qam mine; git branch merged")
    pid = rig.started(1).pid
    rig.kill_supervisor()
    rig.wait_for(Lost)
    assert [account.pid for account in rig.wait_for(Accounts).runs] == [pid]
    gate.release()
    end = rig.exited(1)
    assert (end.code, end.watched, end.trouble) == (None, True, "")
    assert not lives(pid)
    assert "+changed" in _patch(rig).read_text()
    assert not (rig.home / "worktrees/job-1").exists()
    assert repo.branches() == ["main", "merged"]


def test_a_supervisor_killed_during_the_set_up_starts_nothing_and_leaves_nothing(
    rig: Rig, repo: Repository, launch: Callable[..., None], slow: Callable[[str], Slow]
) -> None:
    stuck = slow("smudge")
    launch("echo main")
    stuck.told.number()
    rig.kill_supervisor()
    assert rig.failed(1) == "the supervisor was lost while its workspace was made; its command never began"
    assert not (rig.directory(1) / "stdout.log").exists()
    assert repo.branches() == ["main"]


def test_a_supervisor_killed_during_skip_if_ends_that_and_starts_nothing(
    rig: Rig, repo: Repository, launch: Callable[..., None], fifo: MakeFifo
) -> None:
    told = fifo("said")
    launch("echo main", skip_if=f"echo $$ > {told.path}; sleep 1000")
    pid = told.number()
    rig.kill_supervisor()
    assert rig.failed(1) == "the supervisor was lost while its `skip_if` ran; its command never began"
    assert not lives(pid)
    assert not (rig.directory(1) / "stdout.log").exists()
    assert repo.branches() == ["main"], "its worktree is removed like any other's"


def test_what_is_finished_is_not_finished_again(rig: Rig, launch: Callable[..., None]) -> None:
    launch("echo changed > file")
    assert rig.exited(1).code == 0
    _patch(rig).unlink()
    rig.kill_supervisor()
    rig.wait_for(Lost)
    assert rig.exited(1).code == 0
    assert not _patch(rig).exists()


def _kept(rig: Rig) -> object:
    return json.loads((rig.directory(1) / "workspace.json").read_text())["kept"]


def test_what_the_command_left_running_is_gone_before_the_patch_is_taken(
    rig: Rig, launch: Callable[..., None], fifo: MakeFifo
) -> None:
    told = fifo("said")
    launch(f"setsid sh -c 'trap \"echo late > late; exit\" TERM; echo $$ > {told.path}; sleep 1000 & wait' & "
           f"read x < {told.path}")  # fmt: skip
    assert rig.exited(1).code == 0
    assert "+late" in _patch(rig).read_text()


def test_a_command_that_removes_its_worktree_keeps_its_exit_code(rig: Rig, launch: Callable[..., None]) -> None:
    launch('rm -rf "$PWD"; exit 9')
    end = rig.exited(1)
    assert end.code == 9
    assert "does not exist" in end.trouble


def test_a_record_that_the_command_spoils_is_not_believed(
    rig: Rig, repo: Repository, launch: Callable[..., None], tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    repo.git("worktree", "add", "-q", "-b", "precious", str(precious))
    spoiled = rig.directory(1) / "workspace.json"
    launch(f"""echo '{{"worktree": "{precious}", "branch": "precious"}}' > {spoiled}""")
    assert rig.exited(1).trouble == ""
    assert precious.is_dir()
    assert repo.branches() == ["main", "precious"]


def test_a_patch_without_a_worktree(rig: Rig, repo: Repository, launch: Callable[..., None]) -> None:
    repo.write("mine", "mine\n")
    launch("pwd; echo more >> file", base=None, patch=True)
    assert rig.exited(1).code == 0
    assert rig.stdout(1) == f"{repo.path}\n"
    text = _patch(rig).read_text()
    assert "+more" in text
    assert "mine" not in text


def test_two_side_by_side(rig: Rig, repo: Repository, fifo: MakeFifo) -> None:
    gates = {run: fifo(f"gate-{run}") for run in (1, 2)}
    base = repo.git("rev-parse", "HEAD")
    for run, gate in gates.items():
        workspace = {
            "home": str(rig.home), "job": f"job-{run}", "directory": str(rig.directory(run)), "cwd": str(repo.path),
            "repository": repo.common, "base": base, "limit": 20.0,
        }  # fmt: skip
        script = f"read x < {gate.path}; echo {run} > file; git commit -qam {run}"
        rig.shell(run, script, cwd=str(repo.path), workspace=workspace, overlay=dict(IDENTITY))
    for run in gates:
        rig.started(run)
    assert len(repo.worktrees()) == 2
    for gate in gates.values():
        gate.release()
    assert [rig.exited(run).code for run in gates] == [0, 0]
    for run in gates:
        assert f"+{run}\n" in (rig.directory(run) / "command.patch").read_text()
        assert repo.git("show", f"rota/job-{run}:file") == str(run)


def test_a_full_disk_is_the_machines_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'fatal: could not write: No space left on device' >&2; exit 128\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with rig_in(tmp_path / "another") as rig:
        workspace = {
            "home": str(rig.home), "job": "job-1", "directory": str(rig.directory(1)), "cwd": "/",
            "repository": "/", "base": "1", "limit": 20.0,
        }  # fmt: skip
        rig.shell(1, "true", workspace=workspace)
        assert rig.wait_for(FailedToStart, 1).is_machine
