"""`timeout`, `idle_timeout` and `skip_if`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from executor.rig import Fifo, Rig, ends_within, lives
from rota.executor.port import Started

MakeFifo = Callable[[str], Fifo]


def test_timeout_ends_the_tree(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    before = time.monotonic()
    rig.shell(1, f"setsid sh -c 'echo $$ > {told.path}; exec sleep 1000' & wait", timeout=0.5)
    left = told.number()
    end = rig.exited(1)
    assert (end.signal, end.ended_by) == (signal.SIGTERM, "timeout")
    assert 0.5 <= time.monotonic() - before < 5
    assert not lives(left)


def test_timeout_that_is_not_reached(rig: Rig) -> None:
    rig.shell(1, "exit 2", timeout=1000.0, idle_timeout=1000.0)
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (2, None)


def test_timeout_holds_while_there_is_no_scheduler(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"], timeout=0.3)
    pid = rig.started(1).pid
    rig.executor.close()
    assert ends_within(pid)
    rig.reconnect()
    assert rig.exited(1).ended_by == "timeout"


def test_idle_timeout_of_a_silent_run(rig: Rig) -> None:
    before = time.monotonic()
    rig.start(1, ["sleep", "1000"], idle_timeout=0.4)
    end = rig.exited(1)
    assert (end.signal, end.ended_by) == (signal.SIGTERM, "idle_timeout")
    assert 0.4 <= time.monotonic() - before < 5


def test_idle_timeout_spares_a_run_that_speaks(rig: Rig) -> None:
    rig.shell(1, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i >&2; sleep 0.1; done", idle_timeout=0.7)
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (0, None)


def test_idle_timeout_counts_from_the_last_output(rig: Rig) -> None:
    before = time.monotonic()
    rig.shell(1, "sleep 0.9; echo late; exec sleep 1000", idle_timeout=1.0)
    assert rig.exited(1).ended_by == "idle_timeout"
    assert 1.8 <= time.monotonic() - before < 2.8  # not a second whole period after the first look, at 2.0


def test_skip_if_says_yes(rig: Rig) -> None:
    rig.shell(1, "echo main", skip_if="echo '  nothing to do '; echo more; exit 0")
    end = rig.exited(1)
    assert (end.code, end.skipped) == (0, "nothing to do")
    assert not (rig.directory(1) / "stdout.log").exists()
    assert (rig.directory(1) / "skip_if.log").read_text() == "  nothing to do \nmore\n"
    assert len([m for m in rig.seen if isinstance(m, Started)]) == 1


def test_skip_if_says_yes_without_a_word(rig: Rig) -> None:
    rig.shell(1, "echo main", skip_if="true")
    assert rig.exited(1).skipped == ""


def test_skip_if_says_no(rig: Rig) -> None:
    rig.shell(1, "echo main; exit 6", skip_if="echo looked; exit 1")
    end = rig.exited(1)
    assert (end.code, end.skipped) == (6, None)
    assert rig.stdout(1) == "main\n"
    first, second = [m for m in rig.seen if isinstance(m, Started)]
    assert first.pid != second.pid


def test_skip_if_that_is_killed_does_not_skip(rig: Rig) -> None:
    rig.shell(1, "exit 6", skip_if="kill -9 $$")
    end = rig.exited(1)
    assert (end.code, end.skipped) == (6, None)


def test_skip_if_runs_in_the_jobs_surroundings(rig: Rig) -> None:
    rig.shell(1, "true", cwd="/", skip_if='echo "$PWD $GREETING $ROTA_RUN"')
    assert rig.exited(1).skipped == "/ hello run-1"


def test_skip_if_is_under_the_runs_timeout(rig: Rig) -> None:
    rig.shell(1, "echo main", skip_if="exec sleep 1000", timeout=0.4)
    end = rig.exited(1)
    assert (end.signal, end.ended_by, end.skipped) == (signal.SIGTERM, "timeout", None)
    assert not (rig.directory(1) / "stdout.log").exists()


def test_timeout_counts_skip_if_and_main_together(rig: Rig) -> None:
    before = time.monotonic()
    rig.shell(1, "exec sleep 1000", skip_if="sleep 0.5; false", timeout=0.8)
    assert rig.exited(1).ended_by == "timeout"
    assert 0.8 <= time.monotonic() - before < 5


def test_stop_during_skip_if(rig: Rig) -> None:
    rig.shell(1, "echo main", skip_if="exec sleep 1000")
    rig.started(1)
    rig.stop(1)
    end = rig.exited(1)
    assert (end.ended_by, end.skipped) == ("stop", None)
    assert not (rig.directory(1) / "stdout.log").exists()


def test_what_skip_if_left_behind_is_ended_before_the_main_process(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    check = f"sleep 1000 & echo $! > {told.path}; false"
    rig.shell(1, f"exec sleep 1000 > {told.path}", skip_if=check)
    left = told.number()
    rig.started(1)
    rig.started(1)
    assert not lives(left)


def test_skip_if_in_a_missing_directory(rig: Rig) -> None:
    rig.shell(1, "true", cwd="/nowhere", skip_if="true")
    assert rig.failed(1) == "working directory does not exist: /nowhere"


def test_an_older_reason_is_not_taken_for_this_one(rig: Rig) -> None:
    rig.directory(1).mkdir()
    (rig.directory(1) / "skip_if.log").write_text("old reason\n")
    rig.shell(1, "true", skip_if="echo new")
    assert rig.exited(1).skipped == "new"


def test_a_limit_of_years_ends_nobody(rig: Rig) -> None:
    """A month is longer than one wait for the kernel can be; the longest that can be asked for is ten years."""
    supervisor = rig.executor.supervisor_pid
    rig.start(1, ["sleep", "1000"], timeout=30 * 86_400.0)
    rig.start(2, ["sleep", "1000"], idle_timeout=3650 * 86_400.0)
    assert lives(rig.started(1).pid)
    assert lives(rig.started(2).pid)
    rig.shell(3, "exit 3")
    assert rig.exited(3).code == 3
    rig.stop(1)
    assert rig.exited(1).ended_by == "stop"
    assert rig.executor.supervisor_pid == supervisor
