"""Failures between a client and the scheduler, as exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rota.errors import BY_CODE, Conflict, InvalidInput, NotFound, QueueFull, RotaError, ServiceUnavailable, StorageFull

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.home import Home


class NotRunning(ServiceUnavailable):
    """No scheduler listens on the home's socket."""

    def __init__(self, message: str, *, has_stale_socket: bool) -> None:
        super().__init__(message)
        self.has_stale_socket = has_stale_socket
        """Whether the socket file still exists: the scheduler did not shut down orderly."""


def make_not_running(home: Home, *, has_stale_socket: bool = False) -> NotRunning:
    return NotRunning(
        f"the scheduler in {home.directory} is stopped; `rota up` starts it", has_stale_socket=has_stale_socket
    )


class ConnectionBroken(ServiceUnavailable):
    """The connection ended before the response was complete."""


class NoResponse(ConnectionBroken):
    """The connection ended before any byte of the response."""


class ResponseTimeout(ServiceUnavailable):
    """The scheduler received the request and did not respond in time."""


class InvalidResponse(ServiceUnavailable):
    """The process on the socket does not speak Rota's HTTP."""


_ERROR_BY_STATUS: dict[int, type[RotaError]] = {
    400: InvalidInput,
    404: NotFound,
    409: Conflict,
    422: InvalidInput,
    429: QueueFull,
    503: ServiceUnavailable,
    507: StorageFull,
}


def error_from_response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> RotaError:
    """Return the exception for a refusal: by the code of the problem, or by the status without a code."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        if status >= 500:
            # Not a response of Rota but of its HTTP server, for example during a shutdown.
            return ConnectionBroken(
                f"the scheduler did not complete its response (HTTP status {status}); see the end of its rota.log"
            )
        document = {}
    code = document.get("code")
    kind = BY_CODE.get(str(code)) or _ERROR_BY_STATUS.get(status, RotaError)
    message = document.get("detail") or document.get("title") or f"the scheduler answered with HTTP status {status}"
    refusal = kind(str(message))
    if isinstance(refusal, QueueFull):
        refusal.depth = document.get("depth")
    refusal.path = str(document.get("path") or "")
    refusal.response_status = status
    retry_after = (headers or {}).get("retry-after", "")
    refusal.retry_after = float(retry_after) if retry_after.isdecimal() else None
    return refusal
