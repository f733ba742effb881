"""What can go wrong between a command and the scheduler, as exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rota.errors import BY_CODE, Conflict, Deferred, InvalidInput, NotFound, RotaError, StorageFull, Unavailable


class NotRunning(Unavailable):
    """Nothing listens on the home's socket."""

    def __init__(self, message: str, *, left_socket: bool) -> None:
        super().__init__(message)
        self.left_socket = left_socket
        """The socket file is still there: its owner did not end in good order."""


class Broken(Unavailable):
    """The connection ended before the whole answer had come."""


class Unheard(Broken):
    """It ended before anything had come."""


class NoAnswer(Unavailable):
    """The scheduler took the request and stayed silent for too long."""


class BadAnswer(Unavailable):
    """What answers on the socket does not speak HTTP as Rota does."""


_BY_STATUS: dict[int, type[RotaError]] = {
    400: InvalidInput,
    404: NotFound,
    409: Conflict,
    422: InvalidInput,
    429: Deferred,
    503: Unavailable,
    507: StorageFull,
}


def from_answer(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> RotaError:
    """The exception that a refusal stands for: by the problem's code, or by the status where it has none."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        if status >= 500:
            # Not Rota's words but those of an HTTP server that was cut off in the middle, as when it is stopped.
            return Broken(f"the scheduler broke off its answer (HTTP status {status}); see the end of its rota.log")
        document = {}
    code = document.get("code")
    kind = BY_CODE.get(str(code)) or _BY_STATUS.get(status, RotaError)
    message = document.get("detail") or document.get("title") or f"the scheduler answered with HTTP status {status}"
    refusal = kind(str(message))
    if isinstance(refusal, Deferred):
        refusal.depth = document.get("depth")
    refusal.path = str(document.get("path") or "")
    refusal.came_with = status
    after = (headers or {}).get("retry-after", "")
    refusal.retry_after = float(after) if after.isdecimal() else None
    return refusal
