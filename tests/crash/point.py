"""The named points at which a process can be killed, and the required outcome of the run it was processing.

A point is before or after a call of one function. So the product does not know about it: `killer` wraps the function
when the process starts, and a function that was renamed fails there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from rota.executor.port import AcknowledgeOrder, ExecutorOrder, ExitReport, PrefetchOrder, StartOrder, StopOrder

Load = Literal["mixed", "short"]
"""The load during the kill (`mixed.py`, `short.py`)."""

Outcome = Literal["any", "known", "unknown", "again"]
"""Outcome of the run that the killed process was processing.

known     its exit code is the real one
unknown   it has no exit code: only the supervisor could have known it
again     it never started; its job is started once, as another run
any       it depends on what the other process had received
"""
FindRun = Callable[[Sequence[Any], Any], int | None]
"""Function that returns the number of the run of a call, from its arguments and result; 0 for no run, None for a call
that does not count."""


class Point(NamedTuple):
    name: str
    function: str
    when: Literal["before", "after"]
    find_run: FindRun
    outcome: Outcome
    state: str
    """The state at the point."""
    is_start: bool = False
    """Whether only a process that just started reaches it: it is killed once before."""
    load: Load = "mixed"
    """The load that reaches it."""
    is_claimed: bool = True
    """Whether its run is in the store. If not, the next claimed run may get its number."""
    has_sent_lines: bool = False
    """Whether `find_run` needs the lines that the call sent."""

    @property
    def process(self) -> str:
        return self.name.partition(".")[0]


def _no_run(_arguments: Sequence[Any], _result: Any) -> int:
    return 0


def _has_events(arguments: Sequence[Any], result: Any) -> int | None:
    return 0 if arguments[0].events.pending or result else None


def _run_of_order(kind: type[StartOrder | StopOrder | AcknowledgeOrder]) -> FindRun:
    def find(arguments: Sequence[Any], _result: Any) -> int | None:
        orders: Sequence[ExecutorOrder] = arguments[1]
        return next((order.run for order in orders if isinstance(order, kind)), None)

    return find


def _run_of_prefetch(arguments: Sequence[Any], _result: Any) -> int | None:
    orders: Sequence[ExecutorOrder] = arguments[1]
    return next((order.starts[0].run for order in orders if isinstance(order, PrefetchOrder)), None)


def _run_of_exit(_arguments: Sequence[Any], result: Any) -> int | None:
    return next((message.run for message in result if isinstance(message, ExitReport)), None)


def _run_number(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[1])


def _run_of_message(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[1]["run"])


def _supervised_run(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[1].number)


def _run_of_environment(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[2]["ROTA_RUN"].removeprefix("run-"))


def _run_of_line(kind: bytes) -> FindRun:
    head = b'{"type":"' + kind + b'","run":'

    def find(arguments: Sequence[Any], _result: Any) -> int | None:
        line: bytes = arguments[1]
        return int(line.removeprefix(head).split(b",")[0].rstrip(b"}\n")) if line.startswith(head) else None

    return find


def _run_of_sent_line(kind: bytes) -> FindRun:
    """Return the run of a line that was sent, once everything is sent."""
    find_in_line = _run_of_line(kind)

    def find(arguments: Sequence[Any], _result: Any) -> int | None:
        lines: list[bytes] = getattr(arguments[0], "lines", [])
        return next((run for line in lines if (run := find_in_line((None, line), None)) is not None), None)

    return find


_SESSION = "rota.db.session:Session"
_LOCAL = "rota.executor.local:LocalExecutor"
_CHILD_MANAGER = "rota.supervisor.child_manager:ChildManager"
_SERVER = "rota.supervisor.server:SupervisorServer"
_TERMINATOR = "rota.supervisor.tree:TreeTerminator"

POINTS = (
    Point(
        "scheduler.received",
        "rota.engine.loop:EngineLoop.submit",
        "before",
        _no_run,
        "any",
        "a request is read and not executed",
    ),
    Point(
        "scheduler.committing",
        f"{_SESSION}.commit",
        "before",
        _has_events,
        "any",
        "a turn is written and not committed",
    ),
    Point(
        "scheduler.committed", f"{_SESSION}.commit", "after", _has_events, "any", "a turn is committed; nothing is sent"
    ),
    Point(
        "scheduler.ordering",
        f"{_LOCAL}.send",
        "before",
        _run_of_order(StartOrder),
        "again",
        "a claim is committed; the order is not sent",
    ),
    Point(
        "scheduler.ordered",
        f"{_LOCAL}.send",
        "after",
        _run_of_order(StartOrder),
        "any",
        "the order is sent; no response is sent",
    ),
    Point(
        "scheduler.responded",
        "rota.engine.metrics:EngineMetrics.record",
        "before",
        _no_run,
        "any",
        "orders and responses have left the engine",
    ),
    Point(
        "scheduler.exit-received",
        f"{_LOCAL}.receive",
        "after",
        _run_of_exit,
        "known",
        "an exit is read from the socket and not recorded",
    ),
    Point(
        "scheduler.acknowledging",
        f"{_LOCAL}.send",
        "before",
        _run_of_order(AcknowledgeOrder),
        "known",
        "an exit is committed and not acknowledged",
    ),
    Point(
        "scheduler.acknowledged",
        f"{_LOCAL}.send",
        "after",
        _run_of_order(AcknowledgeOrder),
        "known",
        "an exit is acknowledged",
    ),
    Point(
        "scheduler.stopping",
        f"{_LOCAL}.send",
        "before",
        _run_of_order(StopOrder),
        "any",
        "a cancel is committed; the stop order is not sent",
    ),
    Point("scheduler.stopped", f"{_LOCAL}.send", "after", _run_of_order(StopOrder), "any", "the stop order is sent"),
    Point(
        "scheduler.mirroring",
        "rota.jobs.files:_link_outcome",
        "before",
        _no_run,
        "any",
        "a job has ended; its `outcome.json` is not written",
    ),
    Point(
        "scheduler.prefetching",
        f"{_LOCAL}.send",
        "before",
        _run_of_prefetch,
        "again",
        "a prefetch is on disk; the order is not sent",
        load="short",
        is_claimed=False,
    ),
    Point(
        "scheduler.prefetched",
        f"{_LOCAL}.send",
        "after",
        _run_of_prefetch,
        "any",
        "the prefetch order is sent; no start is reported",
        load="short",
    ),
    Point(
        "scheduler.opening",
        f"{_SESSION}.raise_epoch",
        "after",
        _no_run,
        "any",
        "at its start: the epoch is raised and not committed",
        is_start=True,
    ),
    Point(
        "scheduler.connecting",
        f"{_LOCAL}._connect",
        "after",
        _no_run,
        "any",
        "at its start: the supervisor is connected; its inventory is not processed",
        is_start=True,
    ),
    Point(
        "scheduler.recovering",
        "rota.engine.executor_inbox:reconcile",
        "after",
        _no_run,
        "any",
        "at its start: everything is recovered and nothing is committed",
        is_start=True,
    ),
    Point(
        "scheduler.recovered",
        "rota.engine.engine:Engine.turn",
        "after",
        _no_run,
        "any",
        "at its start: the first turn is over; no request is served",
        is_start=True,
    ),
    Point(
        "supervisor.ordered",
        f"{_CHILD_MANAGER}.start",
        "before",
        _run_of_message,
        "again",
        "an order is read; nothing is written",
    ),
    Point(
        "supervisor.prefetching",
        f"{_SERVER}.send_line",
        "after",
        _run_of_line(b"prefetch_started"),
        "again",
        "a prefetched run is about to start; nothing is written or sent",
        load="short",
        is_claimed=False,
    ),
    Point(
        "supervisor.starting",
        "rota.supervisor.journal:Journal.record_or_raise",
        "after",
        _run_of_line(b"starting"),
        "unknown",
        "`starting` is written; there is no child",
    ),
    Point(
        "supervisor.spawning",
        "rota.supervisor.spawn:_spawn_child",
        "before",
        _run_of_environment,
        "unknown",
        "the child is about to be created",
    ),
    Point(
        "supervisor.spawned",
        "rota.supervisor.spawn:_spawn_child",
        "after",
        _run_of_environment,
        "unknown",
        "the child is alive; its pid is not written",
    ),
    Point(
        "supervisor.started",
        f"{_SERVER}.send_line",
        "before",
        _run_of_line(b"started"),
        "unknown",
        "`started` is written and not reported",
    ),
    Point(
        "supervisor.exited",
        f"{_CHILD_MANAGER}._handle_exit",
        "before",
        _supervised_run,
        "unknown",
        "an exit is observed and not written",
    ),
    Point(
        "supervisor.written",
        f"{_CHILD_MANAGER}._handle_exit",
        "after",
        _supervised_run,
        "known",
        "`exited` is written; the child is not reaped",
    ),
    Point(
        "supervisor.reaped",
        f"{_TERMINATOR}.clear_tree",
        "before",
        _supervised_run,
        "known",
        "the child is reaped; the rest of its tree is not ended",
    ),
    Point(
        "supervisor.reporting",
        f"{_SERVER}.send_line",
        "before",
        _run_of_line(b"exited"),
        "known",
        "no process of the run is left; its exit is not reported",
    ),
    Point(
        "supervisor.reported",
        f"{_SERVER}._send",
        "after",
        _run_of_sent_line(b"exited"),
        "known",
        "an exit is reported and not acknowledged",
        has_sent_lines=True,
    ),
    Point(
        "supervisor.acknowledging",
        f"{_CHILD_MANAGER}.acknowledge",
        "before",
        _run_number,
        "known",
        "an acknowledgement is read",
    ),
    Point(
        "supervisor.acknowledged",
        f"{_CHILD_MANAGER}.acknowledge",
        "after",
        _run_number,
        "known",
        "the run is forgotten, in memory only",
    ),
    Point(
        "supervisor.ending",
        f"{_TERMINATOR}.terminate",
        "before",
        _supervised_run,
        "any",
        "`ending` is written; nothing is signaled",
    ),
    Point(
        "supervisor.terminated", f"{_TERMINATOR}.terminate", "after", _supervised_run, "any", "the child has got TERM"
    ),
    Point(
        "supervisor.taking-over",
        "rota.supervisor.takeover:adopt_runs",
        "before",
        _no_run,
        "any",
        "at its start: the journal is read; no process is searched",
        is_start=True,
    ),
    Point(
        "supervisor.rewriting",
        "rota.supervisor.journal:Journal.rewrite",
        "before",
        _no_run,
        "any",
        "at its start: all runs are settled; the journal is the old one",
        is_start=True,
    ),
    Point(
        "supervisor.taken-over",
        "rota.supervisor.takeover:adopt_runs",
        "after",
        _no_run,
        "any",
        "at its start: the journal is rewritten; nothing is reported",
        is_start=True,
    ),
    Point(
        "supervisor.connecting",
        f"{_SERVER}._handle_hello",
        "after",
        _no_run,
        "any",
        "at its start: a scheduler is connected and has no answer",
        is_start=True,
    ),
)
BY_NAME = {point.name: point for point in POINTS}
