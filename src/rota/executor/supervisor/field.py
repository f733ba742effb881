"""What a field of a message, or of a line of the journal, has to be to be used.

Whatever is not is refused before anything is done about it: half an order carried out is worse than none, and what a
spoilt line says of a run is not known.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the typing module would cost half a megabyte
if TYPE_CHECKING:
    from typing import Any

    Fields = dict[str, Any]

NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading something that is none of ours can raise."""
REASONS = (None, "stop", "timeout", "idle_timeout")
"""Why a run was ended by us."""
_MOST = (1 << 63) - 1
_MOST_PID = (1 << 31) - 1
_LONGEST = 1e11
"""Seconds, some three thousand years: beyond it no clock can be asked."""


def whole(fields: Fields, name: str, most: int = _MOST) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r:.100}, and no number that can be used")
    return value


def pid(fields: Fields) -> int:
    return whole(fields, "pid", _MOST_PID)


def seconds(fields: Fields, name: str) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LONGEST < value < _LONGEST:
        raise ValueError(f"{name} is {value!r:.100}, and no time that can be used")
    return value


def maybe_seconds(fields: Fields, name: str) -> float | None:
    return None if fields.get(name) is None else seconds(fields, name)


def path(fields: Fields, name: str) -> str:
    """From the root on: one that hangs on where we are would be somewhere else for each of our threads."""
    value = fields[name]
    if not isinstance(value, str) or "\0" in value or not value.startswith("/"):
        raise ValueError(f"{name} is {value!r:.100}, and no path from the root on")
    return value


def word(fields: Fields, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.100}, and no word")
    return value


def variables(fields: Fields, name: str) -> dict[str, str]:
    value: dict[str, str] = fields[name]
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError(f"{name} are no variables")
    return value


def check_start(order: Fields) -> None:
    """All of it but what only its child can find wrong, such as a program that is not there."""
    whole(order, "run")
    path(order, "directory")
    path(order, "cwd")
    seconds(order, "kill_after")
    maybe_seconds(order, "timeout")
    maybe_seconds(order, "idle_timeout")
    variables(order, "overlay")
    if not isinstance(order["argv"], list) or not all(isinstance(each, str) for each in order["argv"]):
        raise ValueError("argv is no list of words")
    if not isinstance(order.get("skip_if"), str | None):
        raise ValueError("skip_if is no command")
    if order.get("aside") is not None:
        whole(order, "aside")
    if order.get("workspace") is not None:
        seconds(order["workspace"], "limit")


def wholes(fields: Fields, name: str) -> list[int]:
    value: list[int] = fields[name]
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return [whole({name: each}, name) for each in value]


def starts(order: Fields) -> list[Fields]:
    """Each as good as an order of its own."""
    value: list[Fields] = order["starts"]
    if not isinstance(value, list):
        raise ValueError("starts is no list")
    for each in value:
        check_start(each)
    return value


def check_end(end: Fields) -> None:
    """It is told as it stands, so it has to be what a scheduler can read."""
    if end["type"] == "failed_to_start":
        _check_text(end, "error")
        _check(isinstance(end.get("is_machine", False), bool), "is_machine")
        return
    _check(seconds(end, "at") >= 0, "at")
    _check(end.get("code") is None or whole(end, "code", 255) >= 0, "code")
    _check(end.get("signal") is None or whole(end, "signal", 255) >= 0, "signal")
    _check(end.get("ended_by") in REASONS, "ended_by")
    _check(isinstance(end.get("watched", True), bool), "watched")
    for name in ("skipped", "tail", "trouble"):
        if name in end and not (name == "skipped" and end[name] is None):
            _check_text(end, name)


def _check_text(end: Fields, name: str) -> None:
    value = end[name]
    _check(isinstance(value, str), name)
    value.encode()  # half a surrogate pair is no text to others


def _check(is_fine: bool, name: str) -> None:
    if not is_fine:
        raise ValueError(f"{name} is not what it can be")
