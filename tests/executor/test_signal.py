"""Signals that are passed on: to the main process and its group, and to nobody else."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from executor.rig import Fifo, Rig, Wire, lives
from executor.test_orphan import lose_supervisor
from rota.executor.port import Signal
from rota.ids import RunId

MakeFifo = Callable[[str], Fifo]

TRAPS = "trap 'echo usr1 > {told}' USR1; trap 'echo hup > {told}; exit 9' HUP; echo ready > {told};"
WAITS = "while :; do sleep 1000 & wait $!; done"


def pass_on(rig: Rig, run: int, number: int) -> None:
    rig.send(Signal(run=RunId(run), number=number))


def test_the_command_gets_it_and_goes_on(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, TRAPS.format(told=told.path) + WAITS)
    assert told.line() == "ready"
    pass_on(rig, 1, signal.SIGUSR1)
    assert told.line() == "usr1"
    pass_on(rig, 1, signal.SIGHUP)
    assert told.line() == "hup"
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (9, None), "it ended by itself: a signal is no stop"


def test_its_group_gets_it_and_what_left_the_group_does_not(rig: Rig, fifo: MakeFifo) -> None:
    told, apart = fifo("told"), fifo("apart")
    child = f"sh -c 'trap \"echo child > {told.path}\" USR1; echo ready > {told.path}; {WAITS}' &"
    other = f"setsid sh -c 'echo $$ > {apart.path}; exec sleep 1000' &"
    rig.start(2, ["sleep", "1000"])
    stranger = rig.started(2).pid
    rig.shell(1, f"trap 'echo main > {told.path}' USR1; {other} {child} {WAITS}")
    assert told.line() == "ready"
    left = apart.number()
    pass_on(rig, 1, signal.SIGUSR1)
    assert sorted((told.line(), told.line())) == ["child", "main"]
    rig.barrier()
    assert lives(left), "a session of its own is not its group"
    assert lives(stranger)


def test_right_behind_the_start(rig: Rig) -> None:
    """There may be no process yet when it is read."""
    rig.start(1, ["sleep", "1000"])
    pass_on(rig, 1, signal.SIGUSR2)
    end = rig.exited(1)
    assert (end.signal, end.ended_by) == (signal.SIGUSR2, None)


def test_the_check_before_the_command_does_not_get_it(rig: Rig, fifo: MakeFifo) -> None:
    told, gate = fifo("told"), fifo("gate")
    rig.start(1, ["sleep", "1000"], skip_if=f"echo in > {told.path}; read x < {gate.path}; exit 1")
    assert told.line() == "in"
    pass_on(rig, 1, signal.SIGHUP)
    rig.barrier()
    gate.release()
    assert rig.exited(1).signal == signal.SIGHUP, "the command did, once there was one"


def test_after_the_end_and_to_nobody_nothing_happens(rig: Rig) -> None:
    rig.start(1, ["true"])
    assert rig.exited(1).code == 0
    pass_on(rig, 1, signal.SIGKILL)
    pass_on(rig, 77, signal.SIGKILL)
    rig.acknowledge(1)
    rig.start(2, ["true"])
    assert rig.exited(2).code == 0


def test_of_an_orphan(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, TRAPS.format(told=told.path) + WAITS)
    assert told.line() == "ready"
    rig.started(1)
    lose_supervisor(rig)
    pass_on(rig, 1, signal.SIGUSR1)
    assert told.line() == "usr1"


def test_what_is_no_signal_is_refused(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.started(1).pid
    other = Wire(rig.home)
    assert other.hello(2)["type"] == "hello"
    for number in (0, -1, 4000, "HUP", None):
        other.say(type="signal", run=1, number=number)
        refused: dict[str, Any] | None = other.hear()
        assert refused is not None
        assert "not understood" in refused["error"]
    other.close()
    assert lives(pid)
