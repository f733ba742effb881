"""HTTP exchange over one connection: the request, and the part of the response that matters."""

from __future__ import annotations

from asyncio import StreamReader
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import h11

from rota import __version__
from rota.core.address import Url
from rota.receiver.port import PostResult

_MAX_BODY_BYTES = 8192
"""Number of bytes of a response body that are read."""
_MAX_RESPONSE_BYTES = 1 << 16
"""Total number of bytes that are read. The limit also ends an endless response."""
_MAX_EXCERPT_LENGTH = 200


class HttpExchange:
    def __init__(self) -> None:
        self._connection = h11.Connection(h11.CLIENT)
        self._response: h11.Response | None = None
        self._body = b""
        self._received_bytes = 0

    @property
    def status(self) -> int | None:
        return None if self._response is None else self._response.status_code

    def build_request(self, url: Url, headers: Mapping[str, str], body: bytes) -> bytes:
        all_headers = {
            "host": url.authority,
            "user-agent": f"Rota/{__version__}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        head = self._connection.send(h11.Request(method="POST", target=url.target, headers=list(all_headers.items())))
        rest = self._connection.send(h11.Data(data=body)), self._connection.send(h11.EndOfMessage())
        return b"".join(part or b"" for part in (head, *rest))

    async def receive(self, reader: StreamReader) -> None:
        """Read until the end of the response or a size limit. A received status counts, whatever follows it."""
        with suppress(h11.RemoteProtocolError):
            while len(self._body) < _MAX_BODY_BYTES:
                event = self._connection.next_event()
                if event is h11.NEED_DATA:
                    if self._received_bytes >= _MAX_RESPONSE_BYTES:
                        return
                    received = await reader.read(_MAX_BODY_BYTES)
                    self._received_bytes += len(received)
                    self._connection.receive_data(received)
                elif isinstance(event, h11.Response):
                    self._response = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif not isinstance(event, h11.InformationalResponse):
                    return

    def result(self) -> PostResult:
        if self._response is None:
            return PostResult(error=self._missing_response_reason())
        status = self._response.status_code
        if 200 <= status < 300:
            return PostResult(status=status)
        if 300 <= status < 400:
            return PostResult(status=status, error=f"answered {status}: {self._describe_redirect()}")
        shown = self._body_excerpt()
        return PostResult(status=status, error=f"answered {status}: {shown}" if shown else f"answered {status}")

    def _missing_response_reason(self) -> str:
        if self._received_bytes >= _MAX_RESPONSE_BYTES:
            return f"the receiver sent {_MAX_RESPONSE_BYTES >> 10} KiB without a response"
        if self._received_bytes:
            return "the response is not HTTP"
        return "the receiver closed the connection without a response"

    def _describe_redirect(self) -> str:
        headers = [] if self._response is None else self._response.headers
        location = next((value.decode("latin-1") for name, value in headers if name == b"location"), "")
        try:
            host = urlsplit(location).hostname or "another path"
        except ValueError:
            host = "an invalid URL"
        return f"redirect to {host} not followed; use the final URL"

    def _body_excerpt(self) -> str:
        text = " ".join(self._body.decode("utf-8", "replace").split())
        return "".join(char for char in text if char.isprintable())[:_MAX_EXCERPT_LENGTH]
