"""One message over HTTP/1.1: to an address that was looked at, within one deadline, reading no more than a little.

The bytes are h11's, the connection is ours. So the address that was checked is the one connected to, whatever the name
means a moment later; connecting, TLS, headers and body share one deadline, so who drips is cut off too; and no proxy,
cookie, redirect or pool of connections that somebody's environment asks for comes in between.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import h11

from rota import __version__
from rota.core.address import Url, read_url
from rota.core.webhook import HookPolicy
from rota.duration import show_duration
from rota.errors import RotaError
from rota.receiver.name import Resolve, permitted, resolve
from rota.receiver.port import Answer

_MOST_READ = 8192
"""Bytes of an answer's body; what is behind them is nobody's business here."""
_MOST_HEARD = 1 << 16
"""Bytes of everything it says: one that goes on without ever coming to its answer is cut off too."""
_MOST_SHOWN = 200
_ONE_OF_SEVERAL = 5.0
"""Seconds for an address while there are others to try."""


class HttpPost:
    def __init__(self, resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: HookPolicy) -> Answer:
        exchange = _Exchange()
        try:
            async with asyncio.timeout(policy.timeout.total_seconds()):
                await self._bring(exchange, read_url(url), headers, body, policy)
        except TimeoutError:
            return Answer(status=exchange.status, error=f"timed out after {show_duration(policy.timeout)}")
        except RotaError as error:
            return Answer(error=error.message)
        except ssl.SSLCertVerificationError as error:
            return Answer(error=f"its certificate cannot be trusted: {error.verify_message}")
        except OSError as error:
            return Answer(status=exchange.status, error=_trouble(error))
        return exchange.answer()

    async def _bring(
        self, exchange: _Exchange, url: Url, headers: Mapping[str, str], body: bytes, policy: HookPolicy
    ) -> None:
        reader, writer = await self._connect(url, policy)
        try:
            writer.write(exchange.request(url, headers, body))
            await exchange.hear(reader)
        finally:
            writer.transport.abort()

    async def _connect(self, url: Url, policy: HookPolicy) -> tuple[StreamReader, StreamWriter]:
        addresses = await permitted(url.host, url.port, policy.allow, self._resolve)
        if url.is_secure and self._tls is None:  # the authorities are read from disk
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        options: dict[str, Any] = {"ssl": self._tls, "server_hostname": url.host} if url.is_secure else {}
        for address in addresses[:-1]:
            try:
                async with asyncio.timeout(_ONE_OF_SEVERAL):
                    return await asyncio.open_connection(address, url.port, **options)
            except ssl.SSLError:
                raise
            except OSError:
                continue
        return await asyncio.open_connection(addresses[-1], url.port, **options)


class _Exchange:
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


def _trouble(error: OSError) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError() | BrokenPipeError():
            return "it closed the connection without an answer"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
    return error.strerror or str(error) or repr(error)
