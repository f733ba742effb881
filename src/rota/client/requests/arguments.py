"""Conversion of arguments. Values that the scheduler could misunderstand are refused before the request is sent: a
string is a valid sequence of strings for a type checker, and not every caller uses one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.client.requests import Json

_LIST_FIELDS = frozenset(
    ("after", "locks", "webhooks", "webhook_events", "needs", "produces", "explicit_env", "unset_params")
)
_DURATION_FIELDS = frozenset(("delay", "timeout", "idle_timeout", "wait"))


def as_list(name: str, value: Any) -> list[Any]:
    """Return a list. A string is refused, because it would become a list of characters."""
    if isinstance(value, str | bytes | Mapping | os.PathLike) or not isinstance(value, Iterable):
        raise InvalidInput(f"{name} must be a list: write [{value!r}]").at_path(f"$.{name}")
    return list(value)


def as_command(command: Any) -> list[Any]:
    """Return a command as a list of arguments."""
    if isinstance(command, str):
        suggestion = f'{command.split()!r}, or ["sh", "-c", {command!r}]'
        raise InvalidInput(f"a command must be a list of words: {suggestion}").at_path("$.command")
    return as_list("command", command)


def as_mapping(name: str, value: Any) -> Json:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a dict, not {value!r}").at_path(f"$.{name}")
    return dict(value)


def as_idempotency_key(value: str | None) -> str:
    """Return the given idempotency key, or a new random one."""
    if value is None:
        return os.urandom(16).hex()
    if not isinstance(value, str) or not (value and value.isascii() and value.isprintable()):
        raise InvalidInput(
            f"an idempotency key must be printable ASCII text, such as 'deploy-42', not {value!r}; omit it to get one"
        )
    return value


def as_duration(value: Any) -> Any:
    """Return a duration as the API expects it. A number is in seconds. Other values pass unchanged, and the scheduler
    refuses invalid ones."""
    number = value.total_seconds() if hasattr(value, "total_seconds") else value
    return f"{number:.6f}".rstrip("0").rstrip(".") + "s" if is_number(number) else value


def encode_fields(fields: Mapping[str, object]) -> Json:
    """Encode the fields of a body as the API expects them."""
    return {name: _encode_field(name, value) for name, value in fields.items()}


def _encode_field(name: str, value: object) -> object:
    if value is None:
        return None
    if name == "command":
        return as_command(value)
    if name in _LIST_FIELDS:
        return as_list(name, value)
    return as_duration(value) if name in _DURATION_FIELDS else value


def as_seconds(name: str, value: Any) -> float | None:
    """Return a time as seconds: a number, a timedelta, or text such as `1m30s`. `None` is without limit."""
    if value is None or (is_number(value) and value == value):
        return value  # type: ignore[no-any-return]
    if hasattr(value, "total_seconds"):
        return float(value.total_seconds())
    if isinstance(value, str):
        from rota.duration import parse_duration

        return parse_duration(value).total_seconds()
    raise InvalidInput(f"{name} must be a number of seconds, a timedelta or text such as '1m30s', not {value!r}")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def encode_fallback(value: object) -> str:
    """Encode a value without a JSON representation: a path becomes its text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)  # type: ignore[no-any-return]
    raise InvalidInput(f"{value!r} cannot be sent; use text, numbers, lists and dicts")
