"""What is given ahead: started without asking while all goes well, and not at all once something does not."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executor.rig import PATIENCE, Fifo, Rig, Wire, wait_readable
from executor.test_orphan import lose_supervisor
from executor.test_spoilt_message import ANSWER, facing
from rota.executor.port import (
    Accounts,
    Acknowledge,
    Ahead,
    Environment,
    Exited,
    FailedToStart,
    Lost,
    Message,
    Order,
    Refused,
    Signal,
    Start,
    Started,
    Stop,
    Taken,
    Trouble,
    Withdraw,
    Withdrawn,
)
from rota.executor.supervisor.ahead import Ahead as Following
from rota.executor.supervisor.protocol import AHEAD, PROTOCOL
from rota.ids import RunId

MakeFifo = Callable[[str], Fifo]
ASKED = 0
"""A series older than any: to ask for it tells nothing but how far the supervisor has come."""


def give(rig: Rig, *starts: Start, series: int = 1, width: int = 1) -> None:
    rig.send(Ahead(series=series, width=width, starts=starts))


def waits_at(rig: Rig, run: int, gate: Fifo, code: int = 0, **options: Any) -> Start:
    return rig.order(run, ["sh", "-c", f"read x < {gate.path}; exit {code}"], **options)


def until_read(rig: Rig) -> None:
    """Everything sent so far has been taken in, and what it led to has been told."""
    rig.send(Withdraw(series=ASKED))
    rig.wait_until(lambda message: message == Withdrawn(series=ASKED), "how far it is")


def told(rig: Rig) -> list[tuple[str, int]]:
    """The stream, but for what says nothing of the order."""
    kinds = (Taken, Started, Exited, FailedToStart, Refused)
    return [
        (type(message).__name__, message.series if isinstance(message, Withdrawn) else message.run)
        for message in rig.seen
        if isinstance(message, (*kinds, Withdrawn)) and message != Withdrawn(series=ASKED)
    ]


def withdrawn(rig: Rig, series: int = 1) -> None:
    rig.wait_until(lambda message: message == Withdrawn(series=series), f"the end of series {series}")


def taken(rig: Rig) -> list[int]:
    return [message.run for message in rig.seen if isinstance(message, Taken)]


# --- taken ---


def test_the_next_is_taken_when_the_first_has_ended_well(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    give(rig, rig.order(2, ["true"]), rig.order(3, ["true"]), rig.order(4, ["true"]))
    until_read(rig)
    assert taken(rig) == []
    gate.release()
    assert rig.exited(4).code == 0
    assert told(rig) == [
        ("Started", 1), ("Exited", 1), ("Taken", 2), ("Started", 2), ("Exited", 2), ("Taken", 3), ("Started", 3),
        ("Exited", 3), ("Taken", 4), ("Started", 4), ("Exited", 4),
    ]  # fmt: skip


def test_it_is_told_right_behind_the_end_that_made_room(rig: Rig, fifo: MakeFifo) -> None:
    """In one breath: whoever commits the end commits with it what has taken its place."""
    gate = fifo("gate")
    wire = Wire(rig.home)
    wire.hello(generation=5)
    wire.say(type="environment", surroundings=1, variables={"PATH": os.environ["PATH"]})
    first, second = (json.loads(_encoded(order)) for order in (waits_at(rig, 1, gate), rig.order(2, ["true"])))
    wire.say_at_once(
        {"type": "start", **first}, {"type": "ahead", "series": 9, "width": 1, "starts": [second], "runs": []}
    )
    gate.release()
    while (heard := wire.hear()) is not None and heard["type"] != "exited":
        pass
    assert wire._rest.startswith(b'{"type":"taken","run":2,"at":')
    wire.close()


def _encoded(order: Start) -> str:
    names = ("run", "argv", "cwd", "surroundings", "overlay", "directory", "kill_after")
    return json.dumps({name: getattr(order, name) for name in names})


def test_what_comes_after_the_end_is_taken_at_once(rig: Rig) -> None:
    rig.start(1, ["true"])
    rig.exited(1)
    give(rig, rig.order(2, ["true"]))
    assert rig.exited(2).code == 0
    give(rig, rig.order(3, ["true"]))
    assert rig.exited(3).code == 0
    assert taken(rig) == [2, 3]


def test_more_of_a_series_stands_behind_what_is_there(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    for run in range(2, 7):
        give(rig, rig.order(run, ["true"]))
    gate.release()
    rig.exited(6)
    assert taken(rig) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("width", [2, 3])
def test_no_more_than_the_width_at_once(rig: Rig, fifo: MakeFifo, width: int) -> None:
    gates = {run: fifo(f"gate-{run}") for run in range(1, 7)}
    rig.send(waits_at(rig, 1, gates[1]))
    give(rig, *(waits_at(rig, run, gates[run]) for run in range(2, 7)), width=width)
    until_read(rig)
    assert taken(rig) == list(range(2, width + 1)), "as many as there was room for"
    for done in range(1, 7 - width):
        gates[done].release()
        rig.exited(done)
        until_read(rig)
        assert taken(rig) == list(range(2, width + done + 1)), "one for each that has ended"


def test_the_width_is_what_was_said_last(rig: Rig, fifo: MakeFifo) -> None:
    gates = {run: fifo(f"gate-{run}") for run in range(1, 5)}
    give(rig, *(waits_at(rig, run, gates[run]) for run in range(1, 5)), width=1)
    until_read(rig)
    assert taken(rig) == [1]
    give(rig, width=3)
    until_read(rig)
    assert taken(rig) == [1, 2, 3]
    give(rig, width=1)
    until_read(rig)
    gates[1].release()
    rig.exited(1)
    until_read(rig)
    assert taken(rig) == [1, 2, 3], "there are still two"


def test_bytes_that_are_no_text_and_its_surroundings_arrive(rig: Rig) -> None:
    give(rig, rig.order(1, ["sh", "-c", 'printf %s "$GREETING $ROTA_JOB $1"', "sh", "\udcff"]))
    assert rig.exited(1).code == 0
    assert (rig.directory(1) / "stdout.log").read_bytes() == b"hello job-1 \xff"


def test_what_goes_on_as_it_should_ends_no_series(rig: Rig, fifo: MakeFifo) -> None:
    """A start, while nothing waits that it would overtake, and whatever is nobody's news."""
    gate = fifo("gate")
    give(rig, rig.order(1, ["true"]))
    rig.exited(1)
    rig.acknowledge(1)
    rig.send(Environment(surroundings=2, variables={"PATH": os.environ["PATH"]}))
    rig.send(waits_at(rig, 2, gate))
    give(rig, rig.order(3, ["true"], surroundings=2))
    gate.release()
    assert rig.exited(3).code == 0
    assert ("Withdrawn", 1) not in told(rig)


# --- the end of a series ---


def _assert_is_over(rig: Rig, series: int = 1) -> None:
    """For good, and its number too."""
    so_far = taken(rig)
    give(rig, rig.order(90, ["true"]), series=series, width=50)
    until_read(rig)
    assert taken(rig) == so_far
    assert [name for name, number in told(rig) if name == "Withdrawn"] == ["Withdrawn"], "it is told once"
    give(rig, rig.order(91, ["true"]), series=series + 1, width=50)
    assert rig.exited(91).code == 0, "the next begins anew"


@pytest.mark.parametrize(
    ("script", "options", "end"),
    [
        ("read x < {gate}; exit 3", {}, "Exited"),
        ("read x < {gate}; kill -9 $$", {}, "Exited"),
        ("exec sleep 1000", {"timeout": 0.3}, "Exited"),
        ("trap 'exit 0' TERM; sleep 1000 & wait", {"timeout": 0.3}, "Exited"),
        ("exec sleep 1000", {"idle_timeout": 0.3}, "Exited"),
        ("true", {"skip_if": "read x < {gate}; exit 0"}, "Exited"),
        ("true", {"skip_if": "read x < {gate}; exit 1", "cwd": "/nowhere/at/all"}, "FailedToStart"),
    ],
    ids=["failed", "killed", "timeout", "timeout taken well", "idle", "skipped", "failed to start"],
)
def test_any_other_end_than_a_success(rig: Rig, fifo: MakeFifo, script: str, options: dict[str, Any], end: str) -> None:
    gate = fifo("gate")
    if "skip_if" in options:
        options = {**options, "skip_if": options["skip_if"].format(gate=gate.path)}
    first = rig.order(1, ["sh", "-c", script.format(gate=gate.path)], **options)
    following = [rig.order(2, ["true"]), rig.order(3, ["true"])]
    rig.send(first, Ahead(series=1, width=1, starts=following))  # in one breath, so that no limit can be over before
    gate.release()
    withdrawn(rig)
    assert told(rig)[-2:] == [(end, 1), ("Withdrawn", 1)]
    assert taken(rig) == []
    _assert_is_over(rig)


def test_one_that_was_taken_ends_it_too(rig: Rig) -> None:
    give(rig, rig.order(1, ["true"]), rig.order(2, ["false"]), rig.order(3, ["true"]))
    withdrawn(rig)
    assert told(rig)[-4:] == [("Taken", 2), ("Started", 2), ("Exited", 2), ("Withdrawn", 1)]
    assert not rig.directory(3).exists()
    _assert_is_over(rig)


def test_one_that_cannot_be_started(rig: Rig) -> None:
    give(rig, rig.order(1, ["no-such-program-here"]), rig.order(2, ["true"]))
    withdrawn(rig)
    assert told(rig) == [("Taken", 1), ("FailedToStart", 1), ("Withdrawn", 1)]
    _assert_is_over(rig)


def test_one_whose_surroundings_were_not_sent(rig: Rig) -> None:
    give(rig, rig.order(1, ["true"], surroundings=77), rig.order(2, ["true"]))
    assert rig.failed(1) == "surroundings 77 were not sent on this connection"
    withdrawn(rig)
    assert taken(rig) == [1]
    _assert_is_over(rig)


def test_one_that_is_known_already(rig: Rig) -> None:
    rig.start(1, ["true"])
    rig.exited(1)
    give(rig, rig.order(1, ["true"]), rig.order(2, ["true"]))
    withdrawn(rig)
    assert told(rig)[-3:] == [("Taken", 1), ("Refused", 1), ("Withdrawn", 1)]
    assert taken(rig) == [1]
    _assert_is_over(rig)


@pytest.mark.parametrize(
    "order",
    [
        Stop(run=RunId(1)),
        Stop(run=RunId(77)),
        Signal(run=RunId(1), number=signal.SIGCONT),
        Signal(run=RunId(77), number=signal.SIGCONT),
        Acknowledge(run=RunId(1)),
    ],
    ids=["stop", "stop of nobody", "signal", "signal to nobody", "refused acknowledgement"],
)
def test_an_order_that_was_not_reckoned_with(rig: Rig, fifo: MakeFifo, order: Order) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    give(rig, rig.order(2, ["true"]))
    rig.send(order)
    withdrawn(rig)
    gate.release()
    rig.ended(1)
    _assert_is_over(rig)
    assert 2 not in taken(rig)


def test_a_stop_comes_before_whatever_has_ended_meanwhile(rig: Rig, fifo: MakeFifo) -> None:
    """Whichever of the two the supervisor sees first: nothing is taken once it has read the stop."""
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    give(rig, rig.order(2, ["sleep", "1000"]))
    until_read(rig)
    rig.suspend_supervisor()
    rig.stop(77)
    gate.release()
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    withdrawn(rig)
    rig.exited(1)
    until_read(rig)
    assert taken(rig) == []


def test_nothing_is_taken_while_there_is_something_to_be_read() -> None:
    """It may want back what is given: that its child's end was seen first gives it no right to go on."""
    started: list[int] = []
    live: set[int] = {1}

    def start(order: dict[str, Any], _surroundings: dict[str, str] | None) -> bool:
        started.append(order["run"])
        return True

    ahead = Following({}, live, start, lambda _line, _within=0.0: None)
    order = {
        "run": 2,
        "argv": ["true"],
        "cwd": "/",
        "directory": "/x",
        "kill_after": 1.0,
        "surroundings": 1,
        "overlay": {},
    }
    ahead.give({"series": 1, "width": 1, "runs": [], "starts": [order]}, {1: {}})
    ahead.has_mail = lambda: True
    live.clear()
    ahead.tell_end(b"", is_good=True)
    assert started == []
    ahead.has_mail = lambda: False
    ahead.go_on()
    assert started == [2]


def test_nothing_is_taken_that_is_wanted_back_in_the_same_breath(rig: Rig) -> None:
    """A supervisor that was slow reads both at once."""
    wire = Wire(rig.home)
    wire.hello(generation=5)
    wire.say(type="environment", surroundings=1, variables={"PATH": os.environ["PATH"]})
    order = json.loads(_encoded(rig.order(1, ["true"])))
    wire.say_at_once(
        {"type": "ahead", "series": 9, "width": 1, "starts": [order], "runs": []}, {"type": "withdraw", "series": 9}
    )
    heard = wire.hear()
    wire.close()
    assert heard == {"type": "withdrawn", "series": 9}


def test_nor_while_the_half_of_a_line_is_there(rig: Rig) -> None:
    wire = Wire(rig.home)
    wire.hello(generation=5)
    wire.say(type="environment", surroundings=1, variables={"PATH": os.environ["PATH"]})
    order = json.loads(_encoded(rig.order(1, ["true"])))
    given = json.dumps({"type": "ahead", "series": 9, "width": 1, "starts": [order], "runs": []}).encode()
    wire.sock.sendall(given + b'\n{"type":"with')
    other = Wire(rig.home)  # whose answer shows that the other has been read
    other.say(type="hello", protocol=PROTOCOL, generation=1, version="test")
    assert other.hear() is not None
    other.close()
    wire.sock.sendall(b'draw","series":9}\n')
    heard = wire.hear()
    wire.close()
    assert heard == {"type": "withdrawn", "series": 9}


def test_a_start_that_would_overtake(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    give(rig, rig.order(2, ["true"]))
    rig.start(3, ["true"])
    assert rig.exited(3).code == 0
    assert told(rig).index(("Withdrawn", 1)) < told(rig).index(("Started", 3))
    gate.release()
    rig.exited(1)
    _assert_is_over(rig)
    assert 2 not in taken(rig)


def test_a_start_that_is_refused(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    give(rig, waits_at(rig, 1, gate))
    until_read(rig)
    rig.start(1, ["true"])
    withdrawn(rig)
    assert told(rig).index(("Refused", 1)) < told(rig).index(("Withdrawn", 1))
    gate.release()
    assert rig.exited(1).code == 0
    _assert_is_over(rig)


def test_a_start_that_cannot_be_carried_out(rig: Rig) -> None:
    give(rig)
    rig.start(1, ["true"], cwd="here")
    withdrawn(rig)
    _assert_is_over(rig)


def test_a_journal_that_cannot_be_written_when_one_ends(rig: Rig, fifo: MakeFifo, full: Callable[[bool], None]) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    give(rig, rig.order(2, ["true"]))
    until_read(rig)
    full(True)
    gate.release()
    withdrawn(rig)
    assert rig.wait_for(Trouble).trouble is not None
    full(False)
    assert rig.exited(1).code == 0
    _assert_is_over(rig)
    assert 2 not in taken(rig)


def test_a_journal_that_cannot_be_written_when_one_is_taken(rig: Rig, full: Callable[[bool], None]) -> None:
    full(True)
    give(rig, rig.order(1, ["true"]), rig.order(2, ["true"]))
    withdrawn(rig)
    assert told(rig) == [("Taken", 1), ("FailedToStart", 1), ("Withdrawn", 1)]
    full(False)
    _assert_is_over(rig)


def test_without_a_series_nothing_is_told(rig: Rig) -> None:
    rig.start(1, ["false"])
    rig.exited(1)
    rig.start(2, ["no-such-program-here"])
    rig.failed(2)
    rig.stop(77)
    until_read(rig)
    assert [name for name, _ in told(rig) if name == "Withdrawn"] == []


def test_a_newer_series_takes_the_place_of_an_older(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    give(rig, rig.order(2, ["true"]), series=7)
    give(rig, rig.order(3, ["true"]), series=8)
    give(rig, rig.order(4, ["true"]), series=7)
    gate.release()
    rig.exited(3)
    until_read(rig)
    assert taken(rig) == [3]


# --- withdraw ---


def test_what_is_withdrawn_is_not_taken(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    give(rig, rig.order(2, ["true"]))
    rig.send(Withdraw(series=1))
    withdrawn(rig)
    gate.release()
    assert rig.exited(1).code == 0
    _assert_is_over(rig)
    assert 2 not in taken(rig)


def test_it_is_answered_each_time_and_with_nothing_open(rig: Rig) -> None:
    rig.send(Withdraw(series=5), Withdraw(series=5), Withdraw(series=4))
    for series in (5, 5, 4):
        withdrawn(rig, series)
    give(rig, rig.order(1, ["true"]), series=5)
    until_read(rig)
    assert taken(rig) == [], "what comes of it afterwards is not for anybody"


def test_of_another_series_it_ends_nothing(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    give(rig, waits_at(rig, 1, gate), rig.order(2, ["true"]), series=5)
    rig.send(Withdraw(series=4))
    withdrawn(rig, 4)
    gate.release()
    assert rig.exited(2).code == 0


def test_what_was_taken_before_is_told_before(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    give(rig, rig.order(1, ["true"]), waits_at(rig, 2, gate), rig.order(3, ["true"]))
    rig.started(2)
    rig.executor.withdraw(1, PATIENCE)
    wait_readable(rig.executor.fileno(), time.monotonic() + PATIENCE, "the answer")
    assert rig.executor.receive() == [Withdrawn(series=1)]
    assert taken(rig) == [1, 2]
    gate.release()
    assert rig.exited(2).code == 0
    until_read(rig)
    assert taken(rig) == [1, 2]


def test_all_that_came_while_it_was_waited_for_is_there_in_order(rig: Rig, fifo: MakeFifo) -> None:
    gate, here = fifo("gate"), fifo("here")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    second = rig.order(2, ["sh", "-c", f"echo here > {here.path}; exec sleep 1000"])
    give(rig, second, rig.order(3, ["true"]))
    gate.release()
    assert here.line() == "here"
    rig.executor.withdraw(1, PATIENCE)
    wait_readable(rig.executor.fileno(), time.monotonic() + PATIENCE, "all of it")
    came = [message for message in rig.executor.receive() if not isinstance(message, Started)]
    assert [type(message) for message in came] == [Exited, Taken, Withdrawn]
    assert not select.select([rig.executor], [], [], 0)[0]


def test_it_sends_first_what_was_not_sent_yet(rig: Rig) -> None:
    rig.suspend_supervisor()
    rig.send(Environment(surroundings=2, variables={"X": "y" * 5_000_000}))
    give(rig, rig.order(1, ["true"], surroundings=1))
    assert rig.executor._out
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    rig.executor.withdraw(1, PATIENCE)
    assert not rig.executor._out
    assert Withdrawn(series=1) in rig.executor.receive()


def test_patience_has_an_end(rig: Rig) -> None:
    give(rig)
    until_read(rig)
    rig.suspend_supervisor()
    rig.executor.withdraw(1, 0.1)
    assert not select.select([rig.executor], [], [], 0)[0]
    assert rig.executor.receive() == []
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    withdrawn(rig)


def test_a_supervisor_that_was_killed_is_not_waited_for(rig: Rig, fifo: MakeFifo) -> None:
    gate, here = fifo("gate"), fifo("here")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    second = rig.order(2, ["sh", "-c", f"echo here > {here.path}; exec sleep 1000"])
    give(rig, second, rig.order(3, ["true"]))
    gate.release()
    wait_readable(rig.executor.fileno(), time.monotonic() + PATIENCE, "the end of the first")
    assert here.line() == "here"
    rig.kill_supervisor()
    begun = time.monotonic()
    rig.executor.withdraw(1, 1000.0)
    assert not rig.executor.goes_ahead
    rig.executor.withdraw(1, 1000.0)
    assert time.monotonic() - begun < PATIENCE
    accounts = rig.wait_for(Accounts)
    assert [account.run for account in accounts.runs] == [1, 2]
    kinds = [type(message) for message in rig.seen if not isinstance(message, Started)]
    assert kinds[: kinds.index(Lost) + 2] == [Accounts, Exited, Taken, Lost, Accounts], "nothing of it is lost"
    assert rig.executor.goes_ahead


# --- whoever comes next ---


def test_with_the_connection_all_of_it_is_gone(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    give(rig, rig.order(2, ["true"]), series=7)
    until_read(rig)
    rig.reconnect()
    assert [account.run for account in rig.accounts.runs] == [1]
    gate.release()
    rig.exited(1)
    until_read(rig)
    assert told(rig) == [("Exited", 1)], "nor is anybody told of it"
    rig.reconnect()
    give(rig, rig.order(3, ["true"]), series=1)
    assert rig.exited(3).code == 0, "who comes next counts anew"


def test_who_takes_over_gets_nothing_of_it(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.send(waits_at(rig, 1, gate))
    rig.started(1)
    give(rig, rig.order(2, ["true"]))
    until_read(rig)
    wire = Wire(rig.home)
    assert [account["run"] for account in wire.hello(generation=2)["accounts"]] == [1]
    gate.release()
    first = wire.hear()
    wire.say(type="withdraw", series=1)
    second = wire.hear()
    wire.close()
    assert first is not None
    assert (first["type"], first["run"]) == ("exited", 1)
    assert second == {"type": "withdrawn", "series": 1}


def test_a_successor_knows_only_what_was_taken(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    give(rig, rig.order(1, ["true"]), waits_at(rig, 2, gate), rig.order(3, ["true"]))
    rig.exited(1)
    rig.started(2)
    accounts = lose_supervisor(rig)
    assert [account.run for account in accounts.runs] == [1, 2]
    gate.release()
    assert rig.exited(2).code is None
    until_read(rig)
    assert taken(rig) == [1, 2]
    assert not rig.directory(3).exists()


# --- versions ---


def test_an_older_supervisor_is_not_given_anything(rig: Rig) -> None:
    rig.executor._spoken = AHEAD - 1
    assert not rig.executor.goes_ahead
    give(rig, rig.order(1, ["true"]))
    rig.executor.withdraw(1, 1000.0)
    rig.send(Withdraw(series=1))
    assert [message for message in rig.barrier() if isinstance(message, Taken | Withdrawn)] == []


@pytest.mark.parametrize(("spoken", "goes_ahead"), [(PROTOCOL, True), (AHEAD - 1, False)])
def test_it_says_so_when_it_is_greeted(tmp_path: Path, spoken: int, goes_ahead: bool) -> None:
    with facing(tmp_path, json.dumps({**ANSWER, "protocol": spoken}).encode() + b"\n") as executor:
        assert executor.goes_ahead is goes_ahead


def test_who_is_not_connected_goes_nowhere(rig: Rig) -> None:
    came: list[Message] = []
    rig.kill_supervisor()
    while not any(isinstance(message, Lost) for message in came):
        wait_readable(rig.executor.fileno(), time.monotonic() + PATIENCE, "the loss")
        came += rig.executor.receive()
    assert not rig.executor.goes_ahead


@pytest.mark.parametrize(("code", "is_taken"), [(0, True), (1, False)], ids=["well", "otherwise"])
def test_an_end_that_the_scheduler_had_not_heard_of_when_it_decided(rig: Rig, code: int, is_taken: bool) -> None:
    """It has made room already when what was decided without it arrives."""
    rig.start(1, ["sh", "-c", f"exit {code}"])
    rig.exited(1)
    rig.send(Ahead(series=1, width=1, starts=[rig.order(2, ["true"])], runs=[RunId(1)]))
    until_read(rig)
    assert taken(rig) == ([2] if is_taken else [])
    assert (Withdrawn(series=1) in rig.seen) is not is_taken
