"""What is said and heard over one connection: the request, and as much of the answer as counts."""

from __future__ import annotations

from asyncio import StreamReader
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import h11

from rota import __version__
from rota.core.address import Url
from rota.receiver.port import Answer

_MOST_READ = 8192
"""Bytes of an answer's body; what is behind them is nobody's business here."""
_MOST_HEARD = 1 << 16
"""Bytes of everything it says: one that goes on without ever coming to its answer is cut off too."""
_MOST_SHOWN = 200


class Exchange:
    def __init__(self) -> None:
        self._bytes = h11.Connection(h11.CLIENT)
        self._answer: h11.Response | None = None
        self._body = b""
        self._heard = 0

    @property
    def status(self) -> int | None:
        return None if self._answer is None else self._answer.status_code

    def request(self, url: Url, headers: Mapping[str, str], body: bytes) -> bytes:
        said = {
            "host": url.authority,
            "user-agent": f"Rota/{__version__}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        begin = self._bytes.send(h11.Request(method="POST", target=url.target, headers=list(said.items())))
        rest = self._bytes.send(h11.Data(data=body)), self._bytes.send(h11.EndOfMessage())
        return b"".join(part or b"" for part in (begin, *rest))

    async def hear(self, reader: StreamReader) -> None:
        """Until the answer is over or there is enough of it. A status that was heard counts, whatever follows it."""
        with suppress(h11.RemoteProtocolError):
            while len(self._body) < _MOST_READ:
                event = self._bytes.next_event()
                if event is h11.NEED_DATA:
                    if self._heard >= _MOST_HEARD:
                        return
                    heard = await reader.read(_MOST_READ)
                    self._heard += len(heard)
                    self._bytes.receive_data(heard)
                elif isinstance(event, h11.Response):
                    self._answer = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif not isinstance(event, h11.InformationalResponse):
                    return

    def answer(self) -> Answer:
        if self._answer is None:
            return Answer(error=self._why_unanswered())
        status = self._answer.status_code
        if 200 <= status < 300:
            return Answer(status=status)
        if 300 <= status < 400:
            return Answer(status=status, error=f"answered {status}: {self._redirect()}")
        shown = self._shown()
        return Answer(status=status, error=f"answered {status}: {shown}" if shown else f"answered {status}")

    def _why_unanswered(self) -> str:
        if self._heard >= _MOST_HEARD:
            return "it went on and on without an answer"
        return "what it answered is not HTTP" if self._heard else "it closed the connection without an answer"

    def _redirect(self) -> str:
        headers = [] if self._answer is None else self._answer.headers
        location = next((value.decode("latin-1") for name, value in headers if name == b"location"), "")
        try:
            host = urlsplit(location).hostname or "another path"
        except ValueError:
            host = "somewhere"
        return f"it redirects to {host}, which is not followed; the endpoint needs its final URL"

    def _shown(self) -> str:
        text = " ".join(self._body.decode("utf-8", "replace").split())
        return "".join(each for each in text if each.isprintable())[:_MOST_SHOWN]
