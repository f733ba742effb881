"""Limits on the size of requests, and on the number of open connections and streams.

A body that declares too large a size is refused without being read. Otherwise its bytes are counted as they arrive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.errors import BodyTooLarge

MAX_BODY_BYTES = 64 << 20
"""Maximum bytes of a body. The 10,000 jobs of the largest batch have 6 KiB each."""
_MAX_CONNECTIONS = 4000
_MAX_STREAMS = 2000
_QUIET_PERIOD = 60.0
"""Seconds without a refusal after which the next one is logged again."""

MIN_DESCRIPTORS = 128
"""Minimum number of descriptors of the process. With fewer, the reserved ones would leave no room for connections."""
_RESERVED_DESCRIPTORS = 32


def max_connection_descriptor(descriptors: int) -> int:
    """Return the highest descriptor that a connection may have, if the process has this number of descriptors. The
    others are for the store, the supervisor and logs: a stream reads at most two."""
    return descriptors - descriptors // 4 - _RESERVED_DESCRIPTORS


def max_connections(descriptors: int) -> int:
    """Return the maximum number of TCP connections, if the process has this number of descriptors."""
    return min(_MAX_CONNECTIONS, descriptors // 2)


def max_streams(descriptors: int) -> int:
    """Return the maximum number of streams on the socket and over TCP. It is half of the maximum number of connections,
    so that other requests are possible."""
    return min(_MAX_STREAMS, descriptors // 4)


class LimitNotice:
    """Warning about a limit that is reached repeatedly. It is logged when this begins, not for every client."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last_refusal = float("-inf")

    def log(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last_refusal >= _QUIET_PERIOD:
            self._log.warning(text)
        self._last_refusal = now


class BodyLimit:
    """ASGI middleware that limits the size of bodies. The application answers the error that it raises while the body
    is read."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, self._limit_receive(scope["headers"], receive), send)

    def _limit_receive(self, headers: Sequence[tuple[bytes, bytes]], receive: Receive) -> Receive:
        for name, value in headers:
            if name == b"content-length":  # the HTTP parser enforces it, and refuses a second one that differs
                return receive if int(value) <= self._max_bytes else self._refuse
        count = 0

        async def receive_counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            return message if count <= self._max_bytes else await self._refuse()

        return receive_counted

    async def _refuse(self) -> Message:
        raise BodyTooLarge(f"the request body exceeds {self._max_bytes:,} bytes; submit in several parts")
