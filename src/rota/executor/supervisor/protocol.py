"""The language between scheduler and supervisor: one JSON object a line, both ways, over a stream socket.

    scheduler                                         supervisor
      hello {protocol, oldest, generation, version} ─►
                  ◄─ hello {protocol, pid, boot, version, accounts: [{run, pid, start_time}]}  or error, and closed
                  ◄─ exited … failed_to_start …       every end that is not acknowledged yet
      environment {surroundings, variables} ─►
      start {run, argv, …} ─►
                  ◄─ started {run, pid, start_time} | failed_to_start {run, error} | error {error, run, order}
      stop {run, kill_after} ─►
      signal {run, number} ─►                        to its main process and that one's group; nothing is answered
                  ◄─ exited {run, at, code, signal, ended_by, skipped, tail, watched, trouble}
      acknowledge {run} ─►
                  ◄─ trouble {trouble}                what keeps ends from being told; null when it is over
      ahead {series, width, starts: [{run, argv, …}], runs} ─►
                  ◄─ taken {run, at}                  the next of them is started, now that fewer than `width` live
      withdraw {series} ─►
                  ◄─ withdrawn {series}               no more of it: as asked, or since something was no success

Either side may be the newer one: after an upgrade the new scheduler meets the old supervisor, which still
has children. So a hello names the newest and the oldest version its sender speaks, and the highest that
both know is used. Each side knows its own version and the one before.

    5   `ahead`, `withdraw`, `taken`, `withdrawn`
    4   `signal`
    3   `workspace` in a start, `trouble` in an exited
    2   `order` in an error (which of the orders it answers), `trouble`
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # the typing module would cost half a megabyte
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = 5
AHEAD = 5
"""The first that starts by itself what it was given ahead; an older supervisor would only refuse the order."""
ACCEPTED = range(max(1, PROTOCOL - 1), PROTOCOL + 1)

SOCKET = "supervisor.sock"
LOCK = "supervisor.lock"
LOG = "supervisor.log"
JOURNAL = "supervisor.journal"
READY_FD = "ROTA_SUPERVISOR_READY"
"""Names a descriptor that the supervisor closes once its socket listens: its starter waits for that, not by polling."""

HOME_TAG = "ROTA_HOME"
RUN_TAG = "ROTA_RUN"
"""In the environment of every child: what its tree is found by."""

KNOWN = "this run is known already; it is not started a second time"

_encode = json.JSONEncoder(separators=(",", ":")).encode


def line(**message: Any) -> bytes:
    return _encode(message).encode() + b"\n"


def plain(kind: str, **numbers: float | None) -> bytes:
    """The same line where there is nothing in it to be quoted, as in most, for a fifth of the time."""
    fields = "".join([f',"{name}":{"null" if number is None else number}' for name, number in numbers.items()])
    return f'{{"type":"{kind}"{fields}}}\n'.encode()


def refusal(problem: str, message: dict[str, Any]) -> bytes:
    """Names the order that it answers as far as that can be read by anybody."""
    run, order = message.get("run"), message.get("type")
    return line(
        type="error",
        error=problem,
        run=run if type(run) is int else None,
        order=order.encode(errors="replace").decode() if isinstance(order, str) else None,
        protocol=PROTOCOL,
    )


def tag(run: int) -> str:
    return f"run-{run}"


def parse(text: bytes) -> dict[str, Any]:
    """One message. Raises ValueError for anything that is not one."""
    message = json.loads(text)
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ValueError("not a message: an object with a type is expected")
    return message


def agree(newest: int, oldest: int) -> int | None:
    """The version to speak with a peer that knows `oldest` to `newest`; none if there is no common one."""
    highest = min(newest, PROTOCOL)
    return highest if highest in ACCEPTED and highest >= oldest else None


def clean(text: str) -> str:
    """Text that any JSON reader takes: names of files may hold bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Lines:
    """Whole lines out of a stream that is cut anywhere."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_within(self) -> bool:
        """The beginning of a line is there, and not its end."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        if b"\n" not in data:
            self._rest += data
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole
