"""The two ways of making a child: they differ in speed only."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.executor.supervisor import logs, spawn
from rota.executor.supervisor.step import Step

Make = Callable[[list[str], str, dict[str, str], tuple[int, int, int]], int]


def made(make: Make, argv: list[str], cwd: str, variables: dict[str, str], out: Path) -> str:
    """What the child wrote, or why there is none; in a thread, for the quick way takes a directory of its own."""
    said: list[str] = []

    def work() -> None:
        if make is spawn._make_child:
            assert spawn._take_own_directory()
        streams = os.open(os.devnull, os.O_RDONLY), os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            pid = make(argv, cwd, variables, (*streams, streams[1]))
            os.waitpid(pid, 0)
            said.append(out.read_text())
        except OSError as error:
            said.append(f"{error.errno} {error.filename}")
        except ValueError as error:
            said.append(str(error))
        finally:
            for fd in streams:
                os.close(fd)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return said[0]


def launch(directory: Path, *argv: str, cwd: str = "/") -> spawn.Launch:
    order = {"argv": list(argv), "cwd": cwd, "directory": str(directory), "overlay": {}}
    return spawn.Launch(order, {"PATH": "/usr/bin:/bin"})


def next_done(spawner: spawn.Spawner) -> list[spawn.Spawned]:
    assert select.select([spawner.bell], [], [], 60)[0], "nothing was started in a minute"
    return spawner.collect()


def script(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["pwd"], "{cwd}\n"),
        (["sh", "-c", 'echo "$V" $0', "x"], "value x\n"),
        (["./mine"], "mine in {cwd}\n"),
        (["both"], "second\n"),  # the first of that name on the search path cannot be executed
        (["locked"], "13 locked"),
        (["./locked"], "13 ./locked"),
        (["nowhere"], "2 nowhere"),
        (["./nowhere"], "2 ./nowhere"),
    ],
)
@pytest.mark.parametrize("make", [spawn._make_child, spawn._make_child_slowly])
def test_both_ways_find_and_start_the_same(tmp_path: Path, make: Make, argv: list[str], said: str) -> None:
    cwd = tmp_path / "cwd"
    script(cwd / "mine", "echo mine in $(pwd)")
    script(cwd / "locked", "echo no", 0o600)
    script(tmp_path / "one" / "both", "echo first", 0o600)
    script(tmp_path / "one" / "locked", "echo no", 0o600)
    script(tmp_path / "two" / "both", "echo second")
    here = os.getcwd()  # noqa: PTH109
    variables = {"PATH": f"{tmp_path}/one:{tmp_path}/two:/usr/bin:/bin", "V": "value"}
    assert made(make, argv, str(cwd), variables, tmp_path / "out") == said.format(cwd=cwd)
    assert os.getcwd() == here, "other threads stay where they are"  # noqa: PTH109


def test_children_have_the_umask_of_the_time_when_the_spawner_was_made(tmp_path: Path) -> None:
    """The socket is bound under another one, right after."""
    before = os.umask(0o027)
    try:
        spawner = spawn.Spawner(str(tmp_path))
        os.umask(0o177)
        spawner.ask(1, launch(tmp_path / "job", "sh", "-c", "umask"), Step.MAIN)
        (spawned,) = next_done(spawner)
        os.waitpid(spawned.pid, 0)
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


def test_a_program_that_cannot_be_loaded_yet_keeps_nobody(tmp_path: Path) -> None:
    """Neither another start nor this thread. Whoever opens a file that somebody has leased is kept until it is given
    back, in the kernel and in the middle of its exec."""
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    command = [sys.executable, "-c", _HOLDER, str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        spawner = spawn.Spawner(str(tmp_path))
        spawner.ask(1, launch(tmp_path / "1", str(program)), Step.MAIN)
        spawner.ask(2, launch(tmp_path / "2", "true"), Step.MAIN)
        (second,) = next_done(spawner)
        assert (second.run, second.error, spawner.in_flight) == (2, "", 1)
        holder.kill()  # the end of its input would not do: the child that is kept has that open too
    (first,) = next_done(spawner)
    assert (first.run, first.error) == (1, "")
    for spawned in (first, second):
        os.waitpid(spawned.pid, 0)


def test_a_start_that_hangs_keeps_nobody_else(tmp_path: Path) -> None:
    """As on a mount that does not answer: the first waits for somebody who reads its log."""
    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "1" / logs.STDOUT)
    spawner = spawn.Spawner(str(tmp_path))
    spawner.ask(1, launch(tmp_path / "1", "true"), Step.MAIN)
    for run in range(2, 6):
        spawner.ask(run, launch(tmp_path / str(run), "true"), Step.MAIN)
        (spawned,) = next_done(spawner)
        assert (spawned.run, spawned.error) == (run, "")
        os.waitpid(spawned.pid, 0)
    assert spawner.in_flight == 1
    reader = os.open(tmp_path / "1" / logs.STDOUT, os.O_RDONLY)
    (spawned,) = next_done(spawner)
    assert spawned.run == 1
    os.waitpid(spawned.pid, 0)
    os.close(reader)


def test_many_at_once_have_each_their_own_directory_and_logs(tmp_path: Path) -> None:
    """Several threads start them, with one spare directory among them, each where its job is to begin."""
    spawner = spawn.Spawner(str(tmp_path))
    places = {run: tmp_path / f"place-{run}" for run in range(1, 61)}
    for run, place in places.items():
        place.mkdir()
        spawner.ask(run, launch(tmp_path / str(run), "sh", "-c", f"pwd; echo {run} >&2", cwd=str(place)), Step.MAIN)
    while spawner.in_flight:
        for spawned in next_done(spawner):
            assert os.waitpid(spawned.pid, 0)[1] == 0
    said = {run: ((tmp_path / str(run) / logs.STDOUT).read_text(), (tmp_path / str(run) / logs.STDERR).read_text())
            for run in places}  # fmt: skip
    assert said == {run: (f"{place}\n", f"{run}\n") for run, place in places.items()}


@pytest.mark.parametrize("make", [spawn._make_child, spawn._make_child_slowly])
@pytest.mark.parametrize(
    ("argv", "variables"),
    [(["true", "a\0b"], {}), (["tr\0ue"], {}), (["true"], {"V": "a\0b"}), (["true"], {"A=B": "c"})],
    ids=["word", "program", "variable", "name"],
)
def test_both_ways_refuse_what_no_program_can_be_given(
    tmp_path: Path, make: Make, argv: list[str], variables: dict[str, str]
) -> None:
    said = made(make, argv, "/", {"PATH": "/usr/bin:/bin", **variables}, tmp_path / "out")
    assert said in ("embedded null byte", "illegal environment variable name")


def test_a_variable_without_a_name_is_refused(tmp_path: Path) -> None:
    said = made(spawn._make_child, ["true"], "/", {"PATH": "/usr/bin:/bin", "": "x"}, tmp_path / "out")
    assert said == "illegal environment variable name"


@pytest.mark.parametrize("make", [spawn._make_child, spawn._make_child_slowly])
def test_both_ways_name_a_directory_that_is_not_there(tmp_path: Path, make: Make) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert made(make, ["true"], nowhere, {"PATH": "/usr/bin:/bin"}, tmp_path / "out") == f"2 {nowhere}"
