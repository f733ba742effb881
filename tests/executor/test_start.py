"""Starting children: exit codes, surroundings, files, and what is said when there is no child."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from executor.rig import Fifo, Rig
from rota.executor.port import Exited, FailedToStart, Start, Started
from rota.executor.supervisor import process

MakeFifo = Callable[[str], Fifo]


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code(rig: Rig, code: int) -> None:
    before = time.time()
    rig.shell(1, f"exit {code}")
    end = rig.exited(1)
    assert (end.code, end.signal, end.ended_by, end.skipped, end.watched) == (code, None, None, None, True)
    assert before <= end.at <= time.time()


@pytest.mark.parametrize("number", [9, 15, 11])
def test_killed_by_signal(rig: Rig, number: int) -> None:
    rig.shell(1, f"ulimit -c 0; kill -{number} $$")
    end = rig.exited(1)
    assert (end.code, end.signal, end.ended_by) == (None, number, None)


def test_started_comes_first_and_names_the_process(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, f"echo $$ > {told.path}; exec sleep 1000")
    started = rig.started(1)
    assert started.pid == told.number()
    found = process.look(started.pid)
    assert found is not None
    assert found.start_time == started.start_time


def test_own_session_and_group(rig: Rig, fifo: MakeFifo) -> None:
    rig.start(1, ["sleep", "1000"])
    started = rig.started(1)
    found = process.look(started.pid)
    assert found is not None
    assert found.session == found.group == started.pid


def test_streams_go_straight_to_files(rig: Rig) -> None:
    rig.shell(1, "echo out; echo err >&2; cat; ls -l /proc/self/fd/0 >&2")
    assert rig.exited(1).code == 0
    directory = rig.directory(1)
    assert rig.stdout(1) == "out\n"
    assert (directory / "stderr.log").read_text().startswith("err\n")
    assert "/dev/null" in (directory / "stderr.log").read_text()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "stdout.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((directory / "stderr.log").stat().st_mode) == 0o600


def test_missing_parents_of_the_directory_are_made(rig: Rig) -> None:
    deep = rig.home / "a" / "b" / "c"
    rig.shell(1, "echo x", directory=str(deep))
    rig.exited(1)
    assert (deep / "stdout.log").read_text() == "x\n"


def test_logs_are_appended_to(rig: Rig) -> None:
    rig.directory(1).mkdir()
    (rig.directory(1) / "stdout.log").write_text("before\n")
    rig.shell(1, "echo after")
    rig.exited(1)
    assert rig.stdout(1) == "before\nafter\n"


def test_environment_is_surroundings_overlay_and_tag(rig: Rig) -> None:
    rig.start(1, ["env"], overlay={"ROTA_JOB": "job-1", "SHARED": "above", "ROTA_PARAMS": "{}"})
    rig.exited(1)
    found = dict(line.split("=", 1) for line in rig.stdout(1).splitlines())
    assert found == {
        "PATH": os.environ["PATH"],
        "GREETING": "hello",
        "SHARED": "above",
        "ROTA_JOB": "job-1",
        "ROTA_PARAMS": "{}",
        "ROTA_HOME": str(rig.home.resolve()),
        "ROTA_RUN": "run-1",
    }


def test_bytes_that_are_not_utf8_pass_through(rig: Rig) -> None:
    odd = os.fsdecode(b"caf\xe9")
    rig.start(1, ["sh", "-c", 'printf %s "$1$ODD"', "sh", odd], overlay={"ODD": odd})
    rig.exited(1)
    assert (rig.directory(1) / "stdout.log").read_bytes() == b"caf\xe9caf\xe9"
    rig.start(2, [odd])
    assert rig.failed(2) == "program not found: caf\ufffd"


def test_children_get_default_signals_and_no_descriptors(rig: Rig) -> None:
    script = (
        "import os,signal; print(sorted(os.listdir('/proc/self/fd'), key=int)[:-1]); "
        "print([s.name for s in signal.valid_signals() if isinstance(s, signal.Signals) and "
        "s.name not in ('SIGPIPE', 'SIGXFSZ') and signal.getsignal(s) == signal.SIG_IGN]); "
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    rig.start(1, ["python3", "-c", script])
    rig.exited(1)
    assert rig.stdout(1).splitlines() == ["['0', '1', '2']", "[]", "set()"]


def test_children_do_not_ignore_what_python_ignores(rig: Rig) -> None:
    rig.start(1, ["grep", "SigIgn", "/proc/self/status"])
    rig.exited(1)
    ignored = int(rig.stdout(1).split()[1], 16)
    assert [each.name for each in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (each - 1) & 1] == []


def test_children_get_the_users_umask(rig: Rig) -> None:
    mask = os.umask(0)
    os.umask(mask)
    rig.shell(1, "umask")
    rig.exited(1)
    assert int(rig.stdout(1), 8) == mask


def test_missing_program(rig: Rig) -> None:
    rig.start(1, ["no-such-program-here", "x"])
    assert rig.failed(1) == "program not found: no-such-program-here"


def test_missing_directory(rig: Rig) -> None:
    rig.start(1, ["true"], cwd="/nowhere/at/all")
    assert rig.failed(1) == "working directory does not exist: /nowhere/at/all"


def test_directory_that_is_a_file(rig: Rig) -> None:
    rig.start(1, ["true"], cwd="/etc/passwd")
    assert rig.failed(1) == "working directory cannot be used: Not a directory: /etc/passwd"


def test_not_executable(rig: Rig) -> None:
    script = rig.home / "script"
    script.write_text("#!/bin/sh\n")
    rig.start(1, [str(script)])
    assert rig.failed(1) == f"permission denied: {script} is not executable"


def test_not_a_program(rig: Rig) -> None:
    script = rig.home / "script"
    script.write_text("true\n")
    script.chmod(0o755)
    rig.start(1, [str(script)])
    assert rig.failed(1).startswith(f"not a program: {script}")


def test_missing_interpreter(rig: Rig) -> None:
    script = rig.home / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    rig.start(1, ["./script"])
    assert rig.failed(1).startswith("interpreter not found: the first line of ./script")


def test_too_long(rig: Rig) -> None:
    rig.start(1, ["true", "x" * 3_000_000])
    assert rig.failed(1) == "arguments and environment are too long: true"


@pytest.mark.parametrize("argv", [[], ["tr\0ue"]])
def test_what_cannot_be_a_command(rig: Rig, argv: list[str]) -> None:
    rig.start(1, argv)
    assert rig.failed(1).startswith("cannot be started: ")


def test_log_directory_that_cannot_be_made(rig: Rig) -> None:
    (rig.home / "taken").write_text("")
    rig.start(1, ["true"], directory=str(rig.home / "taken" / "job"))
    assert rig.failed(1).startswith("cannot be started: Not a directory")


def test_unknown_surroundings(rig: Rig) -> None:
    rig.start(1, ["true"], surroundings=77)
    assert "surroundings 77" in rig.failed(1)


def test_one_bad_start_does_not_harm_the_next(rig: Rig) -> None:
    rig.send(rig.order(1, ["no-such-program-here"]), rig.order(2, ["true"]), rig.order(3, ["true"], cwd="/nowhere"))
    assert rig.exited(2).code == 0


def test_tail_is_the_end_of_stderr(rig: Rig) -> None:
    rig.shell(1, "for i in $(seq 1 50); do echo line $i >&2; done; exit 1")
    lines = rig.exited(1).tail.splitlines()
    assert lines == [f"line {n}" for n in range(31, 51)]


def test_tail_is_short_and_any_bytes_will_do(rig: Rig) -> None:
    rig.start(1, ["python3", "-c", "import sys; sys.stderr.buffer.write(b'\\xff' * 100_000); sys.exit(1)"])
    assert rig.exited(1).tail == "\ufffd" * 4096
    rig.shell(2, "echo fine >&2")
    assert rig.exited(2).tail == ""


def test_five_hundred_that_end_at_once_and_none_is_lost(rig: Rig) -> None:
    orders: list[Start] = [rig.order(n, ["/bin/true"]) for n in range(1, 501)]
    rig.send(*orders)
    open_runs = set(range(1, 501))

    def is_last(message: object) -> bool:
        assert not isinstance(message, FailedToStart)
        if isinstance(message, Exited):
            assert message.code == 0
            open_runs.remove(message.run)
        return not open_runs

    rig.wait_until(is_last, "500 ends", patience=60)
    order = [(type(m).__name__, int(m.run)) for m in rig.seen if isinstance(m, Started | Exited)]
    assert all(order.index(("Started", n)) < order.index(("Exited", n)) for n in range(1, 501))
    assert len(order) == 1000


def test_supervisor_is_small(rig: Rig) -> None:
    rig.start(1, ["true"])
    rig.exited(1)
    status = Path(f"/proc/{rig.executor.supervisor_pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 20_000
