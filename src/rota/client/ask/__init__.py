"""Request builders: a function for each endpoint, one module for each noun. Each makes an `Ask` and sends nothing.

`Session` carries an ask out for commands, `rota.Client` and `rota.AsyncClient` for programs. A command is paid for at
every call, so nothing here is dearer to import than a few lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.client.ask.given import plain
from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs a third of a bare interpreter's start, and a command is paid for at every call.
    from typing import Any

    Json = dict[str, Any]

MOST_LISTED = 1000
"""The most that a page of a list can have."""
PATIENCE = 60.0
"""Seconds without a byte after which an answer is given up."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_REPEATABLE = ("GET", "PUT")
"""A PATCH is none: a rename that was done once is refused the second time, for its name is gone."""


class Ask:
    """What to send, and how. A value: made once, never changed, and as good for a second time as for the first."""

    __slots__ = ("body", "headers", "is_repeatable", "method", "patience", "target")

    method: str
    target: str
    """Path and query, percent-encoded."""
    body: Any
    """Goes as JSON; none for no body."""
    headers: Mapping[str, str]
    patience: float | None
    """Seconds without a byte after which its answer is given up; none where it takes as long as it takes."""
    is_repeatable: bool
    """Whether it may be sent again when nobody knows if it was heard: asked twice it still is done once."""

    def __init__(
        self, method: str, target: str, *, body: Any = None, headers: Mapping[str, str] | None = None,
        patience: float | None = PATIENCE, key: str | None = None,
    ) -> None:  # fmt: skip
        """`key` is its Idempotency-Key: the scheduler does once what comes with the same."""
        path = target.partition("?")[0]
        if path != "/" and (path.endswith("/") or "//" in path):  # it is made of words and of what was given
            raise InvalidInput("an id or a name is missing: it is empty; write it as 'job-1'")
        given = dict(headers or {})
        if key is not None:
            given["Idempotency-Key"] = key
        put = object.__setattr__
        put(self, "method", method)
        put(self, "target", target)
        put(self, "body", body)
        put(self, "headers", given)
        put(self, "patience", patience)
        put(self, "is_repeatable", method in _REPEATABLE or "Idempotency-Key" in given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an Ask does not change: {name}")

    def __repr__(self) -> str:
        return f"Ask({self.method} {self.target})"

    def with_body(self, body: Any) -> Ask:
        """The same with another body."""
        return Ask(self.method, self.target, body=body, headers=self.headers, patience=self.patience)


def quote(text: str, *, keep: str = "") -> str:
    """Percent-encode for a path segment or a query value; characters in `keep` stay."""
    if not isinstance(text, str):
        raise InvalidInput(f"an id or a name is text, as 'job-1', not {text!r}")
    try:
        spelt = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r} is no text that can be sent: it has half a character") from None
    kept = _UNRESERVED.union(keep.encode())
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in spelt)


def query(*pairs: tuple[str, object]) -> str:
    """What is none is not asked; of a list each is said."""
    shown = "&".join(f"{name}={quote(_text(each))}" for name, value in pairs for each in _each(value))
    return f"?{shown}" if shown else ""


def _each(value: object) -> Iterable[object]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(value) if isinstance(value, str | int) else plain(value)


def patience_for(wait: float | None) -> float:
    """Of a request that is answered when something has happened, or after so many seconds."""
    return PATIENCE + (wait or 0)
