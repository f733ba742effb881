"""Whatever one side says to the other: a line is refused or the connection given up; nobody dies, children live on."""

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

from executor.rig import PATIENCE, Rig, Wire, lives, rig_in, wait_readable
from executor.spoilt import spoilt_line
from rota.errors import Unavailable
from rota.executor.local import LocalExecutor
from rota.executor.port import Accounts, Acknowledge, Exited, Lost, Message
from rota.executor.supervisor import protocol
from rota.ids import RunId
from sample import sample

CHILD = 7_000_000
"""A run that no spoilt line can name."""
RUN = 7_000_001
HELLO = {"type": "hello", "protocol": protocol.PROTOCOL, "generation": 5, "version": "test"}


def start(run: int, home: Path) -> dict[str, Any]:
    return {
        "type": "start", "run": run, "job": run, "argv": ["true"], "cwd": str(home), "surroundings": 1,
        "overlay": {"A": "b"}, "directory": f"{home}/jobs/{run}", "timeout": 60.0, "idle_timeout": 60.0,
        "kill_after": 5.0, "skip_if": None, "aside": None,
    }  # fmt: skip


def ahead(*starts: dict[str, Any]) -> dict[str, Any]:
    given = [{name: value for name, value in each.items() if name != "type"} for each in starts]
    return {"type": "ahead", "series": 3, "width": 5, "starts": given, "runs": []}


ORDERS: list[dict[str, Any]] = [
    {"type": "environment", "surroundings": 2, "variables": {"PATH": "/bin", "A": "b"}},
    {"type": "stop", "run": RUN, "kill_after": 5.0},
    {"type": "signal", "run": RUN, "number": 15},
    {"type": "acknowledge", "run": RUN},
    ahead(),
    {"type": "withdraw", "series": 3},
    HELLO,
]


class Peer:
    """A scheduler that says anything."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.run = CHILD
        rig.start(CHILD, ["sleep", "1000"])
        self.child = rig.started(CHILD).pid
        self.supervisor = rig.executor.supervisor_pid

    @contextlib.contextmanager
    def speaking(self) -> Iterator[Wire]:
        wire = Wire(self.rig.home)
        try:
            assert wire.hello(generation=5)["type"] == "hello"
            wire.say(type="environment", surroundings=1, variables={"PATH": os.environ["PATH"]})
            yield wire
        finally:
            wire.close()

    def works(self, wire: Wire) -> None:
        """What is said after it counts, though it came in the same breath."""
        self.run -= 1
        wire.say(**start(self.run, self.rig.home))
        while (heard := wire.hear()) is not None and not (heard["type"] == "exited" and heard["run"] == self.run):
            pass
        assert heard is not None
        assert heard["code"] == 0
        wire.say(type="acknowledge", run=self.run)
        assert lives(self.child)
        assert lives(self.supervisor)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with rig_in(tmp_path_factory.mktemp("spoilt") / "home") as rig:
        yield Peer(rig)


ONE_RIG = settings(suppress_health_check=[*HealthCheck], max_examples=sample(150))


@ONE_RIG
@given(data=st.data())
def test_whatever_the_scheduler_says(peer: Peer, data: st.DataObject) -> None:
    makes_files = [start(RUN, peer.rig.home), ahead(start(RUN, peer.rig.home))]
    lines = spoilt_line(ORDERS) | spoilt_line(makes_files, may_be_overwritten=False)
    with peer.speaking() as wire:
        wire.sock.sendall(b"".join(data.draw(st.lists(lines, min_size=1, max_size=4))))
        peer.works(wire)


def refusals(wire: Wire, count: int) -> list[dict[str, Any]]:
    """Ends that other tests have left are told meanwhile."""
    heard: list[dict[str, Any]] = []
    while len(heard) < count and (message := wire.hear()) is not None:
        heard += [message] if message["type"] == "error" else []
    return heard


cannot_be_carried_out = pytest.mark.parametrize(
    "spoilt",
    [
        {"timeout": float("inf")}, {"timeout": float("nan")}, {"timeout": "1"}, {"idle_timeout": float("inf")},
        {"kill_after": None}, {"kill_after": float("nan")}, {"directory": "/\0"}, {"directory": "here"},
        {"directory": 5}, {"cwd": "."}, {"argv": "true"}, {"argv": [1]}, {"argv": None}, {"overlay": {"A": 1}},
        {"overlay": []}, {"run": "1"}, {"run": True}, {"run": 1.5}, {"run": -1}, {"run": 1 << 63}, {"aside": "x"},
        {"skip_if": 5}, {"workspace": {}}, {"workspace": {"limit": "x"}}, {"workspace": 5}, {"surroundings": []},
    ],
    ids=str,
)  # fmt: skip


@cannot_be_carried_out
def test_a_start_that_cannot_be_carried_out_is_refused_before_anything_is_done(
    peer: Peer, spoilt: dict[str, Any]
) -> None:
    with peer.speaking() as wire:
        wire.say_at_once({**start(RUN, peer.rig.home), **spoilt}, {"type": "acknowledge", "run": CHILD})
        first, second = refusals(wire, 2)
        assert first["order"] == "start"
        assert first["error"].startswith("not understood: ")
        assert second["error"] == "this run has not ended", "the next line was read too"
        peer.works(wire)


def answers(wire: Wire, count: int) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    while len(heard) < count and (message := wire.hear()) is not None:
        heard += [message] if message["type"] in ("error", "taken", "withdrawn") else []
    return heard


@cannot_be_carried_out
def test_what_is_given_ahead_is_refused_whole_and_its_series_is_over(peer: Peer, spoilt: dict[str, Any]) -> None:
    right, wrong = start(RUN, peer.rig.home), {**start(RUN + 1, peer.rig.home), **spoilt}
    with peer.speaking() as wire:
        wire.say_at_once(ahead(right, wrong), ahead(right), {**ahead(wrong), "series": 4})
        refused, over, again, next_over = answers(wire, 4)
        assert refused["order"] == again["order"] == "ahead"
        assert refused["error"].startswith("not understood: ")
        assert over == {"type": "withdrawn", "series": 3}, "so what came of it right after was nobody's"
        assert next_over == {"type": "withdrawn", "series": 4}
        peer.works(wire)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"series": "3"},
        {"series": -1},
        {"series": None},
        {"width": "5"},
        {"width": -1},
        {"starts": {}},
        {"starts": [5]},
        {"runs": None},
        {"runs": ["5"]},
    ],
    ids=str,
)
def test_an_ahead_that_says_nothing_ends_the_open_series(peer: Peer, spoilt: dict[str, Any]) -> None:
    nothing = ahead()
    with peer.speaking() as wire:
        wire.say_at_once(nothing, {**nothing, **spoilt})
        refused, over = answers(wire, 2)
        assert refused["error"].startswith("not understood: ")
        assert over == {"type": "withdrawn", "series": 3}
        peer.works(wire)


def test_a_stop_that_is_refused_leaves_it_to_the_next(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.started(1).pid
    wire = Wire(rig.home)
    wire.hello(generation=5)
    for spoilt in ({"run": 1, "kill_after": "x"}, {"run": True}, {"run": 1, "kill_after": float("nan")}):
        wire.say(type="stop", **spoilt)
        answer = wire.hear()
        assert answer is not None
        assert answer["type"] == "error"
    assert lives(pid)
    wire.say(type="stop", run=1)
    answer = wire.hear()
    wire.close()
    assert answer is not None
    assert (answer["type"], answer["ended_by"]) == ("exited", "stop")


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000], ids=["array", "object"])
def test_what_is_too_deep_costs_only_itself(peer: Peer, deep: bytes) -> None:
    with peer.speaking() as wire:
        wire.sock.sendall(deep + b'\n{"type":"dance"}\n')
        assert [answer["error"][:15] for answer in refusals(wire, 2)] == ["not understood:", "unknown message"]
        peer.works(wire)


def takes_over(line: bytes) -> bool:
    """Spoilt or not, it is a hello of a scheduler that comes after all others here."""
    try:
        generation = json.loads(line)["generation"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return type(generation) is int and generation > 5


@ONE_RIG
@given(lines=st.lists(spoilt_line([HELLO]).filter(lambda line: not takes_over(line)), min_size=1, max_size=3))
def test_whatever_a_stranger_says_first(peer: Peer, lines: list[bytes]) -> None:
    stranger = Wire(peer.rig.home)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stranger.sock.sendall(b"".join(lines))
    stranger.close()
    with peer.speaking() as wire:
        peer.works(wire)


ENDS: list[dict[str, Any]] = [
    {"type": "started", "run": RUN, "pid": 4711, "start_time": 12},
    {"type": "failed_to_start", "run": RUN, "error": "no such program", "is_machine": False},
    {
        "type": "exited", "run": RUN, "at": 1.0, "code": 1, "signal": None, "ended_by": None, "skipped": None,
        "tail": "x", "watched": True, "trouble": "",
    },
    {"type": "taken", "run": RUN, "at": 1.0},
    {"type": "withdrawn", "series": 3},
    {"type": "trouble", "trouble": None},
    {"type": "error", "error": "no", "run": RUN, "order": "start", "protocol": protocol.PROTOCOL},
]  # fmt: skip
ANSWER = {
    "type": "hello", "protocol": protocol.PROTOCOL, "pid": 1, "boot": "b", "version": "0",
    "accounts": [{"run": RUN, "pid": 4711, "start_time": 12, "has_ended": False, "is_lost": False}],
}  # fmt: skip
GREETING = json.dumps(ANSWER).encode() + b"\n"
END = json.dumps({**ENDS[2], "run": CHILD}).encode() + b"\n"


class Supervisor:
    """Says to the first that comes one thing at once and another when it is spoken to; to all others what is right."""

    def __init__(self, home: Path, at_once: bytes, later: bytes) -> None:
        self._at_once, self._later = at_once, later
        (home / protocol.SOCKET).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(home / protocol.SOCKET))
        self._listener.listen(8)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        sayings = [self._at_once, self._later]
        with contextlib.suppress(OSError):  # the listener is shut down
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                with contextlib.suppress(OSError):
                    for saying in sayings:
                        sock.recv(65536)
                        sock.sendall(saying)
                sayings = [GREETING + END]

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        for each in (self._listener, *self._open):
            each.close()


@contextlib.contextmanager
def facing(home: Path, at_once: bytes, later: bytes = b"") -> Iterator[LocalExecutor]:
    supervisor = Supervisor(home, at_once, later)
    executor = LocalExecutor(home, None)
    try:
        with contextlib.suppress(Unavailable):
            executor.introduce(5)
        executor.send([Acknowledge(run=RunId(1))])
        yield executor
    finally:
        executor.close()
        supervisor.close()


def hear_the_end(executor: LocalExecutor) -> list[Message]:
    """As the engine does: told that there is nobody, it comes again."""
    heard: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(Unavailable):
            heard += executor.receive()
            if any(isinstance(message, Exited) and message.run == CHILD for message in heard):
                return heard
            wait_readable(executor.fileno(), deadline, f"the end; heard {heard[-3:]}")


@settings(max_examples=sample(150), suppress_health_check=[*HealthCheck])
@given(lines=st.lists(spoilt_line(ENDS), min_size=1, max_size=3), in_one_breath=st.booleans())
def test_whatever_the_supervisor_says(tmp_path: Path, lines: list[bytes], in_one_breath: bool) -> None:
    """What follows is heard: on this connection, or where a line could not be read, on the next, which begins anew."""
    spoilt = b"".join(lines) + END
    with facing(tmp_path, *((GREETING + spoilt, b"") if in_one_breath else (GREETING, spoilt))) as executor:
        heard = hear_the_end(executor)
    for before, after in pairwise(heard):
        assert isinstance(after, Accounts) == isinstance(before, Lost)


@settings(max_examples=sample(150), suppress_health_check=[*HealthCheck])
@given(line=spoilt_line([ANSWER]))
def test_whatever_it_answers_to_a_hello(tmp_path: Path, line: bytes) -> None:
    with facing(tmp_path, line + END) as executor:
        assert isinstance(hear_the_end(executor)[0], Accounts)


def test_what_cannot_be_read_ends_the_wait_for_an_answer(tmp_path: Path) -> None:
    with facing(tmp_path, GREETING, END + b'{"type":"withdrawn","series":"x"}\n') as executor:
        executor.withdraw(3, PATIENCE)
        wait_readable(executor.fileno(), time.monotonic() + PATIENCE, "what came before it")
        assert [type(message) for message in executor.receive()] == [Accounts, Exited, Lost]
        wait_readable(executor.fileno(), time.monotonic() + PATIENCE, "what is said of it")
        with pytest.raises(Unavailable, match="cannot be read"):
            executor.receive()
        assert [type(message) for message in hear_the_end(executor)] == [Accounts, Exited]


def hear_all(executor: LocalExecutor, heard: list[Message]) -> None:
    while True:
        wait_readable(executor.fileno(), time.monotonic() + PATIENCE, f"news; heard {heard}")
        heard += executor.receive()


def test_what_cannot_be_read_is_said_and_waited_after(tmp_path: Path) -> None:
    heard: list[Message] = []
    with facing(tmp_path, GREETING, END + b'{"type":"exited","run":"x"}\n' + END) as executor:
        with pytest.raises(Unavailable, match=r"said something that cannot be read \(.*run.*\); it is asked again"):
            hear_all(executor, heard)
        assert [type(message) for message in heard] == [Accounts, Exited, Lost]
        assert not select.select([executor.fileno()], [], [], 0)[0], "nobody is called over and over meanwhile"
        assert [type(message) for message in hear_the_end(executor)] == [Accounts, Exited]
