"""Protocol between scheduler and supervisor: one JSON object per line, both ways, over a stream socket.

    scheduler                                         supervisor
      hello {protocol, min_protocol, generation, version} ─►
                  ◄─ hello {protocol, pid, boot, version, has_cgroups, runs: [{run, pid, start_time}]}
                     or error, followed by a close
                  ◄─ exited … failed_to_start …       every exit that is not acknowledged yet
      environment {environment_id, variables} ─►
      start {run, argv, …} ─►
                  ◄─ started {run, pid, start_time} | failed_to_start {run, error} | error {error, run, order}
      ping ─►
                  ◄─ pong {}                          at once, whatever else is in progress
      stop {run, kill_after} ─►
      signal {run, number} ─►                        to the main process and its group; no answer
                  ◄─ exited {run, at, code, signal, ended_by, skip_reason, tail, is_observed, is_verified,
                             workspace_error}
      acknowledge {run} ─►
                  ◄─ failure {error}                  why exits cannot be reported; null when it is over
      prefetch {series, max_running, starts: [{run, argv, …}], known_runs} ─►
                  ◄─ prefetch_started {run, at}       the next run starts: fewer than `max_running` are live
      withdraw {series} ─►
                  ◄─ withdrawn {series}               no more of it: withdrawn, or a run did not succeed

Either side may be newer: after an upgrade the new scheduler meets the old supervisor, which still has children. So a
hello names the newest and the oldest version that its sender accepts, and both sides use the highest common one.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # the typing module would cost half a megabyte
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = 6
ACCEPTED_PROTOCOLS = range(PROTOCOL, PROTOCOL + 1)

SOCKET = "supervisor.sock"
LOCK = "supervisor.lock"
LOG = "supervisor.log"
JOURNAL = "supervisor.journal"
NO_CGROUPS = "--no-cgroups"
"""Argument that starts a supervisor without cgroups for runs."""
READY_FD = "ROTA_SUPERVISOR_READY"
"""Variable with the number of a descriptor that the supervisor closes once its socket listens: the launcher waits for
that instead of polling."""

HOME_VARIABLE = "ROTA_HOME"
RUN_VARIABLE = "ROTA_RUN"
"""Set in the environment of every child: identifies the processes of its tree."""

DUPLICATE_RUN = "this run is already known and was not started again"

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode_message(**message: Any) -> bytes:
    return _encode(message).encode() + b"\n"


def encode_numeric_message(kind: str, **numbers: float | None) -> bytes:
    """Encode a message whose values need no quoting. Most messages are of this kind, and it takes a fifth of the
    time."""
    fields = "".join([f',"{name}":{"null" if number is None else number}' for name, number in numbers.items()])
    return f'{{"type":"{kind}"{fields}}}\n'.encode()


def encode_refusal(error: str, message: dict[str, Any]) -> bytes:
    """Encode a refusal that names the refused order, as far as its fields are valid."""
    run, order = message.get("run"), message.get("type")
    return encode_message(
        type="error",
        error=error,
        run=run if type(run) is int else None,
        order=order.encode(errors="replace").decode() if isinstance(order, str) else None,
        protocol=PROTOCOL,
    )


def run_tag(run: int) -> str:
    return f"run-{run}"


def parse_message(text: bytes) -> dict[str, Any]:
    """Decode one message. Raises ValueError for anything else."""
    message = json.loads(text)
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ValueError("a message must be an object with a type")
    return message


def negotiate_version(max_version: int, min_version: int) -> int | None:
    """Return the version to use with a peer that accepts `min_version` to `max_version`; None without a common one."""
    highest = min(max_version, PROTOCOL)
    return highest if highest in ACCEPTED_PROTOCOLS and highest >= min_version else None


def replace_invalid_utf8(text: str) -> str:
    """Return text that any JSON reader accepts: file names may contain bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class LineReader:
    """Splitter of a byte stream into complete lines."""

    __slots__ = ("_partial_line",)

    def __init__(self) -> None:
        self._partial_line = b""

    @property
    def has_partial_line(self) -> bool:
        """Return whether a line has begun and is not complete."""
        return bool(self._partial_line)

    def feed(self, data: bytes) -> list[bytes]:
        if b"\n" not in data:
            self._partial_line += data
            return []
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        return lines
