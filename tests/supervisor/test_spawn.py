"""The two spawn functions differ only in speed."""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.supervisor import log_files, spawn
from rota.supervisor.cgroup import Cgroups
from rota.supervisor.spawn import RunStep

SpawnChild = Callable[[list[str], str, dict[str, str], tuple[int, int, int]], int]


def run_child(spawn_child: SpawnChild, argv: list[str], cwd: str, variables: dict[str, str], out: Path) -> str:
    """Return the child's output, or the error. In a thread, because `_spawn_child` needs its own working directory."""
    output: list[str] = []

    def spawn_and_wait() -> None:
        if spawn_child is spawn._spawn_child:
            assert spawn._unshare_directory()
        streams = os.open(os.devnull, os.O_RDONLY), os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            pid = spawn_child(argv, cwd, variables, (*streams, streams[1]))
            os.waitpid(pid, 0)
            output.append(out.read_text())
        except OSError as error:
            output.append(f"{error.errno} {error.filename}")
        except ValueError as error:
            output.append(str(error))
        finally:
            for fd in streams:
                os.close(fd)

    thread = threading.Thread(target=spawn_and_wait)
    thread.start()
    thread.join()
    return output[0]


def make_launch(directory: Path, *argv: str, cwd: str = "/") -> spawn.RunLaunch:
    order = {"argv": list(argv), "cwd": cwd, "directory": str(directory), "overlay": {}}
    return spawn.RunLaunch(order, {"PATH": "/usr/bin:/bin"})


def wait_for_results(spawner: spawn.Spawner) -> list[spawn.SpawnResult]:
    assert select.select([spawner.results_fd], [], [], 60)[0], "no child was started within a minute"
    return spawner.collect_results()


def write_script(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["pwd"], "{cwd}\n"),
        (["sh", "-c", 'echo "$V" $0', "x"], "value x\n"),
        (["./mine"], "mine in {cwd}\n"),
        (["both"], "second\n"),  # the first match on the search path is not executable
        (["locked"], "13 locked"),
        (["./locked"], "13 ./locked"),
        (["nowhere"], "2 nowhere"),
        (["./nowhere"], "2 ./nowhere"),
    ],
)
@pytest.mark.parametrize("spawn_child", [spawn._spawn_child, spawn._spawn_child_with_popen])
def test_both_spawn_functions_resolve_programs_alike(
    tmp_path: Path, spawn_child: SpawnChild, argv: list[str], output: str
) -> None:
    cwd = tmp_path / "cwd"
    write_script(cwd / "mine", "echo mine in $(pwd)")
    write_script(cwd / "locked", "echo no", 0o600)
    write_script(tmp_path / "one" / "both", "echo first", 0o600)
    write_script(tmp_path / "one" / "locked", "echo no", 0o600)
    write_script(tmp_path / "two" / "both", "echo second")
    before = os.getcwd()  # noqa: PTH109
    variables = {"PATH": f"{tmp_path}/one:{tmp_path}/two:/usr/bin:/bin", "V": "value"}
    assert run_child(spawn_child, argv, str(cwd), variables, tmp_path / "out") == output.format(cwd=cwd)
    assert os.getcwd() == before, "the directory of other threads is unchanged"  # noqa: PTH109


def test_children_have_the_umask_at_spawner_creation(tmp_path: Path) -> None:
    """The socket is bound with a different umask right afterward."""
    before = os.umask(0o027)
    try:
        spawner = spawn.Spawner(str(tmp_path), Cgroups(""))
        os.umask(0o177)
        spawner.submit(1, make_launch(tmp_path / "job", "sh", "-c", "umask"), RunStep.MAIN)
        (result,) = wait_for_results(spawner)
        os.waitpid(result.pid, 0)
    finally:
        os.umask(before)
    assert (tmp_path / "job" / "stdout.log").read_text() == "0027\n"


_HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_hanging_exec_does_not_delay_other_starts(tmp_path: Path) -> None:
    """Neither another start nor this thread waits. Opening a file with a lease blocks in the kernel, in the middle of
    the exec, until the lease is released."""
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    command = [sys.executable, "-c", _HOLDER, str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        spawner = spawn.Spawner(str(tmp_path), Cgroups(""))
        spawner.submit(1, make_launch(tmp_path / "1", str(program)), RunStep.MAIN)
        spawner.submit(2, make_launch(tmp_path / "2", "true"), RunStep.MAIN)
        (second,) = wait_for_results(spawner)
        assert (second.run, second.error, spawner.in_flight) == (2, "", 1)
        holder.kill()  # closing its input is not enough: the blocked child has it open too
    (first,) = wait_for_results(spawner)
    assert (first.run, first.error) == (1, "")
    for result in (first, second):
        os.waitpid(result.pid, 0)


def test_hanging_log_file_does_not_delay_other_starts(tmp_path: Path) -> None:
    """As on a mount that does not answer: the first start waits for a reader of its log."""
    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "1" / log_files.STDOUT)
    spawner = spawn.Spawner(str(tmp_path), Cgroups(""))
    spawner.submit(1, make_launch(tmp_path / "1", "true"), RunStep.MAIN)
    for run in range(2, 6):
        spawner.submit(run, make_launch(tmp_path / str(run), "true"), RunStep.MAIN)
        (result,) = wait_for_results(spawner)
        assert (result.run, result.error) == (run, "")
        os.waitpid(result.pid, 0)
    assert spawner.in_flight == 1
    reader = os.open(tmp_path / "1" / log_files.STDOUT, os.O_RDONLY)
    (result,) = wait_for_results(spawner)
    assert result.run == 1
    os.waitpid(result.pid, 0)
    os.close(reader)


def test_child_is_reported_if_its_spawner_cannot_leave_the_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its pid the child would run unwatched, and its run would be started again."""
    cgroups = Cgroups(str(tmp_path))

    def refuse() -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(cgroups, "enter", lambda _: None)
    monkeypatch.setattr(cgroups, "leave", refuse)
    spawner = spawn.Spawner(str(tmp_path), cgroups)
    spawner.submit(1, make_launch(tmp_path / "1", "true"), RunStep.MAIN)
    (result,) = wait_for_results(spawner)
    assert result.error == ""
    assert os.waitpid(result.pid, 0)[1] == 0


def test_concurrent_starts_use_their_own_directories_and_logs(tmp_path: Path) -> None:
    """Several threads share one spare directory, and each child starts in its own working directory."""
    spawner = spawn.Spawner(str(tmp_path), Cgroups(""))
    directories = {run: tmp_path / f"cwd-{run}" for run in range(1, 61)}
    for run, directory in directories.items():
        directory.mkdir()
        spawner.submit(
            run, make_launch(tmp_path / str(run), "sh", "-c", f"pwd; echo {run} >&2", cwd=str(directory)), RunStep.MAIN
        )
    while spawner.in_flight:
        for result in wait_for_results(spawner):
            assert os.waitpid(result.pid, 0)[1] == 0
    output = {
        run: (
            (tmp_path / str(run) / log_files.STDOUT).read_text(),
            (tmp_path / str(run) / log_files.STDERR).read_text(),
        )
        for run in directories
    }
    assert output == {run: (f"{directory}\n", f"{run}\n") for run, directory in directories.items()}


@pytest.mark.parametrize("spawn_child", [spawn._spawn_child, spawn._spawn_child_with_popen])
@pytest.mark.parametrize(
    ("argv", "variables"),
    [(["true", "a\0b"], {}), (["tr\0ue"], {}), (["true"], {"V": "a\0b"}), (["true"], {"A=B": "c"})],
    ids=["argument", "program", "variable", "name"],
)
def test_both_spawn_functions_refuse_invalid_strings(
    tmp_path: Path, spawn_child: SpawnChild, argv: list[str], variables: dict[str, str]
) -> None:
    output = run_child(spawn_child, argv, "/", {"PATH": "/usr/bin:/bin", **variables}, tmp_path / "out")
    assert output in ("embedded null byte", "illegal environment variable name")


def test_variable_without_a_name_is_refused(tmp_path: Path) -> None:
    output = run_child(spawn._spawn_child, ["true"], "/", {"PATH": "/usr/bin:/bin", "": "x"}, tmp_path / "out")
    assert output == "illegal environment variable name"


@pytest.mark.parametrize("spawn_child", [spawn._spawn_child, spawn._spawn_child_with_popen])
def test_both_spawn_functions_name_a_missing_directory(tmp_path: Path, spawn_child: SpawnChild) -> None:
    missing = str(tmp_path / "missing")
    assert run_child(spawn_child, ["true"], missing, {"PATH": "/usr/bin:/bin"}, tmp_path / "out") == f"2 {missing}"
