"""Starting children: exit codes, environment, files, and the errors of failed starts."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.executor.port import ExitReport, StartConfirmation, StartFailure, StartOrder
from rota.supervisor import process
from tests.supervisor.rig import Fifo, Rig

MakeFifo = Callable[[str], Fifo]


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_is_reported(rig: Rig, code: int) -> None:
    before = time.time()
    rig.start_shell(1, f"exit {code}")
    end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.ended_by, end.skip_reason, end.is_observed) == (code, None, None, None, True)
    assert before <= end.at <= time.time()


@pytest.mark.parametrize("number", [9, 15, 11])
def test_signal_is_reported(rig: Rig, number: int) -> None:
    rig.start_shell(1, f"ulimit -c 0; kill -{number} $$")
    end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.ended_by) == (None, number, None)


def test_start_confirmation_names_the_process(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, f"echo $$ > {channel.path}; exec sleep 1000")
    started = rig.wait_for_start(1)
    assert started.pid == channel.read_number()
    status = process.read_process(started.pid)
    assert status is not None
    assert status.start_time == started.start_time


def test_run_has_its_own_session_and_group(rig: Rig, make_fifo: MakeFifo) -> None:
    rig.start(1, ["sleep", "1000"])
    started = rig.wait_for_start(1)
    status = process.read_process(started.pid)
    assert status is not None
    assert status.session == status.group == started.pid


def test_output_goes_to_private_files(rig: Rig) -> None:
    rig.start_shell(1, "echo out; echo err >&2; cat; ls -l /proc/self/fd/0 >&2")
    assert rig.wait_for_exit(1).code == 0
    directory = rig.directory(1)
    assert rig.read_stdout(1) == "out\n"
    assert (directory / "stderr.log").read_text().startswith("err\n")
    assert "/dev/null" in (directory / "stderr.log").read_text()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "stdout.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((directory / "stderr.log").stat().st_mode) == 0o600


def test_missing_parent_directories_are_created(rig: Rig) -> None:
    deep = rig.home / "a" / "b" / "c"
    rig.start_shell(1, "echo x", directory=str(deep))
    rig.wait_for_exit(1)
    assert (deep / "stdout.log").read_text() == "x\n"


def test_logs_are_appended_to(rig: Rig) -> None:
    rig.directory(1).mkdir()
    (rig.directory(1) / "stdout.log").write_text("before\n")
    rig.start_shell(1, "echo after")
    rig.wait_for_exit(1)
    assert rig.read_stdout(1) == "before\nafter\n"


def test_environment_consists_of_upload_overlay_and_tag(rig: Rig) -> None:
    rig.start(1, ["env"], overlay={"ROTA_JOB": "job-1", "SHARED": "above", "ROTA_PARAMS": "{}"})
    rig.wait_for_exit(1)
    variables = dict(line.split("=", 1) for line in rig.read_stdout(1).splitlines())
    assert variables == {
        "PATH": os.environ["PATH"],
        "GREETING": "hello",
        "SHARED": "above",
        "ROTA_JOB": "job-1",
        "ROTA_PARAMS": "{}",
        "ROTA_HOME": str(rig.home.resolve()),
        "ROTA_RUN": "run-1",
    }


def test_non_utf8_bytes_pass_through(rig: Rig) -> None:
    non_utf8 = os.fsdecode(b"caf\xe9")
    rig.start(1, ["sh", "-c", 'printf %s "$1$ODD"', "sh", non_utf8], overlay={"ODD": non_utf8})
    rig.wait_for_exit(1)
    assert (rig.directory(1) / "stdout.log").read_bytes() == b"caf\xe9caf\xe9"
    rig.start(2, [non_utf8])
    assert rig.wait_for_failure(2) == "program not found: caf\ufffd"


def test_children_get_default_signals_and_no_descriptors(rig: Rig) -> None:
    script = (
        "import os,signal; print(sorted(os.listdir('/proc/self/fd'), key=int)[:-1]); "
        "print([s.name for s in signal.valid_signals() if isinstance(s, signal.Signals) and "
        "s.name not in ('SIGPIPE', 'SIGXFSZ') and signal.getsignal(s) == signal.SIG_IGN]); "
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    rig.start(1, ["python3", "-c", script])
    rig.wait_for_exit(1)
    assert rig.read_stdout(1).splitlines() == ["['0', '1', '2']", "[]", "set()"]


def test_children_do_not_ignore_signals_that_python_ignores(rig: Rig) -> None:
    rig.start(1, ["grep", "SigIgn", "/proc/self/status"])
    rig.wait_for_exit(1)
    ignored = int(rig.read_stdout(1).split()[1], 16)
    assert [number.name for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []


def test_children_get_the_users_umask(rig: Rig) -> None:
    mask = os.umask(0)
    os.umask(mask)
    rig.start_shell(1, "umask")
    rig.wait_for_exit(1)
    assert int(rig.read_stdout(1), 8) == mask


def test_missing_program_fails_the_start(rig: Rig) -> None:
    rig.start(1, ["no-such-program-here", "x"])
    assert rig.wait_for_failure(1) == "program not found: no-such-program-here"


def test_missing_working_directory_fails_the_start(rig: Rig) -> None:
    rig.start(1, ["true"], cwd="/nowhere/at/all")
    assert rig.wait_for_failure(1) == "working directory does not exist: /nowhere/at/all"


def test_working_directory_that_is_a_file_fails_the_start(rig: Rig) -> None:
    rig.start(1, ["true"], cwd="/etc/passwd")
    assert rig.wait_for_failure(1) == "working directory cannot be used: Not a directory: /etc/passwd"


def test_program_without_permission_fails_the_start(rig: Rig) -> None:
    script = rig.home / "script"
    script.write_text("#!/bin/sh\n")
    rig.start(1, [str(script)])
    assert rig.wait_for_failure(1) == f"permission denied: {script} is not executable"


def test_script_without_interpreter_line_fails_the_start(rig: Rig) -> None:
    script = rig.home / "script"
    script.write_text("true\n")
    script.chmod(0o755)
    rig.start(1, [str(script)])
    assert rig.wait_for_failure(1).startswith(f"not a program: {script}")


def test_missing_interpreter_fails_the_start(rig: Rig) -> None:
    script = rig.home / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    rig.start(1, ["./script"])
    assert rig.wait_for_failure(1).startswith("interpreter not found: the first line of ./script")


def test_too_long_arguments_fail_the_start(rig: Rig) -> None:
    rig.start(1, ["true", "x" * 3_000_000])
    assert rig.wait_for_failure(1) == "arguments and environment are too long: true"


@pytest.mark.parametrize("argv", [[], ["tr\0ue"]])
def test_invalid_command_fails_the_start(rig: Rig, argv: list[str]) -> None:
    rig.start(1, argv)
    assert rig.wait_for_failure(1).startswith("cannot be started: ")


def test_unusable_jobs_directory_is_a_machine_failure(rig: Rig) -> None:
    (rig.home / "file").write_text("")
    rig.start(1, ["true"], directory=str(rig.home / "file" / "job"))
    failure = rig.wait_for(StartFailure, 1)
    assert failure.is_machine_failure, "the home is at fault, not the job"
    assert failure.error == f"{rig.home}/file cannot be used: Not a directory; no jobs start until it is usable"


def test_unusable_job_directory_fails_only_that_start(rig: Rig) -> None:
    rig.directory(1).write_text("a file in its place")
    rig.start(1, ["true"])
    failure = rig.wait_for(StartFailure, 1)
    assert not failure.is_machine_failure
    assert failure.error.startswith(f"cannot be started: Not a directory: {rig.directory(1)}")
    rig.start_shell(2, "echo fine")
    assert rig.wait_for_exit(2).code == 0


def test_unknown_environment_fails_the_start(rig: Rig) -> None:
    rig.start(1, ["true"], environment_id=77)
    assert "environment 77" in rig.wait_for_failure(1)


def test_failed_start_does_not_affect_the_next(rig: Rig) -> None:
    rig.send(
        rig.make_order(1, ["no-such-program-here"]),
        rig.make_order(2, ["true"]),
        rig.make_order(3, ["true"], cwd="/nowhere"),
    )
    assert rig.wait_for_exit(2).code == 0


def test_tail_is_the_end_of_stderr(rig: Rig) -> None:
    rig.start_shell(1, "for i in $(seq 1 50); do echo line $i >&2; done; exit 1")
    lines = rig.wait_for_exit(1).tail.splitlines()
    assert lines == [f"line {n}" for n in range(31, 51)]


def test_tail_is_limited_and_accepts_any_bytes(rig: Rig) -> None:
    rig.start(1, ["python3", "-c", "import sys; sys.stderr.buffer.write(b'\\xff' * 100_000); sys.exit(1)"])
    assert rig.wait_for_exit(1).tail == "\ufffd" * 4096
    rig.start_shell(2, "echo fine >&2")
    assert rig.wait_for_exit(2).tail == ""


def test_five_hundred_short_runs_are_all_reported(rig: Rig) -> None:
    orders: list[StartOrder] = [rig.make_order(n, ["/bin/true"]) for n in range(1, 501)]
    rig.send(*orders)
    open_runs = set(range(1, 501))

    def is_last(message: object) -> bool:
        assert not isinstance(message, StartFailure)
        if isinstance(message, ExitReport):
            assert message.code == 0
            open_runs.remove(message.run)
        return not open_runs

    rig.wait_for_message(is_last, "500 exits", timeout=60)
    order = [(type(m).__name__, int(m.run)) for m in rig.received if isinstance(m, StartConfirmation | ExitReport)]
    assert all(order.index(("StartConfirmation", n)) < order.index(("ExitReport", n)) for n in range(1, 501))
    assert len(order) == 1000


def test_supervisor_uses_little_memory(rig: Rig) -> None:
    rig.start(1, ["true"])
    rig.wait_for_exit(1)
    status = Path(f"/proc/{rig.executor.supervisor_pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 20_000
