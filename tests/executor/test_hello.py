"""Who may speak, and what is told again until it is acknowledged."""

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

from executor.rig import Fifo, Rig, Wire, lives
from rota.errors import Conflict
from rota.executor.local import LocalExecutor
from rota.executor.port import Account, Exited, Lost, Refused, Started
from rota.executor.supervisor import protocol
from rota.ids import RunId

MakeFifo = Callable[[str], Fifo]


@pytest.fixture
def wire(rig: Rig) -> Iterator[Callable[[], Wire]]:
    made: list[Wire] = []

    def connect() -> Wire:
        made.append(Wire(rig.home))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def start(run: int, home: Path, argv: list[str]) -> dict[str, Any]:
    return {
        "type": "start",
        "run": run,
        "job": run,
        "argv": argv,
        "cwd": "/",
        "surroundings": 1,
        "overlay": {},
        "directory": str(home / "jobs" / f"job-{run}"),
        "timeout": None,
        "idle_timeout": None,
        "kill_after": 5.0,
        "skip_if": None,
    }


def test_the_socket_is_private(rig: Rig) -> None:
    for name in (protocol.SOCKET, protocol.LOCK, protocol.LOG, protocol.JOURNAL):
        assert stat.S_IMODE((rig.home / name).stat().st_mode) & 0o077 == 0


def test_hello_says_who_is_there(rig: Rig, wire: Callable[[], Wire]) -> None:
    rig.start(1, ["sleep", "1000"])
    started = rig.started(1)
    rig.shell(2, "exit 3")
    rig.exited(2)
    rig.start(3, ["no-such-program-here"])
    rig.failed(3)
    peer = wire()
    answer = peer.hello(generation=5)
    assert answer["protocol"] == protocol.PROTOCOL
    assert answer["pid"] == rig.executor.supervisor_pid
    assert answer["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert answer["accounts"] == [
        {"run": 1, "pid": started.pid, "start_time": started.start_time, "has_ended": False, "is_lost": False},
        {"run": 2, "pid": None, "start_time": None, "has_ended": True, "is_lost": False},
        {"run": 3, "pid": None, "start_time": None, "has_ended": True, "is_lost": False},
    ]
    ends = [peer.hear(), peer.hear()]
    assert [(end["type"], end["run"]) for end in ends if end] == [("exited", 2), ("failed_to_start", 3)]


def test_an_end_is_told_until_it_is_acknowledged(rig: Rig) -> None:
    rig.shell(1, "exit 3")
    first = rig.exited(1)
    for _ in range(2):
        rig.reconnect()
        assert list(rig.accounts.runs) == [Account(run=first.run, pid=None, has_ended=True)]
        assert rig.exited(1) == first
    rig.acknowledge(1)
    rig.acknowledge(1)
    rig.barrier()
    rig.reconnect()
    assert list(rig.accounts.runs) == []


def test_a_failure_to_start_is_told_until_it_is_acknowledged(rig: Rig) -> None:
    rig.start(1, ["no-such-program-here"])
    rig.failed(1)
    rig.reconnect()
    assert rig.failed(1) == "program not found: no-such-program-here"
    rig.acknowledge(1)
    rig.barrier()
    rig.reconnect()
    assert list(rig.accounts.runs) == []


def test_an_end_while_the_scheduler_was_away_keeps_its_code(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.shell(1, f"read x < {gate.path}; exit 9")
    rig.started(1)
    rig.executor.close()
    gate.release()
    rig.reconnect(2)
    assert rig.exited(1).code == 9


def test_ends_outlive_the_supervisor(rig: Rig) -> None:
    rig.shell(1, "exit 3")
    first = rig.exited(1)
    rig.kill_supervisor()
    rig.wait_for(Lost)
    assert rig.exited(1) == first


def test_acknowledging_what_lives_is_refused(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.started(1).pid
    rig.acknowledge(1)
    rig.barrier()
    assert "has not ended" in caplog.text
    assert lives(pid)


def test_a_second_start_is_refused(rig: Rig, fifo: MakeFifo, caplog: pytest.LogCaptureFixture) -> None:
    told = fifo("told")
    script = f"echo $$ > {told.path}; exec sleep 1000"
    rig.shell(1, script)
    pid = rig.started(1).pid
    assert told.number() == pid
    with caplog.at_level(logging.WARNING):
        rig.shell(1, f"echo second > {told.path}")
        said = rig.barrier()
    (refused,) = [m for m in said if getattr(m, "run", 0) == 1]
    assert isinstance(refused, Refused)
    assert "known already" in refused.error
    assert "known already" in caplog.text
    assert lives(pid)
    rig.stop(1)
    rig.exited(1)
    rig.shell(1, f"echo third > {told.path}")  # ended, not acknowledged: still refused
    rig.barrier()
    rig.acknowledge(1)
    rig.shell(1, f"echo fourth > {told.path}")
    assert told.line() == "fourth"


def test_only_a_refused_start_is_the_engines_business(rig: Rig) -> None:
    """A refused stop or acknowledgement changes nothing for anybody."""
    rig.stop(77)
    rig.start(1, ["sleep", "1000"])
    rig.started(1)
    rig.acknowledge(1)
    assert not [message for message in rig.barrier() if isinstance(message, Refused)]


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        ({"error": "not understood: KeyError('argv')", "order": "start"}, True),
        ({"error": "no such run", "order": "stop"}, False),
        ({"error": "not understood: at all"}, False),
        ({"error": "unknown message: dance", "order": "dance"}, False),
    ],
)
def test_only_the_refusal_of_a_start_is_told(rig: Rig, error: dict[str, Any], is_told: bool) -> None:
    rig.executor._take(json.dumps({"type": "error", "run": 5, **error}).encode())
    assert [m for m in rig.executor._inbox if isinstance(m, Refused)] == (
        [Refused(run=RunId(5), error=error["error"])] if is_told else []
    )


def test_a_newer_generation_takes_over(rig: Rig, wire: Callable[[], Wire]) -> None:
    old, new = wire(), wire()
    assert old.hello(generation=5)["type"] == "hello"
    assert new.hello(generation=6)["type"] == "hello"
    assert old.hear() is None
    new.say(type="environment", surroundings=1, variables={})
    new.say(**start(1, rig.home, ["/bin/true"]))
    answer = new.hear()
    assert answer is not None
    assert answer["type"] == "started"


def test_what_the_older_connection_holds_unread_is_dropped(rig: Rig, wire: Callable[[], Wire]) -> None:
    """Its start lies in the socket beside the newer hello.

    The kernel says which is read first. Read after the hello it must never be carried out; read before, it
    must be accounted for.
    """
    old, new = wire(), wire()
    old.hello(generation=5)
    old.say(type="environment", surroundings=1, variables={})
    old.say(type="stop", run=77)
    assert old.hear() is not None  # so far all is read
    rig.suspend_supervisor()
    new.say(type="hello", protocol=protocol.PROTOCOL, generation=6, version="test")
    old.say(**start(1, rig.home, ["/bin/true"]))
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    answer = new.hear()
    assert answer is not None
    was_read_first = [account["run"] for account in answer["accounts"]] == [1]
    new.say(type="stop", run=1)
    answer = new.hear()
    assert answer is not None
    assert (answer.get("error") == "no such run") is not was_read_first
    assert (rig.home / "jobs" / "job-1").exists() is was_read_first
    assert old.hear() is None


def test_orders_in_the_same_breath_as_a_refused_hello_are_not_obeyed(rig: Rig, wire: Callable[[], Wire]) -> None:
    wire().hello(generation=9)
    late = wire()
    late.say_at_once(
        {"type": "hello", "protocol": protocol.PROTOCOL, "generation": 8, "version": "test"},
        {"type": "environment", "surroundings": 1, "variables": {}},
        start(1, rig.home, ["/bin/true"]),
    )
    answer = late.hear()
    assert answer is not None
    assert answer["type"] == "error"
    assert late.hear() is None
    assert not (rig.home / "jobs" / "job-1").exists()


def test_a_lower_generation_is_refused(rig: Rig, wire: Callable[[], Wire]) -> None:
    current = wire()
    current.hello(generation=9)
    late = wire()
    answer = late.hello(generation=8)
    assert answer["type"] == "error"
    assert "generation 8 is over" in answer["error"]
    assert late.hear() is None
    current.say(type="stop", run=77)
    answer2 = current.hear()
    assert answer2 is not None
    assert answer2["error"] == "no such run"


def test_the_generation_outlives_the_supervisor(rig: Rig) -> None:
    rig.reconnect(7)
    rig.kill_supervisor()
    with pytest.raises(Conflict, match="generation 6 is over"):
        LocalExecutor(rig.home, 6)


def test_the_same_generation_may_come_back(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    rig.started(1)
    rig.reconnect(1)
    assert [account.run for account in rig.accounts.runs] == [1]


@pytest.mark.parametrize(
    ("offer", "is_taken"),
    [
        ({"protocol": protocol.PROTOCOL}, True),
        ({"protocol": protocol.PROTOCOL - 1}, True),
        ({"protocol": protocol.PROTOCOL + 1}, False),  # names no oldest version: speaks only that
        ({"protocol": protocol.PROTOCOL + 1, "oldest": protocol.PROTOCOL}, True),
        ({"protocol": protocol.PROTOCOL + 2, "oldest": protocol.PROTOCOL + 1}, False),
        ({"protocol": 0}, False),
        ({"protocol": "1"}, False),
    ],
)
def test_protocol_versions(rig: Rig, wire: Callable[[], Wire], offer: dict[str, Any], is_taken: bool) -> None:
    peer = wire()
    answer = peer.hello(generation=5, **offer)
    assert (answer["type"] == "hello") is is_taken
    if is_taken:
        assert answer["protocol"] == min(offer["protocol"], protocol.PROTOCOL)
    else:
        assert peer.hear() is None


@pytest.mark.parametrize(
    "junk", [b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"type":"start"}\n', b'{"type":"hello"}\n']
)
def test_junk_closes_only_its_own_connection(rig: Rig, wire: Callable[[], Wire], junk: bytes) -> None:
    peer = wire()
    peer.sock.sendall(junk)
    answer = peer.hear()
    assert answer is not None
    assert answer["type"] == "error"
    assert peer.hear() is None
    rig.start(1, ["true"])
    assert rig.exited(1).code == 0


def test_junk_from_the_scheduler_costs_only_that_line(rig: Rig, wire: Callable[[], Wire]) -> None:
    peer = wire()
    peer.hello(generation=5)
    peer.say(type="environment", surroundings=1, variables={})
    peer.say(type="start", run=1)
    peer.say(type="dance")
    peer.say(**start(2, rig.home, ["/bin/true"]))
    heard = [peer.hear(), peer.hear(), peer.hear()]
    assert [m["type"] for m in heard if m] == ["error", "error", "started"]


def test_a_line_may_come_in_pieces(rig: Rig, wire: Callable[[], Wire]) -> None:
    peer = wire()
    for byte in b'{"type":"hello","protocol":%d,"generation":5,"version":"x"}\n' % protocol.PROTOCOL:
        peer.sock.sendall(bytes([byte]))
    answer = peer.hear()
    assert answer is not None
    assert answer["type"] == "hello"


def test_started_and_ended_are_told_in_order(rig: Rig) -> None:
    for run in (1, 2, 3):
        rig.start(run, ["true"])
    for run in (1, 2, 3):
        rig.exited(run)
    for run in (1, 2, 3):
        kinds = [type(m) for m in rig.seen if isinstance(m, Started | Exited) and m.run == run]
        assert kinds == [Started, Exited]
