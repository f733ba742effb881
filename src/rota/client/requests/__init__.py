"""Request builders: a function for each endpoint, a module for each noun. A builder makes a `Request` and sends
nothing; its docstring describes the effect and the response of the request.

`SchedulerSession` sends the requests of commands, `rota.Client` and `rota.AsyncClient` those of programs. These modules
import little, because each call of a command pays for the imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.client.requests.arguments import encode_fallback
from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing `typing` takes a third of the start time of a bare interpreter.
    from typing import Any

    Json = dict[str, Any]

MAX_PAGE_SIZE = 1000
"""Maximum number of items in a page."""
RESPONSE_TIMEOUT = 60.0
"""Seconds without a byte after which a request times out."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_REPEATABLE_METHODS = ("GET", "PUT")
"""Methods that can be repeated. PATCH cannot: a repeated rename fails, because the old name is gone."""


class Request:
    """A request: an immutable value that can be sent several times."""

    __slots__ = ("body", "headers", "is_repeatable", "method", "target", "timeout")

    method: str
    target: str
    """Path and query, percent-encoded."""
    body: Any
    """Body, sent as JSON; `None` for no body."""
    headers: Mapping[str, str]
    timeout: float | None
    """Seconds without a byte after which the request times out; `None` for no timeout."""
    is_repeatable: bool
    """Whether the request can be repeated after a broken connection: sent twice, it takes effect once."""

    def __init__(
        self,
        method: str,
        target: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = RESPONSE_TIMEOUT,
        key: str | None = None,
    ) -> None:
        """Initialize the request. `key` is its idempotency key: requests with the same key take effect once."""
        path = target.partition("?")[0]
        if path != "/" and (path.endswith("/") or "//" in path):  # the target contains an argument of the caller
            raise InvalidInput("an id or name is empty; pass one such as 'job-1'")
        all_headers = dict(headers or {})
        if key is not None:
            all_headers["Idempotency-Key"] = key
        set_field = object.__setattr__
        set_field(self, "method", method)
        set_field(self, "target", target)
        set_field(self, "body", body)
        set_field(self, "headers", all_headers)
        set_field(self, "timeout", timeout)
        set_field(self, "is_repeatable", method in _REPEATABLE_METHODS or "Idempotency-Key" in all_headers)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Request is immutable: {name} cannot be set")

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target})"

    def with_body(self, body: Any) -> Request:
        """Return the request with another body."""
        return Request(self.method, self.target, body=body, headers=self.headers, timeout=self.timeout)


def quote(text: str, *, safe: str = "") -> str:
    """Percent-encode text for a path segment or a query value, except the characters in `safe`."""
    if not isinstance(text, str):
        raise InvalidInput(f"an id or name must be text, such as 'job-1', not {text!r}")
    try:
        encoded = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r} cannot be sent: it contains an unpaired surrogate") from None
    unquoted = _UNRESERVED.union(safe.encode())
    return "".join(chr(byte) if byte in unquoted else f"%{byte:02X}" for byte in encoded)


def build_query(*pairs: tuple[str, object]) -> str:
    """Build a query string. `None` values are omitted, and lists repeat the parameter."""
    query = "&".join(f"{name}={quote(_query_text(item))}" for name, value in pairs for item in _as_values(value))
    return f"?{query}" if query else ""


def _as_values(value: object) -> Iterable[object]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _query_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(value) if isinstance(value, str | int) else encode_fallback(value)


def timeout_for(wait: float | None) -> float:
    """Return the timeout of a request that may wait for this many seconds."""
    return RESPONSE_TIMEOUT + (wait or 0)
