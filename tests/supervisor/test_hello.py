"""Admission of schedulers, and reports that are repeated until they are acknowledged."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.errors import Conflict
from rota.executor.local import LocalExecutor
from rota.executor.port import ConnectionLoss, ExitReport, RunReport, StartConfirmation, StartRefusal
from rota.ids import RunId
from rota.supervisor import protocol
from tests.supervisor.rig import Fifo, Rig, Wire, is_alive

MakeFifo = Callable[[str], Fifo]


@pytest.fixture
def make_wire(rig: Rig) -> Iterator[Callable[[], Wire]]:
    created: list[Wire] = []

    def connect() -> Wire:
        created.append(Wire(rig.home))
        return created[-1]

    yield connect
    for item in created:
        item.close()


def make_start(run: int, home: Path, argv: list[str]) -> dict[str, Any]:
    return {
        "type": "start",
        "run": run,
        "job": run,
        "argv": argv,
        "cwd": "/",
        "environment_id": 1,
        "overlay": {},
        "directory": str(home / "jobs" / f"job-{run}"),
        "timeout": None,
        "idle_timeout": None,
        "kill_after": 5.0,
        "skip_if": None,
    }


def test_socket_is_private(rig: Rig) -> None:
    for name in (protocol.SOCKET, protocol.LOCK, protocol.LOG, protocol.JOURNAL):
        assert stat.S_IMODE((rig.home / name).stat().st_mode) & 0o077 == 0


def test_hello_lists_all_runs(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    rig.start(1, ["sleep", "1000"])
    started = rig.wait_for_start(1)
    rig.start_shell(2, "exit 3")
    rig.wait_for_exit(2)
    rig.start(3, ["no-such-program-here"])
    rig.wait_for_failure(3)
    peer = make_wire()
    response = peer.hello(generation=5)
    assert response["protocol"] == protocol.PROTOCOL
    assert response["pid"] == rig.executor.supervisor_pid
    assert response["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert response["runs"] == [
        {"run": 1, "pid": started.pid, "start_time": started.start_time, "has_ended": False, "is_lost": False},
        {"run": 2, "pid": None, "start_time": None, "has_ended": True, "is_lost": False},
        {"run": 3, "pid": None, "start_time": None, "has_ended": True, "is_lost": False},
    ]
    ends = [peer.receive(), peer.receive()]
    assert [(end["type"], end["run"]) for end in ends if end] == [("exited", 2), ("failed_to_start", 3)]


def test_exit_is_reported_until_acknowledged(rig: Rig) -> None:
    rig.start_shell(1, "exit 3")
    first = rig.wait_for_exit(1)
    for _ in range(2):
        rig.reconnect()
        assert list(rig.inventory.runs) == [RunReport(run=first.run, pid=None, has_ended=True)]
        assert rig.wait_for_exit(1) == first
    rig.acknowledge(1)
    rig.acknowledge(1)
    rig.sync()
    rig.reconnect()
    assert list(rig.inventory.runs) == []


def test_start_failure_is_reported_until_acknowledged(rig: Rig) -> None:
    rig.start(1, ["no-such-program-here"])
    rig.wait_for_failure(1)
    rig.reconnect()
    assert rig.wait_for_failure(1) == "program not found: no-such-program-here"
    rig.acknowledge(1)
    rig.sync()
    rig.reconnect()
    assert list(rig.inventory.runs) == []


def test_exit_code_survives_an_absent_scheduler(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}; exit 9")
    rig.wait_for_start(1)
    rig.executor.close()
    gate.release()
    rig.reconnect(2)
    assert rig.wait_for_exit(1).code == 9


def test_exit_code_survives_the_supervisor(rig: Rig) -> None:
    rig.start_shell(1, "exit 3")
    first = rig.wait_for_exit(1)
    rig.kill_supervisor()
    rig.wait_for(ConnectionLoss)
    assert rig.wait_for_exit(1) == first


def test_acknowledging_a_live_run_is_refused(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.wait_for_start(1).pid
    rig.acknowledge(1)
    rig.sync()
    assert "has not ended" in caplog.text
    assert is_alive(pid)


def test_duplicate_start_is_refused(rig: Rig, make_fifo: MakeFifo, caplog: pytest.LogCaptureFixture) -> None:
    channel = make_fifo("channel")
    script = f"echo $$ > {channel.path}; exec sleep 1000"
    rig.start_shell(1, script)
    pid = rig.wait_for_start(1).pid
    assert channel.read_number() == pid
    with caplog.at_level(logging.WARNING):
        rig.start_shell(1, f"echo second > {channel.path}")
        output = rig.sync()
    (refused,) = [m for m in output if getattr(m, "run", 0) == 1]
    assert isinstance(refused, StartRefusal)
    assert "already known" in refused.error
    assert "already known" in caplog.text
    assert is_alive(pid)
    rig.stop(1)
    rig.wait_for_exit(1)
    rig.start_shell(1, f"echo third > {channel.path}")  # ended, not acknowledged: still refused
    rig.sync()
    rig.acknowledge(1)
    rig.start_shell(1, f"echo fourth > {channel.path}")
    assert channel.read_line() == "fourth"


def test_refused_stop_or_acknowledgement_is_not_reported(rig: Rig) -> None:
    """They change nothing, so the engine does not need to know."""
    rig.stop(77)
    rig.start(1, ["sleep", "1000"])
    rig.wait_for_start(1)
    rig.acknowledge(1)
    assert not [message for message in rig.sync() if isinstance(message, StartRefusal)]


@pytest.mark.parametrize(
    ("error", "is_reported"),
    [
        ({"error": "invalid message: KeyError('argv')", "order": "start"}, True),
        ({"error": "no such run", "order": "stop"}, False),
        ({"error": "invalid message: anything"}, False),
        ({"error": "unknown message: dance", "order": "dance"}, False),
    ],
)
def test_only_refused_starts_become_messages(rig: Rig, error: dict[str, Any], is_reported: bool) -> None:
    rig.executor._handle_line(json.dumps({"type": "error", "run": 5, **error}).encode())
    assert [m for m in rig.executor._inbox if isinstance(m, StartRefusal)] == (
        [StartRefusal(run=RunId(5), error=error["error"])] if is_reported else []
    )


def test_newer_generation_takes_over(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    old, new = make_wire(), make_wire()
    assert old.hello(generation=5)["type"] == "hello"
    assert new.hello(generation=6)["type"] == "hello"
    assert old.receive() is None
    new.send(type="environment", environment_id=1, variables={})
    new.send(**make_start(1, rig.home, ["/bin/true"]))
    response = new.receive()
    assert response is not None
    assert response["type"] == "started"


def test_unread_orders_of_a_replaced_scheduler_are_dropped(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    """The start order of the replaced scheduler and the hello of the newer one arrive together.

    The kernel decides which is read first. Read after the hello, the start must never be executed; read before it, the
    run must be in the inventory.
    """
    old, new = make_wire(), make_wire()
    old.hello(generation=5)
    old.send(type="environment", environment_id=1, variables={})
    old.send(type="stop", run=77)
    assert old.receive() is not None  # everything so far is read
    rig.suspend_supervisor()
    new.send(type="hello", protocol=protocol.PROTOCOL, generation=6, version="test")
    old.send(**make_start(1, rig.home, ["/bin/true"]))
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    response = new.receive()
    assert response is not None
    was_read_first = [report["run"] for report in response["runs"]] == [1]
    new.send(type="stop", run=1)
    response = new.receive()
    assert response is not None
    assert (response.get("error") == "no such run") is not was_read_first
    assert (rig.home / "jobs" / "job-1").exists() is was_read_first
    assert old.receive() is None


def test_orders_after_a_refused_hello_are_ignored(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    make_wire().hello(generation=9)
    late = make_wire()
    late.send_together(
        {"type": "hello", "protocol": protocol.PROTOCOL, "generation": 8, "version": "test"},
        {"type": "environment", "environment_id": 1, "variables": {}},
        make_start(1, rig.home, ["/bin/true"]),
    )
    response = late.receive()
    assert response is not None
    assert response["type"] == "error"
    assert late.receive() is None
    assert not (rig.home / "jobs" / "job-1").exists()


def test_lower_generation_is_refused(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    current = make_wire()
    current.hello(generation=9)
    late = make_wire()
    response = late.hello(generation=8)
    assert response["type"] == "error"
    assert "generation 8 was replaced" in response["error"]
    assert late.receive() is None
    current.send(type="stop", run=77)
    refusal = current.receive()
    assert refusal is not None
    assert refusal["error"] == "no such run"


def test_generation_survives_the_supervisor(rig: Rig) -> None:
    rig.reconnect(7)
    rig.kill_supervisor()
    with pytest.raises(Conflict, match="generation 6 was replaced"):
        LocalExecutor(rig.home, 6)


def test_same_generation_may_reconnect(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    rig.wait_for_start(1)
    rig.reconnect(1)
    assert [report.run for report in rig.inventory.runs] == [1]


@pytest.mark.parametrize(
    ("offer", "is_accepted"),
    [
        ({"protocol": protocol.PROTOCOL}, True),
        ({"protocol": protocol.PROTOCOL - 1}, False),
        ({"protocol": protocol.PROTOCOL + 1}, False),  # names no oldest version: supports only that one
        ({"protocol": protocol.PROTOCOL + 1, "min_protocol": protocol.PROTOCOL}, True),
        ({"protocol": protocol.PROTOCOL + 2, "min_protocol": protocol.PROTOCOL + 1}, False),
        ({"protocol": 0}, False),
        ({"protocol": "1"}, False),
    ],
)
def test_protocol_version_is_negotiated(
    rig: Rig, make_wire: Callable[[], Wire], offer: dict[str, Any], is_accepted: bool
) -> None:
    peer = make_wire()
    response = peer.hello(generation=5, **offer)
    assert (response["type"] == "hello") is is_accepted
    if is_accepted:
        assert response["protocol"] == min(offer["protocol"], protocol.PROTOCOL)
    else:
        assert peer.receive() is None


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"type":"start"}\n', b'{"type":"hello"}\n']
)
def test_invalid_first_message_closes_only_its_connection(rig: Rig, make_wire: Callable[[], Wire], line: bytes) -> None:
    peer = make_wire()
    peer.sock.sendall(line)
    response = peer.receive()
    assert response is not None
    assert response["type"] == "error"
    assert peer.receive() is None
    rig.start(1, ["true"])
    assert rig.wait_for_exit(1).code == 0


def test_invalid_order_does_not_affect_later_orders(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    peer = make_wire()
    peer.hello(generation=5)
    peer.send(type="environment", environment_id=1, variables={})
    peer.send(type="start", run=1)
    peer.send(type="dance")
    peer.send(**make_start(2, rig.home, ["/bin/true"]))
    received = [peer.receive(), peer.receive(), peer.receive()]
    assert [m["type"] for m in received if m] == ["error", "error", "started"]


def test_line_may_arrive_in_pieces(rig: Rig, make_wire: Callable[[], Wire]) -> None:
    peer = make_wire()
    for byte in b'{"type":"hello","protocol":%d,"generation":5,"version":"x"}\n' % protocol.PROTOCOL:
        peer.sock.sendall(bytes([byte]))
    response = peer.receive()
    assert response is not None
    assert response["type"] == "hello"


def test_start_is_reported_before_exit(rig: Rig) -> None:
    for run in (1, 2, 3):
        rig.start(run, ["true"])
    for run in (1, 2, 3):
        rig.wait_for_exit(run)
    for run in (1, 2, 3):
        kinds = [type(m) for m in rig.received if isinstance(m, StartConfirmation | ExitReport) and m.run == run]
        assert kinds == [StartConfirmation, ExitReport]
