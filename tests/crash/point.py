"""The named points: where a process can be killed, and what must become of the run that it was at.

A point stands before or after a call of one function. So nothing in the product knows of it: `strike` puts itself
around the function when the process starts, and a function that is gone or renamed fails there and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from rota.executor.port import Acknowledge, Ahead, Exited, Order, Start, Stop

Load = Literal["mixed", "brief"]
"""What the clients want meanwhile (`mixed.py`, `brief.py`)."""

Becomes = Literal["any", "known", "unknown", "again"]
"""What becomes of the run that the process was at when it died.

known     its exit code is the real one
unknown   it has no exit code: only the supervisor could have known it
again     it was never started; its job is, once, as another run
any       that depends on what the other process had heard
"""
Find = Callable[[Sequence[Any], Any], int | None]
"""The number of the run that a call is about, by its arguments and its result; 0 for no run, none for a call that does
not count."""


class Point(NamedTuple):
    name: str
    place: str
    when: Literal["before", "after"]
    find: Find
    becomes: Becomes
    text: str
    """What is true there."""
    is_start: bool = False
    """On the way of a process that was just started: it is killed once before."""
    load: Load = "mixed"
    """Under which it is come to."""
    is_claimed: bool = True
    """Its run is in the store. If not, and it comes to nothing, the next run that is claimed may have its number."""

    @property
    def process(self) -> str:
        return self.name.partition(".")[0]


def _always(_arguments: Sequence[Any], _result: Any) -> int:
    return 0


def _has_events(arguments: Sequence[Any], result: Any) -> int | None:
    return 0 if arguments[0]._events or result else None


def _ordered(kind: type[Start | Stop | Acknowledge]) -> Find:
    def find(arguments: Sequence[Any], _result: Any) -> int | None:
        orders: Sequence[Order] = arguments[1]
        return next((order.run for order in orders if isinstance(order, kind)), None)

    return find


def _given(arguments: Sequence[Any], _result: Any) -> int | None:
    orders: Sequence[Order] = arguments[1]
    return next((order.starts[0].run for order in orders if isinstance(order, Ahead)), None)


def _heard_end(_arguments: Sequence[Any], result: Any) -> int | None:
    return next((message.run for message in result if isinstance(message, Exited)), None)


def _number(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[1])


def _of_order(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[1]["run"])


def _of_run(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[1].number)


def _of_child(arguments: Sequence[Any], _result: Any) -> int:
    return int(arguments[2]["ROTA_RUN"].removeprefix("run-"))


def _of_line(kind: bytes) -> Find:
    head = b'{"type":"' + kind + b'","run":'

    def find(arguments: Sequence[Any], _result: Any) -> int | None:
        line: bytes = arguments[1]
        return int(line.removeprefix(head).split(b",")[0].rstrip(b"}\n")) if line.startswith(head) else None

    return find


def _sent(kind: bytes) -> Find:
    """After all that was to be sent has been."""
    found = _of_line(kind)

    def find(arguments: Sequence[Any], _result: Any) -> int | None:
        lines: list[bytes] = getattr(arguments[0], "_before", [])
        return next((run for line in lines if (run := found((None, line), None)) is not None), None)

    return find


_SESSION = "rota.store.session:Session"
_LOCAL = "rota.executor.local:LocalExecutor"
_ENGINE = "rota.engine.engine"
_KEEPER = "rota.executor.supervisor.keeper:Keeper"
_SERVER = "rota.executor.supervisor.server:Server"

POINTS = (
    Point("scheduler.asked", "rota.engine.loop:Loop.submit", "before", _always, "any",
          "a request is read and not carried out"),
    Point("scheduler.deciding", f"{_SESSION}.commit", "before", _has_events, "any",
          "a turn is written and not committed"),
    Point("scheduler.committed", f"{_SESSION}.commit", "after", _has_events, "any",
          "a turn is committed; nobody knows"),
    Point("scheduler.ordering", f"{_LOCAL}.send", "before", _ordered(Start), "again",
          "a claim is committed; the order is not sent"),
    Point("scheduler.ordered", f"{_LOCAL}.send", "after", _ordered(Start), "any",
          "the order is sent; nobody was answered"),
    Point("scheduler.replied", "rota.engine.meter:Meter.book", "before", _always, "any",
          "orders and answers have left the engine"),
    Point("scheduler.heard", f"{_LOCAL}.receive", "after", _heard_end, "known",
          "an end is read from the socket and not booked"),
    Point("scheduler.acknowledging", f"{_LOCAL}.send", "before", _ordered(Acknowledge), "known",
          "an end is committed and not acknowledged"),
    Point("scheduler.acknowledged", f"{_LOCAL}.send", "after", _ordered(Acknowledge), "known",
          "an end is acknowledged"),
    Point("scheduler.stopping", f"{_LOCAL}.send", "before", _ordered(Stop), "any",
          "a cancel is committed; the child is not told"),
    Point("scheduler.stopped", f"{_LOCAL}.send", "after", _ordered(Stop), "any",
          "the order to end the child is sent"),
    Point("scheduler.mirroring", "rota.engine.mirror:_keep_as_outcome", "before", _always, "any",
          "a job has ended; its `outcome.json` is not written"),
    Point("scheduler.giving", f"{_LOCAL}.send", "before", _given, "again",
          "what comes next is on disk; the supervisor is not told", load="brief", is_claimed=False),
    Point("scheduler.given", f"{_LOCAL}.send", "after", _given, "any",
          "the supervisor is told what comes next; nothing is heard of it", load="brief"),
    Point("scheduler.opening", f"{_SESSION}.raise_epoch", "after", _always, "any",
          "at its start: the epoch is raised and not committed", is_start=True),
    Point("scheduler.meeting", f"{_LOCAL}._connect", "after", _always, "any",
          "at its start: the supervisor is met, its accounts are not looked at", is_start=True),
    Point("scheduler.recovering", "rota.engine.hearing:reconcile", "after", _always, "any",
          "at its start: all is recovered, and nothing of it committed", is_start=True),
    Point("scheduler.recovered", f"{_ENGINE}:Engine.turn", "after", _always, "any",
          "at its start: the first turn is over, nobody was served", is_start=True),
    Point("supervisor.asked", f"{_KEEPER}.start", "before", _of_order, "again",
          "an order is read; nothing is written"),
    Point("supervisor.following", f"{_SERVER}.tell", "after", _of_line(b"taken"), "again",
          "what comes next is taken; nothing is written or sent", load="brief", is_claimed=False),
    Point("supervisor.starting", "rota.executor.supervisor.journal:Journal.must_record", "after",
          _of_line(b"starting"), "unknown", "`starting` is written; there is no child"),
    Point("supervisor.spawning", "rota.executor.supervisor.spawn:_make_child", "before", _of_child, "unknown",
          "the child is about to be made"),
    Point("supervisor.spawned", "rota.executor.supervisor.spawn:_make_child", "after", _of_child, "unknown",
          "the child lives; its pid is nowhere written"),
    Point("supervisor.started", f"{_SERVER}.tell", "before", _of_line(b"started"), "unknown",
          "`started` is written and not told"),
    Point("supervisor.ended", f"{_KEEPER}._main_ended", "before", _of_run, "unknown",
          "an end is seen and not written"),
    Point("supervisor.written", f"{_KEEPER}._main_ended", "after", _of_run, "known",
          "`exited` is written; the child is not reaped"),
    Point("supervisor.reaped", "rota.executor.supervisor.ending:Ending.clear", "before", _of_run, "known",
          "the child is reaped; what it left is not ended"),
    Point("supervisor.telling", f"{_SERVER}.tell", "before", _of_line(b"exited"), "known",
          "nothing is left of the run; its end is not told"),
    Point("supervisor.told", f"{_SERVER}._send", "after", _sent(b"exited"), "known",
          "an end is told and not acknowledged"),
    Point("supervisor.acknowledging", f"{_KEEPER}.acknowledge", "before", _number, "known",
          "an acknowledgement is read"),
    Point("supervisor.acknowledged", f"{_KEEPER}.acknowledge", "after", _number, "known",
          "the end is forgotten, in memory alone"),
    Point("supervisor.ending", "rota.executor.supervisor.ending:Ending.terminate", "before", _of_run, "any",
          "`ending` is written; nothing is signalled"),
    Point("supervisor.terminated", "rota.executor.supervisor.ending:Ending.terminate", "after", _of_run, "any",
          "the child has its TERM"),
    Point("supervisor.taking", "rota.executor.supervisor.orphan:take_in", "before", _always, "any",
          "at its start: the journal is read; nothing is looked for", is_start=True),
    Point("supervisor.rewriting", "rota.executor.supervisor.journal:Journal.rewrite", "before", _always, "any",
          "at its start: all is settled; the journal is the old one", is_start=True),
    Point("supervisor.taken", "rota.executor.supervisor.orphan:take_in", "after", _always, "any",
          "at its start: the journal is rewritten; nobody was told", is_start=True),
    Point("supervisor.greeted", f"{_SERVER}._greet", "after", _always, "any",
          "at its start: a scheduler is met and has no answer", is_start=True),
)  # fmt: skip
BY_NAME = {point.name: point for point in POINTS}
