"""`timeout`, `idle_timeout` and `skip_if`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from rota.executor.port import StartConfirmation
from tests.supervisor.rig import Fifo, Rig, ends_within, is_alive

MakeFifo = Callable[[str], Fifo]


def test_timeout_ends_the_tree(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    before = time.monotonic()
    rig.start_shell(1, f"setsid sh -c 'echo $$ > {channel.path}; exec sleep 1000' & wait", timeout=0.5)
    leftover = channel.read_number()
    end = rig.wait_for_exit(1)
    assert (end.signal, end.ended_by) == (signal.SIGTERM, "timeout")
    assert 0.5 <= time.monotonic() - before < 5
    assert not is_alive(leftover)


def test_unreached_timeout_has_no_effect(rig: Rig) -> None:
    rig.start_shell(1, "exit 2", timeout=1000.0, idle_timeout=1000.0)
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (2, None)


def test_timeout_holds_without_a_scheduler(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"], timeout=0.3)
    pid = rig.wait_for_start(1).pid
    rig.executor.close()
    assert ends_within(pid)
    rig.reconnect()
    assert rig.wait_for_exit(1).ended_by == "timeout"


def test_idle_timeout_ends_a_silent_run(rig: Rig) -> None:
    before = time.monotonic()
    rig.start(1, ["sleep", "1000"], idle_timeout=0.4)
    end = rig.wait_for_exit(1)
    assert (end.signal, end.ended_by) == (signal.SIGTERM, "idle_timeout")
    assert 0.4 <= time.monotonic() - before < 5


def test_idle_timeout_spares_a_run_with_output(rig: Rig) -> None:
    rig.start_shell(1, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i >&2; sleep 0.1; done", idle_timeout=0.7)
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (0, None)


def test_idle_timeout_counts_from_the_last_output(rig: Rig) -> None:
    before = time.monotonic()
    rig.start_shell(1, "sleep 0.9; echo late; exec sleep 1000", idle_timeout=1.0)
    assert rig.wait_for_exit(1).ended_by == "idle_timeout"
    assert 1.8 <= time.monotonic() - before < 2.8  # not a whole period after the first check, which would be at 2.0


def test_skip_if_with_exit_zero_skips_the_command(rig: Rig) -> None:
    rig.start_shell(1, "echo main", skip_if="echo '  nothing to do '; echo more; exit 0")
    end = rig.wait_for_exit(1)
    assert (end.code, end.skip_reason) == (0, "nothing to do")
    assert not (rig.directory(1) / "stdout.log").exists()
    assert (rig.directory(1) / "skip_if.log").read_text() == "  nothing to do \nmore\n"
    assert len([m for m in rig.received if isinstance(m, StartConfirmation)]) == 1


def test_skip_if_without_output_gives_an_empty_reason(rig: Rig) -> None:
    rig.start_shell(1, "echo main", skip_if="true")
    assert rig.wait_for_exit(1).skip_reason == ""


def test_failing_skip_if_runs_the_command(rig: Rig) -> None:
    rig.start_shell(1, "echo main; exit 6", skip_if="echo looked; exit 1")
    end = rig.wait_for_exit(1)
    assert (end.code, end.skip_reason) == (6, None)
    assert rig.read_stdout(1) == "main\n"
    first, second = [m for m in rig.received if isinstance(m, StartConfirmation)]
    assert first.pid != second.pid


def test_killed_skip_if_does_not_skip(rig: Rig) -> None:
    rig.start_shell(1, "exit 6", skip_if="kill -9 $$")
    end = rig.wait_for_exit(1)
    assert (end.code, end.skip_reason) == (6, None)


def test_skip_if_runs_in_the_environment_of_the_job(rig: Rig) -> None:
    rig.start_shell(1, "true", cwd="/", skip_if='echo "$PWD $GREETING $ROTA_RUN"')
    assert rig.wait_for_exit(1).skip_reason == "/ hello run-1"


def test_timeout_applies_to_skip_if(rig: Rig) -> None:
    rig.start_shell(1, "echo main", skip_if="exec sleep 1000", timeout=0.4)
    end = rig.wait_for_exit(1)
    assert (end.signal, end.ended_by, end.skip_reason) == (signal.SIGTERM, "timeout", None)
    assert not (rig.directory(1) / "stdout.log").exists()


def test_timeout_covers_skip_if_and_command_together(rig: Rig) -> None:
    before = time.monotonic()
    rig.start_shell(1, "exec sleep 1000", skip_if="sleep 0.5; false", timeout=0.8)
    assert rig.wait_for_exit(1).ended_by == "timeout"
    assert 0.8 <= time.monotonic() - before < 5


def test_stop_during_skip_if_ends_the_run(rig: Rig) -> None:
    rig.start_shell(1, "echo main", skip_if="exec sleep 1000")
    rig.wait_for_start(1)
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.ended_by, end.skip_reason) == ("stop", None)
    assert not (rig.directory(1) / "stdout.log").exists()


def test_leftovers_of_skip_if_are_ended_before_the_command(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    check = f"sleep 1000 & echo $! > {channel.path}; false"
    rig.start_shell(1, f"exec sleep 1000 > {channel.path}", skip_if=check)
    leftover = channel.read_number()
    rig.wait_for_start(1)
    rig.wait_for_start(1)
    assert not is_alive(leftover)


def test_skip_if_in_a_missing_directory_fails_the_start(rig: Rig) -> None:
    rig.start_shell(1, "true", cwd="/nowhere", skip_if="true")
    assert rig.wait_for_failure(1) == "working directory does not exist: /nowhere"


def test_old_skip_reason_is_not_reused(rig: Rig) -> None:
    rig.directory(1).mkdir()
    (rig.directory(1) / "skip_if.log").write_text("old reason\n")
    rig.start_shell(1, "true", skip_if="echo new")
    assert rig.wait_for_exit(1).skip_reason == "new"


def test_limit_of_years_ends_no_run(rig: Rig) -> None:
    """A month exceeds the maximum wait of the kernel; the longest accepted timeout is ten years."""
    supervisor = rig.executor.supervisor_pid
    rig.start(1, ["sleep", "1000"], timeout=30 * 86_400.0)
    rig.start(2, ["sleep", "1000"], idle_timeout=3650 * 86_400.0)
    assert is_alive(rig.wait_for_start(1).pid)
    assert is_alive(rig.wait_for_start(2).pid)
    rig.start_shell(3, "exit 3")
    assert rig.wait_for_exit(3).code == 3
    rig.stop(1)
    assert rig.wait_for_exit(1).ended_by == "stop"
    assert rig.executor.supervisor_pid == supervisor
