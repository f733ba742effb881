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

The fields of messages and journal lines are validated before anything is done: a half-executed order is worse than
none, and an invalid journal line says nothing about its run.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Fields = dict[str, Any]

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
END_REASONS = (None, "stop", "timeout", "idle_timeout")
"""Reasons for which the supervisor ends a run."""
PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""Exceptions that reading untrusted input can raise."""

_MAX_INTEGER = (1 << 63) - 1
_MAX_PID = (1 << 31) - 1
_MAX_SECONDS = 1e11
"""Maximum seconds, about three thousand years: a larger value overflows the clocks."""

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


def run_tag(run: int) -> str:
    return f"run-{run}"


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


def read_integer(fields: Fields, name: str, max_value: int = _MAX_INTEGER) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= max_value:
        raise ValueError(f"{name} is {value!r:.100}; it must be an integer from 0 to {max_value}")
    return value


def read_integers(fields: Fields, name: str) -> list[int]:
    value: list[int] = fields[name]
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list")
    return [read_integer({name: number}, name) for number in value]


def read_pid(fields: Fields) -> int:
    return read_integer(fields, "pid", _MAX_PID)


def read_seconds(fields: Fields, name: str) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MAX_SECONDS < value < _MAX_SECONDS:
        raise ValueError(f"{name} is {value!r:.100}; it must be a number of seconds")
    return value


def read_optional_seconds(fields: Fields, name: str) -> float | None:
    return None if fields.get(name) is None else read_seconds(fields, name)


def read_path(fields: Fields, name: str) -> str:
    """Read an absolute path. A relative one would depend on the directory of the thread that uses it."""
    value = fields[name]
    if not isinstance(value, str) or "\0" in value or not value.startswith("/"):
        raise ValueError(f"{name} is {value!r:.100}; it must be an absolute path")
    return value


def read_string(fields: Fields, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.100}; it must be a string")
    return value


def read_variables(fields: Fields, name: str) -> dict[str, str]:
    value: dict[str, str] = fields[name]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"{name} must be an object of strings")
    return value


def read_starts(order: Fields) -> list[Fields]:
    """Read the start orders of a prefetch order. Each is validated like a single one."""
    value: list[Fields] = order["starts"]
    if not isinstance(value, list):
        raise ValueError("starts must be a list")
    for start in value:
        check_start(start)
    return value


def check_start(order: Fields) -> None:
    """Validate a start order, except for conditions that only its child detects, such as a missing program."""
    read_integer(order, "run")
    read_path(order, "directory")
    read_path(order, "cwd")
    read_seconds(order, "kill_after")
    read_optional_seconds(order, "timeout")
    read_optional_seconds(order, "idle_timeout")
    read_variables(order, "overlay")
    if not isinstance(order["argv"], list) or not all(isinstance(word, str) for word in order["argv"]):
        raise ValueError("argv must be a list of strings")
    if not isinstance(order.get("skip_if"), str | None):
        raise ValueError("skip_if must be a string")
    if order.get("superseded_run") is not None:
        read_integer(order, "superseded_run")
    _require(isinstance(order.get("is_trial", False), bool), "is_trial")
    if order.get("workspace") is not None:
        read_seconds(order["workspace"], "limit")


def check_end(end: Fields) -> None:
    """Validate an exit from the journal. It is sent unchanged, so a scheduler must be able to read it."""
    if end["type"] == "failed_to_start":
        _check_text(end, "error")
        _require(isinstance(end.get("is_machine_failure", False), bool), "is_machine_failure")
        return
    _require(read_seconds(end, "at") >= 0, "at")
    _require(end.get("code") is None or read_integer(end, "code", 255) >= 0, "code")
    _require(end.get("signal") is None or read_integer(end, "signal", 255) >= 0, "signal")
    _require(end.get("ended_by") in END_REASONS, "ended_by")
    _require(isinstance(end.get("is_observed", True), bool), "is_observed")
    _require(isinstance(end.get("is_verified", True), bool), "is_verified")
    for name in ("skip_reason", "tail", "workspace_error"):
        if name in end and not (name == "skip_reason" and end[name] is None):
            _check_text(end, name)


def _check_text(end: Fields, name: str) -> None:
    value = end[name]
    _require(isinstance(value, str), name)
    value.encode()  # a lone surrogate is not valid text for other readers


def _require(is_valid: bool, name: str) -> None:
    if not is_valid:
        raise ValueError(f"{name} has an invalid value")
