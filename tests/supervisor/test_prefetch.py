"""Prefetched runs: started without a further order while every run succeeds, and dropped otherwise."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from rota.executor.port import (
    AcknowledgeOrder,
    ConnectionLoss,
    EnvironmentUpload,
    ExecutorFailure,
    ExecutorMessage,
    ExecutorOrder,
    ExitReport,
    PrefetchOrder,
    PrefetchStart,
    RunInventory,
    SignalOrder,
    StartConfirmation,
    StartFailure,
    StartOrder,
    StartRefusal,
    StopOrder,
    WithdrawConfirmation,
    WithdrawOrder,
)
from rota.ids import RunId
from rota.supervisor.prefetch import PrefetchQueue
from rota.supervisor.protocol import PROTOCOL
from tests.supervisor.rig import TIMEOUT, Fifo, Rig, Wire, wait_readable
from tests.supervisor.test_takeover import replace_supervisor

MakeFifo = Callable[[str], Fifo]
PROBE_SERIES = 0
"""Series older than any other: withdrawing it only shows how far the supervisor has read."""


def prefetch(rig: Rig, *starts: StartOrder, series: int = 1, max_running: int = 1) -> None:
    rig.send(PrefetchOrder(series=series, max_running=max_running, starts=starts))


def make_gated_order(rig: Rig, run: int, gate: Fifo, code: int = 0, **options: Any) -> StartOrder:
    return rig.make_order(run, ["sh", "-c", f"read x < {gate.path}; exit {code}"], **options)


def wait_until_read(rig: Rig) -> None:
    """Wait until all orders are read and their effects reported."""
    rig.send(WithdrawOrder(series=PROBE_SERIES))
    rig.wait_for_message(
        lambda message: message == WithdrawConfirmation(series=PROBE_SERIES), "the confirmation of the probe"
    )


def list_reports(rig: Rig) -> list[tuple[str, int]]:
    """Return the received reports in order, as type and run or series."""
    kinds = (PrefetchStart, StartConfirmation, ExitReport, StartFailure, StartRefusal)
    return [
        (type(message).__name__, message.series if isinstance(message, WithdrawConfirmation) else message.run)
        for message in rig.received
        if isinstance(message, (*kinds, WithdrawConfirmation)) and message != WithdrawConfirmation(series=PROBE_SERIES)
    ]


def wait_for_withdrawal(rig: Rig, series: int = 1) -> None:
    rig.wait_for_message(lambda message: message == WithdrawConfirmation(series=series), f"the end of series {series}")


def prefetched_runs(rig: Rig) -> list[int]:
    return [message.run for message in rig.received if isinstance(message, PrefetchStart)]


# --- starts ---


def test_next_run_starts_after_success(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    prefetch(rig, rig.make_order(2, ["true"]), rig.make_order(3, ["true"]), rig.make_order(4, ["true"]))
    wait_until_read(rig)
    assert prefetched_runs(rig) == []
    gate.release()
    assert rig.wait_for_exit(4).code == 0
    assert list_reports(rig) == [
        ("StartConfirmation", 1),
        ("ExitReport", 1),
        ("PrefetchStart", 2),
        ("StartConfirmation", 2),
        ("ExitReport", 2),
        ("PrefetchStart", 3),
        ("StartConfirmation", 3),
        ("ExitReport", 3),
        ("PrefetchStart", 4),
        ("StartConfirmation", 4),
        ("ExitReport", 4),
    ]


def test_start_is_reported_right_after_the_exit_that_made_room(rig: Rig, make_fifo: MakeFifo) -> None:
    """In one write: the scheduler commits the exit and the start that follows it together."""
    gate = make_fifo("gate")
    wire = Wire(rig.home)
    wire.hello(generation=5)
    wire.send(type="environment", environment_id=1, variables={"PATH": os.environ["PATH"]})
    first, second = (
        json.loads(_encode_order(order)) for order in (make_gated_order(rig, 1, gate), rig.make_order(2, ["true"]))
    )
    wire.send_together(
        {"type": "start", **first},
        {"type": "prefetch", "series": 9, "max_running": 1, "starts": [second], "known_runs": []},
    )
    gate.release()
    while (received := wire.receive()) is not None and received["type"] != "exited":
        pass
    assert wire._buffer.startswith(b'{"type":"prefetch_started","run":2,"at":')
    wire.close()


def _encode_order(order: StartOrder) -> str:
    names = ("run", "argv", "cwd", "environment_id", "overlay", "directory", "kill_after")
    return json.dumps({name: getattr(order, name) for name in names})


def test_order_with_free_capacity_starts_at_once(rig: Rig) -> None:
    rig.start(1, ["true"])
    rig.wait_for_exit(1)
    prefetch(rig, rig.make_order(2, ["true"]))
    assert rig.wait_for_exit(2).code == 0
    prefetch(rig, rig.make_order(3, ["true"]))
    assert rig.wait_for_exit(3).code == 0
    assert prefetched_runs(rig) == [2, 3]


def test_later_orders_of_a_series_are_appended(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    for run in range(2, 7):
        prefetch(rig, rig.make_order(run, ["true"]))
    gate.release()
    rig.wait_for_exit(6)
    assert prefetched_runs(rig) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("max_running", [2, 3])
def test_at_most_max_running_runs_are_live(rig: Rig, make_fifo: MakeFifo, max_running: int) -> None:
    gates = {run: make_fifo(f"gate-{run}") for run in range(1, 7)}
    rig.send(make_gated_order(rig, 1, gates[1]))
    prefetch(rig, *(make_gated_order(rig, run, gates[run]) for run in range(2, 7)), max_running=max_running)
    wait_until_read(rig)
    assert prefetched_runs(rig) == list(range(2, max_running + 1)), "as many as there is capacity for"
    for done in range(1, 7 - max_running):
        gates[done].release()
        rig.wait_for_exit(done)
        wait_until_read(rig)
        assert prefetched_runs(rig) == list(range(2, max_running + done + 1)), "one for each ended run"


def test_last_max_running_applies(rig: Rig, make_fifo: MakeFifo) -> None:
    gates = {run: make_fifo(f"gate-{run}") for run in range(1, 5)}
    prefetch(rig, *(make_gated_order(rig, run, gates[run]) for run in range(1, 5)), max_running=1)
    wait_until_read(rig)
    assert prefetched_runs(rig) == [1]
    prefetch(rig, max_running=3)
    wait_until_read(rig)
    assert prefetched_runs(rig) == [1, 2, 3]
    prefetch(rig, max_running=1)
    wait_until_read(rig)
    gates[1].release()
    rig.wait_for_exit(1)
    wait_until_read(rig)
    assert prefetched_runs(rig) == [1, 2, 3], "two runs are still live"


def test_prefetched_run_gets_its_environment_and_non_utf8_arguments(rig: Rig) -> None:
    prefetch(rig, rig.make_order(1, ["sh", "-c", 'printf %s "$GREETING $ROTA_JOB $1"', "sh", "\udcff"]))
    assert rig.wait_for_exit(1).code == 0
    assert (rig.directory(1) / "stdout.log").read_bytes() == b"hello job-1 \xff"


def test_expected_orders_do_not_end_a_series(rig: Rig, make_fifo: MakeFifo) -> None:
    """A direct start while no prefetched run waits, and orders that change nothing."""
    gate = make_fifo("gate")
    prefetch(rig, rig.make_order(1, ["true"]))
    rig.wait_for_exit(1)
    rig.acknowledge(1)
    rig.send(EnvironmentUpload(environment_id=2, variables={"PATH": os.environ["PATH"]}))
    rig.send(make_gated_order(rig, 2, gate))
    prefetch(rig, rig.make_order(3, ["true"], environment_id=2))
    gate.release()
    assert rig.wait_for_exit(3).code == 0
    assert ("WithdrawConfirmation", 1) not in list_reports(rig)


# --- the end of a series ---


def _assert_series_is_over(rig: Rig, series: int = 1) -> None:
    """Assert that the series has ended for good, and that its number cannot be reused."""
    before = prefetched_runs(rig)
    prefetch(rig, rig.make_order(90, ["true"]), series=series, max_running=50)
    wait_until_read(rig)
    assert prefetched_runs(rig) == before
    assert [name for name, number in list_reports(rig) if name == "WithdrawConfirmation"] == ["WithdrawConfirmation"], (
        "the end is reported once"
    )
    prefetch(rig, rig.make_order(91, ["true"]), series=series + 1, max_running=50)
    assert rig.wait_for_exit(91).code == 0, "the next series starts over"


@pytest.mark.parametrize(
    ("script", "options", "end"),
    [
        ("read x < {gate}; exit 3", {}, "ExitReport"),
        ("read x < {gate}; kill -9 $$", {}, "ExitReport"),
        ("exec sleep 1000", {"timeout": 0.3}, "ExitReport"),
        ("trap 'exit 0' TERM; sleep 1000 & wait", {"timeout": 0.3}, "ExitReport"),
        ("exec sleep 1000", {"idle_timeout": 0.3}, "ExitReport"),
        ("true", {"skip_if": "read x < {gate}; exit 0"}, "ExitReport"),
        ("true", {"skip_if": "read x < {gate}; exit 1", "cwd": "/nowhere/at/all"}, "StartFailure"),
    ],
    ids=["failed", "killed", "timeout", "timeout with exit code 0", "idle", "skipped", "failed to start"],
)
def test_run_without_success_ends_the_series(
    rig: Rig, make_fifo: MakeFifo, script: str, options: dict[str, Any], end: str
) -> None:
    gate = make_fifo("gate")
    if "skip_if" in options:
        options = {**options, "skip_if": options["skip_if"].format(gate=gate.path)}
    first = rig.make_order(1, ["sh", "-c", script.format(gate=gate.path)], **options)
    following = [rig.make_order(2, ["true"]), rig.make_order(3, ["true"])]
    # Together, so that no limit can expire before.
    rig.send(first, PrefetchOrder(series=1, max_running=1, starts=following))
    gate.release()
    wait_for_withdrawal(rig)
    assert list_reports(rig)[-2:] == [(end, 1), ("WithdrawConfirmation", 1)]
    assert prefetched_runs(rig) == []
    _assert_series_is_over(rig)


def test_failed_prefetched_run_ends_the_series(rig: Rig) -> None:
    prefetch(rig, rig.make_order(1, ["true"]), rig.make_order(2, ["false"]), rig.make_order(3, ["true"]))
    wait_for_withdrawal(rig)
    assert list_reports(rig)[-4:] == [
        ("PrefetchStart", 2),
        ("StartConfirmation", 2),
        ("ExitReport", 2),
        ("WithdrawConfirmation", 1),
    ]
    assert not rig.directory(3).exists()
    _assert_series_is_over(rig)


def test_start_failure_ends_the_series(rig: Rig) -> None:
    prefetch(rig, rig.make_order(1, ["no-such-program-here"]), rig.make_order(2, ["true"]))
    wait_for_withdrawal(rig)
    assert list_reports(rig) == [("PrefetchStart", 1), ("StartFailure", 1), ("WithdrawConfirmation", 1)]
    _assert_series_is_over(rig)


def test_missing_environment_ends_the_series(rig: Rig) -> None:
    prefetch(rig, rig.make_order(1, ["true"], environment_id=77), rig.make_order(2, ["true"]))
    assert rig.wait_for_failure(1) == "environment 77 was not sent on this connection"
    wait_for_withdrawal(rig)
    assert prefetched_runs(rig) == [1]
    _assert_series_is_over(rig)


def test_duplicate_run_ends_the_series(rig: Rig) -> None:
    rig.start(1, ["true"])
    rig.wait_for_exit(1)
    prefetch(rig, rig.make_order(1, ["true"]), rig.make_order(2, ["true"]))
    wait_for_withdrawal(rig)
    assert list_reports(rig)[-3:] == [("PrefetchStart", 1), ("StartRefusal", 1), ("WithdrawConfirmation", 1)]
    assert prefetched_runs(rig) == [1]
    _assert_series_is_over(rig)


@pytest.mark.parametrize(
    "order",
    [
        StopOrder(run=RunId(1)),
        StopOrder(run=RunId(77)),
        SignalOrder(run=RunId(1), number=signal.SIGCONT),
        SignalOrder(run=RunId(77), number=signal.SIGCONT),
        AcknowledgeOrder(run=RunId(1)),
    ],
    ids=["stop", "stop of unknown run", "signal", "signal to unknown run", "refused acknowledgement"],
)
def test_unexpected_order_ends_the_series(rig: Rig, make_fifo: MakeFifo, order: ExecutorOrder) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    prefetch(rig, rig.make_order(2, ["true"]))
    rig.send(order)
    wait_for_withdrawal(rig)
    gate.release()
    rig.wait_for_end(1)
    _assert_series_is_over(rig)
    assert 2 not in prefetched_runs(rig)


def test_no_run_starts_after_a_stop_is_read(rig: Rig, make_fifo: MakeFifo) -> None:
    """Whichever event the supervisor sees first, no run starts once the stop is read."""
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    prefetch(rig, rig.make_order(2, ["sleep", "1000"]))
    wait_until_read(rig)
    rig.suspend_supervisor()
    rig.stop(77)
    gate.release()
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    wait_for_withdrawal(rig)
    rig.wait_for_exit(1)
    wait_until_read(rig)
    assert prefetched_runs(rig) == []


def test_no_run_starts_while_messages_are_unread() -> None:
    """The unread message may withdraw the series, even though the exit of the child was seen first."""
    started: list[int] = []
    live: set[int] = {1}

    def start(order: dict[str, Any], _environment: dict[str, str] | None) -> bool:
        started.append(order["run"])
        return True

    queue = PrefetchQueue({}, live, start, lambda _line, _within=0.0: None)
    order = {
        "run": 2,
        "argv": ["true"],
        "cwd": "/",
        "directory": "/x",
        "kill_after": 1.0,
        "environment_id": 1,
        "overlay": {},
    }
    queue.enqueue({"series": 1, "max_running": 1, "known_runs": [], "starts": [order]}, {1: {}})
    queue.has_unread_messages = lambda: True
    live.clear()
    queue.report_end(b"", has_succeeded=True)
    assert started == []
    queue.has_unread_messages = lambda: False
    queue.start_next()
    assert started == [2]


def test_no_run_starts_if_the_withdraw_arrives_together(rig: Rig) -> None:
    """A slow supervisor reads both at once."""
    wire = Wire(rig.home)
    wire.hello(generation=5)
    wire.send(type="environment", environment_id=1, variables={"PATH": os.environ["PATH"]})
    order = json.loads(_encode_order(rig.make_order(1, ["true"])))
    wire.send_together(
        {"type": "prefetch", "series": 9, "max_running": 1, "starts": [order], "known_runs": []},
        {"type": "withdraw", "series": 9},
    )
    received = wire.receive()
    wire.close()
    assert received == {"type": "withdrawn", "series": 9}


def test_no_run_starts_while_a_partial_line_is_buffered(rig: Rig) -> None:
    wire = Wire(rig.home)
    wire.hello(generation=5)
    wire.send(type="environment", environment_id=1, variables={"PATH": os.environ["PATH"]})
    order = json.loads(_encode_order(rig.make_order(1, ["true"])))
    prefetch_line = json.dumps(
        {"type": "prefetch", "series": 9, "max_running": 1, "starts": [order], "known_runs": []}
    ).encode()
    wire.sock.sendall(prefetch_line + b'\n{"type":"with')
    other = Wire(rig.home)  # its answer shows that the first connection has been read
    other.send(type="hello", protocol=PROTOCOL, generation=1, version="test")
    assert other.receive() is not None
    other.close()
    wire.sock.sendall(b'draw","series":9}\n')
    received = wire.receive()
    wire.close()
    assert received == {"type": "withdrawn", "series": 9}


def test_direct_start_ends_the_series(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    prefetch(rig, rig.make_order(2, ["true"]))
    rig.start(3, ["true"])
    assert rig.wait_for_exit(3).code == 0
    assert list_reports(rig).index(("WithdrawConfirmation", 1)) < list_reports(rig).index(("StartConfirmation", 3))
    gate.release()
    rig.wait_for_exit(1)
    _assert_series_is_over(rig)
    assert 2 not in prefetched_runs(rig)


def test_refused_start_ends_the_series(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    prefetch(rig, make_gated_order(rig, 1, gate))
    wait_until_read(rig)
    rig.start(1, ["true"])
    wait_for_withdrawal(rig)
    assert list_reports(rig).index(("StartRefusal", 1)) < list_reports(rig).index(("WithdrawConfirmation", 1))
    gate.release()
    assert rig.wait_for_exit(1).code == 0
    _assert_series_is_over(rig)


def test_invalid_start_ends_the_series(rig: Rig) -> None:
    prefetch(rig)
    rig.start(1, ["true"], cwd="relative")
    wait_for_withdrawal(rig)
    _assert_series_is_over(rig)


def test_unwritable_journal_at_an_exit_ends_the_series(
    rig: Rig, make_fifo: MakeFifo, fill_disk: Callable[[bool], None]
) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    prefetch(rig, rig.make_order(2, ["true"]))
    wait_until_read(rig)
    fill_disk(True)
    gate.release()
    wait_for_withdrawal(rig)
    assert rig.wait_for(ExecutorFailure).error is not None
    fill_disk(False)
    assert rig.wait_for_exit(1).code == 0
    _assert_series_is_over(rig)
    assert 2 not in prefetched_runs(rig)


def test_unwritable_journal_at_a_start_ends_the_series(rig: Rig, fill_disk: Callable[[bool], None]) -> None:
    fill_disk(True)
    prefetch(rig, rig.make_order(1, ["true"]), rig.make_order(2, ["true"]))
    wait_for_withdrawal(rig)
    assert list_reports(rig) == [("PrefetchStart", 1), ("StartFailure", 1), ("WithdrawConfirmation", 1)]
    fill_disk(False)
    _assert_series_is_over(rig)


def test_no_withdraw_confirmation_without_a_series(rig: Rig) -> None:
    rig.start(1, ["false"])
    rig.wait_for_exit(1)
    rig.start(2, ["no-such-program-here"])
    rig.wait_for_failure(2)
    rig.stop(77)
    wait_until_read(rig)
    assert [name for name, _ in list_reports(rig) if name == "WithdrawConfirmation"] == []


def test_newer_series_replaces_an_older_one(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    prefetch(rig, rig.make_order(2, ["true"]), series=7)
    prefetch(rig, rig.make_order(3, ["true"]), series=8)
    prefetch(rig, rig.make_order(4, ["true"]), series=7)
    gate.release()
    rig.wait_for_exit(3)
    wait_until_read(rig)
    assert prefetched_runs(rig) == [3]


# --- withdraw ---


def test_withdrawn_run_does_not_start(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    prefetch(rig, rig.make_order(2, ["true"]))
    rig.send(WithdrawOrder(series=1))
    wait_for_withdrawal(rig)
    gate.release()
    assert rig.wait_for_exit(1).code == 0
    _assert_series_is_over(rig)
    assert 2 not in prefetched_runs(rig)


def test_withdraw_is_always_confirmed(rig: Rig) -> None:
    rig.send(WithdrawOrder(series=5), WithdrawOrder(series=5), WithdrawOrder(series=4))
    for series in (5, 5, 4):
        wait_for_withdrawal(rig, series)
    prefetch(rig, rig.make_order(1, ["true"]), series=5)
    wait_until_read(rig)
    assert prefetched_runs(rig) == [], "later orders of a withdrawn series are ignored"


def test_withdraw_of_another_series_ends_nothing(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    prefetch(rig, make_gated_order(rig, 1, gate), rig.make_order(2, ["true"]), series=5)
    rig.send(WithdrawOrder(series=4))
    wait_for_withdrawal(rig, 4)
    gate.release()
    assert rig.wait_for_exit(2).code == 0


def test_earlier_starts_are_reported_before_the_confirmation(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    prefetch(rig, rig.make_order(1, ["true"]), make_gated_order(rig, 2, gate), rig.make_order(3, ["true"]))
    rig.wait_for_start(2)
    rig.executor.withdraw(1, TIMEOUT)
    wait_readable(rig.executor.fileno(), time.monotonic() + TIMEOUT, "the confirmation")
    assert rig.executor.receive() == [WithdrawConfirmation(series=1)]
    assert prefetched_runs(rig) == [1, 2]
    gate.release()
    assert rig.wait_for_exit(2).code == 0
    wait_until_read(rig)
    assert prefetched_runs(rig) == [1, 2]


def test_withdraw_keeps_the_order_of_messages(rig: Rig, make_fifo: MakeFifo) -> None:
    gate, channel = make_fifo("gate"), make_fifo("channel")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    second = rig.make_order(2, ["sh", "-c", f"echo started > {channel.path}; exec sleep 1000"])
    prefetch(rig, second, rig.make_order(3, ["true"]))
    gate.release()
    assert channel.read_line() == "started"
    rig.executor.withdraw(1, TIMEOUT)
    wait_readable(rig.executor.fileno(), time.monotonic() + TIMEOUT, "the messages")
    messages = [message for message in rig.executor.receive() if not isinstance(message, StartConfirmation)]
    assert [type(message) for message in messages] == [ExitReport, PrefetchStart, WithdrawConfirmation]
    assert not select.select([rig.executor], [], [], 0)[0]


def test_withdraw_sends_buffered_orders_first(rig: Rig) -> None:
    rig.suspend_supervisor()
    rig.send(EnvironmentUpload(environment_id=2, variables={"X": "y" * 5_000_000}))
    prefetch(rig, rig.make_order(1, ["true"], environment_id=1))
    assert rig.executor._outgoing
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    rig.executor.withdraw(1, TIMEOUT)
    assert not rig.executor._outgoing
    assert WithdrawConfirmation(series=1) in rig.executor.receive()


def test_withdraw_returns_at_its_timeout(rig: Rig) -> None:
    prefetch(rig)
    wait_until_read(rig)
    rig.suspend_supervisor()
    rig.executor.withdraw(1, 0.1)
    assert not select.select([rig.executor], [], [], 0)[0]
    assert rig.executor.receive() == []
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    wait_for_withdrawal(rig)


def test_withdraw_returns_when_the_supervisor_dies(rig: Rig, make_fifo: MakeFifo) -> None:
    gate, channel = make_fifo("gate"), make_fifo("channel")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    second = rig.make_order(2, ["sh", "-c", f"echo started > {channel.path}; exec sleep 1000"])
    prefetch(rig, second, rig.make_order(3, ["true"]))
    gate.release()
    wait_readable(rig.executor.fileno(), time.monotonic() + TIMEOUT, "the exit of the first run")
    assert channel.read_line() == "started"
    rig.kill_supervisor()
    started = time.monotonic()
    rig.executor.withdraw(1, 1000.0)
    assert not rig.executor.supports_prefetch
    rig.executor.withdraw(1, 1000.0)
    assert time.monotonic() - started < TIMEOUT
    inventory = rig.wait_for(RunInventory)
    assert [report.run for report in inventory.runs] == [1, 2]
    kinds = [type(message) for message in rig.received if not isinstance(message, StartConfirmation)]
    assert kinds[: kinds.index(ConnectionLoss) + 2] == [
        RunInventory,
        ExitReport,
        PrefetchStart,
        ConnectionLoss,
        RunInventory,
    ], "no message is lost"
    assert rig.executor.supports_prefetch


# --- takeover ---


def test_queue_is_dropped_with_the_connection(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    prefetch(rig, rig.make_order(2, ["true"]), series=7)
    wait_until_read(rig)
    rig.reconnect()
    assert [report.run for report in rig.inventory.runs] == [1]
    gate.release()
    rig.wait_for_exit(1)
    wait_until_read(rig)
    assert list_reports(rig) == [("ExitReport", 1)], "the next scheduler hears nothing of the series"
    rig.reconnect()
    prefetch(rig, rig.make_order(3, ["true"]), series=1)
    assert rig.wait_for_exit(3).code == 0, "the next scheduler counts from the beginning"


def test_queue_is_dropped_when_another_scheduler_takes_over(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.send(make_gated_order(rig, 1, gate))
    rig.wait_for_start(1)
    prefetch(rig, rig.make_order(2, ["true"]))
    wait_until_read(rig)
    wire = Wire(rig.home)
    assert [report["run"] for report in wire.hello(generation=2)["runs"]] == [1]
    gate.release()
    first = wire.receive()
    wire.send(type="withdraw", series=1)
    second = wire.receive()
    wire.close()
    assert first is not None
    assert (first["type"], first["run"]) == ("exited", 1)
    assert second == {"type": "withdrawn", "series": 1}


def test_successor_knows_only_started_runs(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    prefetch(rig, rig.make_order(1, ["true"]), make_gated_order(rig, 2, gate), rig.make_order(3, ["true"]))
    rig.wait_for_exit(1)
    rig.wait_for_start(2)
    inventory = replace_supervisor(rig)
    assert [report.run for report in inventory.runs] == [1, 2]
    gate.release()
    assert rig.wait_for_exit(2).code is None
    wait_until_read(rig)
    assert prefetched_runs(rig) == [1, 2]
    assert not rig.directory(3).exists()


# --- without a connection ---


def test_no_prefetch_without_a_connection(rig: Rig) -> None:
    messages: list[ExecutorMessage] = []
    rig.kill_supervisor()
    while not any(isinstance(message, ConnectionLoss) for message in messages):
        wait_readable(rig.executor.fileno(), time.monotonic() + TIMEOUT, "the connection loss")
        messages += rig.executor.receive()
    assert not rig.executor.supports_prefetch


@pytest.mark.parametrize(("code", "is_started"), [(0, True), (1, False)], ids=["success", "failure"])
def test_order_that_ignores_an_ended_run_starts_only_after_success(rig: Rig, code: int, is_started: bool) -> None:
    """The run has already ended when the order, decided without that knowledge, arrives."""
    rig.start(1, ["sh", "-c", f"exit {code}"])
    rig.wait_for_exit(1)
    rig.send(PrefetchOrder(series=1, max_running=1, starts=[rig.make_order(2, ["true"])], known_runs=[RunId(1)]))
    wait_until_read(rig)
    assert prefetched_runs(rig) == ([2] if is_started else [])
    assert (WithdrawConfirmation(series=1) in rig.received) is not is_started
