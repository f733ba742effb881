"""Invalid messages in both directions: a line is refused or the connection is dropped; processes and children
survive."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.errors import ServiceUnavailable
from rota.executor.local import LocalExecutor
from rota.executor.port import AcknowledgeOrder, ConnectionLoss, ExecutorMessage, ExitReport, RunInventory
from rota.ids import RunId
from rota.supervisor import protocol
from tests.sample import sample
from tests.supervisor.invalid_lines import invalid_line
from tests.supervisor.rig import TIMEOUT, Rig, Wire, is_alive, open_rig, wait_readable

CHILD = 7_000_000
"""A run that no invalid line can name."""
RUN = 7_000_001
HELLO = {"type": "hello", "protocol": protocol.PROTOCOL, "generation": 5, "version": "test"}


def make_start(run: int, home: Path) -> dict[str, Any]:
    return {
        "type": "start",
        "run": run,
        "job": run,
        "argv": ["true"],
        "cwd": str(home),
        "environment_id": 1,
        "overlay": {"A": "b"},
        "directory": f"{home}/jobs/{run}",
        "timeout": 60.0,
        "idle_timeout": 60.0,
        "kill_after": 5.0,
        "skip_if": None,
        "superseded_run": None,
    }


def make_prefetch(*starts: dict[str, Any]) -> dict[str, Any]:
    fields = [{name: value for name, value in start.items() if name != "type"} for start in starts]
    return {"type": "prefetch", "series": 3, "max_running": 5, "starts": fields, "known_runs": []}


ORDERS: list[dict[str, Any]] = [
    {"type": "environment", "environment_id": 2, "variables": {"PATH": "/bin", "A": "b"}},
    {"type": "stop", "run": RUN, "kill_after": 5.0},
    {"type": "signal", "run": RUN, "number": 15},
    {"type": "acknowledge", "run": RUN},
    make_prefetch(),
    {"type": "withdraw", "series": 3},
    HELLO,
]


class InvalidScheduler:
    """Scheduler that sends anything."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.run = CHILD
        rig.start(CHILD, ["sleep", "1000"])
        self.child = rig.wait_for_start(CHILD).pid
        self.supervisor = rig.executor.supervisor_pid

    @contextlib.contextmanager
    def connect(self) -> Iterator[Wire]:
        wire = Wire(self.rig.home)
        try:
            assert wire.hello(generation=5)["type"] == "hello"
            wire.send(type="environment", environment_id=1, variables={"PATH": os.environ["PATH"]})
            yield wire
        finally:
            wire.close()

    def assert_healthy(self, wire: Wire) -> None:
        """Assert that an order sent after the invalid ones is executed, even if it arrives together with them."""
        self.run -= 1
        wire.send(**make_start(self.run, self.rig.home))
        while (received := wire.receive()) is not None and not (
            received["type"] == "exited" and received["run"] == self.run
        ):
            pass
        assert received is not None
        assert received["code"] == 0
        wire.send(type="acknowledge", run=self.run)
        assert is_alive(self.child)
        assert is_alive(self.supervisor)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InvalidScheduler]:
    with open_rig(tmp_path_factory.mktemp("invalid") / "home") as rig:
        yield InvalidScheduler(rig)


ONE_RIG = settings(suppress_health_check=[*HealthCheck], max_examples=sample(150))


@ONE_RIG
@given(data=st.data())
def test_supervisor_survives_any_invalid_orders(peer: InvalidScheduler, data: st.DataObject) -> None:
    makes_files = [make_start(RUN, peer.rig.home), make_prefetch(make_start(RUN, peer.rig.home))]
    lines = invalid_line(ORDERS) | invalid_line(makes_files, may_be_overwritten=False)
    with peer.connect() as wire:
        wire.sock.sendall(b"".join(data.draw(st.lists(lines, min_size=1, max_size=4))))
        peer.assert_healthy(wire)


def receive_refusals(wire: Wire, count: int) -> list[dict[str, Any]]:
    """Return the next refusals. Exits left by other tests are skipped."""
    received: list[dict[str, Any]] = []
    while len(received) < count and (message := wire.receive()) is not None:
        received += [message] if message["type"] == "error" else []
    return received


invalid_start_fields = pytest.mark.parametrize(
    "fields",
    [
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"timeout": "1"},
        {"idle_timeout": float("inf")},
        {"kill_after": None},
        {"kill_after": float("nan")},
        {"directory": "/\0"},
        {"directory": "here"},
        {"directory": 5},
        {"cwd": "."},
        {"argv": "true"},
        {"argv": [1]},
        {"argv": None},
        {"overlay": {"A": 1}},
        {"overlay": []},
        {"run": "1"},
        {"run": True},
        {"run": 1.5},
        {"run": -1},
        {"run": 1 << 63},
        {"superseded_run": "x"},
        {"skip_if": 5},
        {"workspace": {}},
        {"workspace": {"limit": "x"}},
        {"workspace": 5},
        {"environment_id": []},
    ],
    ids=str,
)


@invalid_start_fields
def test_invalid_start_is_refused_without_an_effect(peer: InvalidScheduler, fields: dict[str, Any]) -> None:
    with peer.connect() as wire:
        wire.send_together({**make_start(RUN, peer.rig.home), **fields}, {"type": "acknowledge", "run": CHILD})
        first, second = receive_refusals(wire, 2)
        assert first["order"] == "start"
        assert first["error"].startswith("invalid message: ")
        assert second["error"] == "this run has not ended", "the next line is processed"
        peer.assert_healthy(wire)


def receive_answers(wire: Wire, count: int) -> list[dict[str, Any]]:
    received: list[dict[str, Any]] = []
    while len(received) < count and (message := wire.receive()) is not None:
        received += [message] if message["type"] in ("error", "prefetch_started", "withdrawn") else []
    return received


@invalid_start_fields
def test_invalid_prefetch_is_refused_entirely_and_ends_its_series(
    peer: InvalidScheduler, fields: dict[str, Any]
) -> None:
    valid, invalid = make_start(RUN, peer.rig.home), {**make_start(RUN + 1, peer.rig.home), **fields}
    with peer.connect() as wire:
        wire.send_together(make_prefetch(valid, invalid), make_prefetch(valid), {**make_prefetch(invalid), "series": 4})
        refused, over, again, next_over = receive_answers(wire, 4)
        assert refused["order"] == again["order"] == "prefetch"
        assert refused["error"].startswith("invalid message: ")
        assert over == {"type": "withdrawn", "series": 3}, "later orders of the series are ignored"
        assert next_over == {"type": "withdrawn", "series": 4}
        peer.assert_healthy(wire)


@pytest.mark.parametrize(
    "fields",
    [
        {"series": "3"},
        {"series": -1},
        {"series": None},
        {"max_running": "5"},
        {"max_running": -1},
        {"starts": {}},
        {"starts": [5]},
        {"known_runs": None},
        {"known_runs": ["5"]},
    ],
    ids=str,
)
def test_invalid_prefetch_fields_end_the_open_series(peer: InvalidScheduler, fields: dict[str, Any]) -> None:
    valid = make_prefetch()
    with peer.connect() as wire:
        wire.send_together(valid, {**valid, **fields})
        refused, over = receive_answers(wire, 2)
        assert refused["error"].startswith("invalid message: ")
        assert over == {"type": "withdrawn", "series": 3}
        peer.assert_healthy(wire)


def test_refused_stop_has_no_effect(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.wait_for_start(1).pid
    wire = Wire(rig.home)
    wire.hello(generation=5)
    for fields in ({"run": 1, "kill_after": "x"}, {"run": True}, {"run": 1, "kill_after": float("nan")}):
        wire.send(type="stop", **fields)
        response = wire.receive()
        assert response is not None
        assert response["type"] == "error"
    assert is_alive(pid)
    wire.send(type="stop", run=1)
    response = wire.receive()
    wire.close()
    assert response is not None
    assert (response["type"], response["ended_by"]) == ("exited", "stop")


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000], ids=["array", "object"])
def test_deeply_nested_message_costs_only_itself(peer: InvalidScheduler, deep: bytes) -> None:
    with peer.connect() as wire:
        wire.sock.sendall(deep + b'\n{"type":"dance"}\n')
        assert [answer["error"][:15] for answer in receive_refusals(wire, 2)] == ["invalid message", "unknown message"]
        peer.assert_healthy(wire)


def is_newer_hello(line: bytes) -> bool:
    """Return whether the line is a hello of a newer scheduler, invalid or not."""
    try:
        generation = json.loads(line)["generation"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return type(generation) is int and generation > 5


@ONE_RIG
@given(lines=st.lists(invalid_line([HELLO]).filter(lambda line: not is_newer_hello(line)), min_size=1, max_size=3))
def test_supervisor_survives_any_invalid_hello(peer: InvalidScheduler, lines: list[bytes]) -> None:
    other = Wire(peer.rig.home)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        other.sock.sendall(b"".join(lines))
    other.close()
    with peer.connect() as wire:
        peer.assert_healthy(wire)


REPORTS: list[dict[str, Any]] = [
    {"type": "started", "run": RUN, "pid": 4711, "start_time": 12},
    {"type": "failed_to_start", "run": RUN, "error": "no such program", "is_machine_failure": False},
    {
        "type": "exited",
        "run": RUN,
        "at": 1.0,
        "code": 1,
        "signal": None,
        "ended_by": None,
        "skip_reason": None,
        "tail": "x",
        "is_observed": True,
        "workspace_error": "",
    },
    {"type": "prefetch_started", "run": RUN, "at": 1.0},
    {"type": "withdrawn", "series": 3},
    {"type": "failure", "error": None},
    {"type": "error", "error": "no", "run": RUN, "order": "start", "protocol": protocol.PROTOCOL},
]
HELLO_ANSWER = {
    "type": "hello",
    "protocol": protocol.PROTOCOL,
    "pid": 1,
    "boot": "b",
    "version": "0",
    "runs": [{"run": RUN, "pid": 4711, "start_time": 12, "has_ended": False, "is_lost": False}],
}
HELLO_LINE = json.dumps(HELLO_ANSWER).encode() + b"\n"
EXIT_LINE = json.dumps({**REPORTS[2], "run": CHILD}).encode() + b"\n"


class FakeSupervisor:
    """Supervisor whose first connection gets one reply to the hello and another to later data. All others get valid
    ones."""

    def __init__(self, home: Path, first: bytes, later: bytes) -> None:
        self._first, self._later = first, later
        (home / protocol.SOCKET).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(home / protocol.SOCKET))
        self._listener.listen(8)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        replies = [self._first, self._later]
        with contextlib.suppress(OSError):  # the listener is shut down
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                with contextlib.suppress(OSError):
                    for reply in replies:
                        sock.recv(65536)
                        sock.sendall(reply)
                replies = [HELLO_LINE + EXIT_LINE]

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT)
        for sock in (self._listener, *self._open):
            sock.close()


@contextlib.contextmanager
def connect_to_fake(home: Path, first: bytes, later: bytes = b"") -> Iterator[LocalExecutor]:
    supervisor = FakeSupervisor(home, first, later)
    executor = LocalExecutor(home, None)
    try:
        with contextlib.suppress(ServiceUnavailable):
            executor.connect_as(5)
        executor.send([AcknowledgeOrder(run=RunId(1))])
        yield executor
    finally:
        executor.close()
        supervisor.close()


def receive_until_exit(executor: LocalExecutor) -> list[ExecutorMessage]:
    """Receive until the exit report arrives. Like the engine, retry while the supervisor is unavailable."""
    received: list[ExecutorMessage] = []
    deadline = time.monotonic() + TIMEOUT
    while True:
        with contextlib.suppress(ServiceUnavailable):
            received += executor.receive()
            if any(isinstance(message, ExitReport) and message.run == CHILD for message in received):
                return received
            wait_readable(executor.fileno(), deadline, f"the exit report; received {received[-3:]}")


@settings(max_examples=sample(150), suppress_health_check=[*HealthCheck])
@given(lines=st.lists(invalid_line(REPORTS), min_size=1, max_size=3), is_joined=st.booleans())
def test_executor_recovers_from_any_invalid_messages(tmp_path: Path, lines: list[bytes], is_joined: bool) -> None:
    """Later messages arrive on this connection or, after an undecodable line, on the next one, which starts over."""
    data = b"".join(lines) + EXIT_LINE
    with connect_to_fake(tmp_path, *((HELLO_LINE + data, b"") if is_joined else (HELLO_LINE, data))) as executor:
        received = receive_until_exit(executor)
    for before, after in pairwise(received):
        assert isinstance(after, RunInventory) == isinstance(before, ConnectionLoss)


@settings(max_examples=sample(150), suppress_health_check=[*HealthCheck])
@given(line=invalid_line([HELLO_ANSWER]))
def test_executor_recovers_from_any_invalid_answer_to_hello(tmp_path: Path, line: bytes) -> None:
    with connect_to_fake(tmp_path, line + EXIT_LINE) as executor:
        assert isinstance(receive_until_exit(executor)[0], RunInventory)


def test_undecodable_message_ends_a_withdraw(tmp_path: Path) -> None:
    with connect_to_fake(tmp_path, HELLO_LINE, EXIT_LINE + b'{"type":"withdrawn","series":"x"}\n') as executor:
        executor.withdraw(3, TIMEOUT)
        wait_readable(executor.fileno(), time.monotonic() + TIMEOUT, "the messages before it")
        assert [type(message) for message in executor.receive()] == [RunInventory, ExitReport, ConnectionLoss]
        wait_readable(executor.fileno(), time.monotonic() + TIMEOUT, "the decode failure")
        with pytest.raises(ServiceUnavailable, match="cannot decode"):
            executor.receive()
        assert [type(message) for message in receive_until_exit(executor)] == [RunInventory, ExitReport]


def receive_forever(executor: LocalExecutor, received: list[ExecutorMessage]) -> None:
    while True:
        wait_readable(executor.fileno(), time.monotonic() + TIMEOUT, f"a message; received {received}")
        received += executor.receive()


def test_undecodable_message_is_reported_before_a_reconnect(tmp_path: Path) -> None:
    received: list[ExecutorMessage] = []
    with connect_to_fake(tmp_path, HELLO_LINE, EXIT_LINE + b'{"type":"exited","run":"x"}\n' + EXIT_LINE) as executor:
        with pytest.raises(
            ServiceUnavailable, match=r"cannot decode a message from the supervisor \(.*run.*\); reconnecting"
        ):
            receive_forever(executor, received)
        assert [type(message) for message in received] == [RunInventory, ExitReport, ConnectionLoss]
        assert not select.select([executor.fileno()], [], [], 0)[0], "there is no busy loop meanwhile"
        assert [type(message) for message in receive_until_exit(executor)] == [RunInventory, ExitReport]
