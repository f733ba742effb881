"""Forwarded signals: they reach the main process and its group only."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from rota.executor.port import SignalOrder
from rota.ids import RunId
from tests.supervisor.rig import Fifo, Rig, Wire, is_alive
from tests.supervisor.test_takeover import replace_supervisor

MakeFifo = Callable[[str], Fifo]

TRAPS = "trap 'echo usr1 > {channel}' USR1; trap 'echo hup > {channel}; exit 9' HUP; echo ready > {channel};"
WAIT_LOOP = "while :; do sleep 1000 & wait $!; done"


def send_signal(rig: Rig, run: int, number: int) -> None:
    rig.send(SignalOrder(run=RunId(run), number=number))


def test_command_receives_the_signal(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, TRAPS.format(channel=channel.path) + WAIT_LOOP)
    assert channel.read_line() == "ready"
    send_signal(rig, 1, signal.SIGUSR1)
    assert channel.read_line() == "usr1"
    send_signal(rig, 1, signal.SIGHUP)
    assert channel.read_line() == "hup"
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (9, None), "a signal is not a stop"


def test_signal_reaches_only_the_process_group(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, detached = make_fifo("channel"), make_fifo("detached")
    child = f"sh -c 'trap \"echo child > {channel.path}\" USR1; echo ready > {channel.path}; {WAIT_LOOP}' &"
    other = f"setsid sh -c 'echo $$ > {detached.path}; exec sleep 1000' &"
    rig.start(2, ["sleep", "1000"])
    other_run = rig.wait_for_start(2).pid
    rig.start_shell(1, f"trap 'echo main > {channel.path}' USR1; {other} {child} {WAIT_LOOP}")
    assert channel.read_line() == "ready"
    detached_pid = detached.read_number()
    send_signal(rig, 1, signal.SIGUSR1)
    assert sorted((channel.read_line(), channel.read_line())) == ["child", "main"]
    rig.sync()
    assert is_alive(detached_pid), "another session is another group"
    assert is_alive(other_run)


def test_signal_right_after_the_start_is_delivered(rig: Rig) -> None:
    """The process may not exist yet when the order is read."""
    rig.start(1, ["sleep", "1000"])
    send_signal(rig, 1, signal.SIGUSR2)
    end = rig.wait_for_exit(1)
    assert (end.signal, end.ended_by) == (signal.SIGUSR2, None)


def test_skip_if_does_not_receive_the_signal(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, gate = make_fifo("channel"), make_fifo("gate")
    rig.start(1, ["sleep", "1000"], skip_if=f"echo ready > {channel.path}; read x < {gate.path}; exit 1")
    assert channel.read_line() == "ready"
    send_signal(rig, 1, signal.SIGHUP)
    rig.sync()
    gate.release()
    assert rig.wait_for_exit(1).signal == signal.SIGHUP, "the command gets it when it starts"


def test_signal_to_an_ended_or_unknown_run_is_ignored(rig: Rig) -> None:
    rig.start(1, ["true"])
    assert rig.wait_for_exit(1).code == 0
    send_signal(rig, 1, signal.SIGKILL)
    send_signal(rig, 77, signal.SIGKILL)
    rig.acknowledge(1)
    rig.start(2, ["true"])
    assert rig.wait_for_exit(2).code == 0


def test_inherited_run_receives_the_signal(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, TRAPS.format(channel=channel.path) + WAIT_LOOP)
    assert channel.read_line() == "ready"
    rig.wait_for_start(1)
    replace_supervisor(rig)
    send_signal(rig, 1, signal.SIGUSR1)
    assert channel.read_line() == "usr1"


def test_invalid_signal_is_refused(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.wait_for_start(1).pid
    other = Wire(rig.home)
    assert other.hello(2)["type"] == "hello"
    for number in (0, -1, 4000, "HUP", None):
        other.send(type="signal", run=1, number=number)
        refused: dict[str, Any] | None = other.receive()
        assert refused is not None
        assert "invalid message" in refused["error"]
    other.close()
    assert is_alive(pid)
