"""How much there may be: of a request, on every way in, and of what is open at once.

A body is refused when it says that it is too large, and nobody reads it. One that does not say is counted as it comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.errors import TooLarge

MOST_BODY = 64 << 20
"""Bytes. Ten thousand jobs, the most of a batch, have 6 KiB each in it."""
_MOST_CONNECTIONS = 4000
_MOST_STREAMS = 2000


LEAST_DESCRIPTORS = 128
"""Of a process: with fewer there would be no room for connections beside what is kept back."""
_KEPT_BACK = 32


def highest_connection(descriptors: int) -> int:
    """The last descriptor that a connection may have, for a process that may have so many. The others are for the
    store, the supervisor, and the logs that streams read: two for each at most."""
    return descriptors - descriptors // 4 - _KEPT_BACK


def most_connections(descriptors: int) -> int:
    """Over TCP, where anybody may connect, for a process that may have so many descriptors."""
    return min(_MOST_CONNECTIONS, descriptors // 2)


def most_streams(descriptors: int) -> int:
    """On all ways in together: half as many as connections, so that there is room for who asks for something else."""
    return min(_MOST_STREAMS, descriptors // 4)


class Limited:
    """The application, and no body larger than there may be. What it raises while the body is read, the application
    answers."""

    def __init__(self, app: ASGIApp, most: int = MOST_BODY) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, self._limited(scope["headers"], receive), send)

    def _limited(self, headers: Sequence[tuple[bytes, bytes]], receive: Receive) -> Receive:
        for name, value in headers:
            if name == b"content-length":  # the HTTP parser takes no more than it says, and no two that differ
                return receive if int(value) <= self._most else self._refused
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            return message if count <= self._most else await self._refused()

        return counted

    async def _refused(self) -> Message:
        raise TooLarge(f"a request body has at most {self._most:,} bytes; submit in several parts")
