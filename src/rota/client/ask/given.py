"""What callers give, as requests take it. What cannot be meant is refused here, before anything is sent: a type checker
lets text pass for a list of texts, and not everybody has one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.client.ask import Json

_LISTS = frozenset(("after", "locks", "webhooks", "webhook_events", "needs", "produces", "env_given", "unset_params"))
_DURATIONS = frozenset(("delay", "timeout", "idle_timeout", "wait"))


def listed(name: str, given: Any) -> list[Any]:
    """A list. Text by itself would be taken apart into letters."""
    if isinstance(given, str | bytes | Mapping | os.PathLike) or not isinstance(given, Iterable):
        raise InvalidInput(f"{name} is a list: write [{given!r}]").under(f"$.{name}")
    return list(given)


def words(command: Any) -> list[Any]:
    """A command with its arguments."""
    if isinstance(command, str):
        shown = f'{command.split()!r}, or ["sh", "-c", {command!r}]'
        raise InvalidInput(f"a command is a list of words: {shown}").under("$.command")
    return listed("command", command)


def mapped(name: str, given: Any) -> Json:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{name} is a dict of its fields, not {given!r}").under(f"$.{name}")
    return dict(given)


def key_of(given: str | None) -> str:
    """An Idempotency-Key: the caller's, or a new one for one thing that is to be done once."""
    if given is None:
        return os.urandom(16).hex()
    if not isinstance(given, str) or not (given and given.isascii() and given.isprintable()):
        raise InvalidInput(f"a key is text of ASCII characters, as 'deploy-42', not {given!r}; None has one made")
    return given


def duration(given: Any) -> Any:
    """As the API takes it. A number is seconds; text is so already, and what else there is, the scheduler refuses."""
    number = given.total_seconds() if hasattr(given, "total_seconds") else given
    return f"{number:.6f}".rstrip("0").rstrip(".") + "s" if is_number(number) else given


def in_form(fields: Mapping[str, object]) -> Json:
    """The fields of a body as the API takes them."""
    return {name: _in_form(name, value) for name, value in fields.items()}


def _in_form(name: str, value: object) -> object:
    if value is None:
        return None
    if name == "command":
        return words(value)
    if name in _LISTS:
        return listed(name, value)
    return duration(value) if name in _DURATIONS else value


def seconds(name: str, given: Any) -> float | None:
    """Of what is waited for here: a number, a timedelta, or text such as `1m30s`. None is without end."""
    if given is None or (is_number(given) and given == given):
        return given  # type: ignore[no-any-return]
    if hasattr(given, "total_seconds"):
        return float(given.total_seconds())
    if isinstance(given, str):
        from rota.duration import parse_duration

        return parse_duration(given).total_seconds()
    raise InvalidInput(f"{name} is a number of seconds, a timedelta or text such as '1m30s', not {given!r}")


def is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def plain(given: object) -> str:
    """What JSON has no form for: a path is its text."""
    if isinstance(given, os.PathLike):
        return os.fspath(given)  # type: ignore[no-any-return]
    raise InvalidInput(f"{given!r} cannot be sent: give text, numbers, lists and dicts of these")
