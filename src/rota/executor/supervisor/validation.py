"""Validation of the fields of messages and journal lines.

An invalid field is refused before anything is done: a half-executed order is worse than none, and an invalid journal
line says nothing about its run.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the typing module would cost half a megabyte
if TYPE_CHECKING:
    from typing import Any

    Fields = dict[str, Any]

PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""Exceptions that reading untrusted input can raise."""
END_REASONS = (None, "stop", "timeout", "idle_timeout")
"""Reasons for which the supervisor ends a run."""
_MAX_INTEGER = (1 << 63) - 1
_MAX_PID = (1 << 31) - 1
_MAX_SECONDS = 1e11
"""Maximum seconds, about three thousand years: a larger value overflows the clocks."""


def read_integer(fields: Fields, name: str, max_value: int = _MAX_INTEGER) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= max_value:
        raise ValueError(f"{name} is {value!r:.100}; it must be an integer from 0 to {max_value}")
    return value


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
    if order.get("workspace") is not None:
        read_seconds(order["workspace"], "limit")


def read_integers(fields: Fields, name: str) -> list[int]:
    value: list[int] = fields[name]
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list")
    return [read_integer({name: number}, name) for number in value]


def read_starts(order: Fields) -> list[Fields]:
    """Read the start orders of a prefetch order. Each is validated like a single one."""
    value: list[Fields] = order["starts"]
    if not isinstance(value, list):
        raise ValueError("starts must be a list")
    for start in value:
        check_start(start)
    return value


def check_end(end: Fields) -> None:
    """Validate an exit from the journal. It is sent unchanged, so a scheduler must be able to read it."""
    if end["type"] == "failed_to_start":
        _check_text(end, "error")
        _check(isinstance(end.get("is_machine_failure", False), bool), "is_machine_failure")
        return
    _check(read_seconds(end, "at") >= 0, "at")
    _check(end.get("code") is None or read_integer(end, "code", 255) >= 0, "code")
    _check(end.get("signal") is None or read_integer(end, "signal", 255) >= 0, "signal")
    _check(end.get("ended_by") in END_REASONS, "ended_by")
    _check(isinstance(end.get("is_observed", True), bool), "is_observed")
    _check(isinstance(end.get("is_verified", True), bool), "is_verified")
    for name in ("skip_reason", "tail", "workspace_error"):
        if name in end and not (name == "skip_reason" and end[name] is None):
            _check_text(end, name)


def _check_text(end: Fields, name: str) -> None:
    value = end[name]
    _check(isinstance(value, str), name)
    value.encode()  # a lone surrogate is not valid text for other readers


def _check(is_valid: bool, name: str) -> None:
    if not is_valid:
        raise ValueError(f"{name} has an invalid value")
