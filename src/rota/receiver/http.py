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
from typing import TYPE_CHECKING, Any

from rota.core.address import Url, read_url
from rota.core.webhook import HookPolicy
from rota.duration import show_duration
from rota.errors import RotaError
from rota.receiver.name import Resolve, permitted, resolve
from rota.receiver.port import Answer

if TYPE_CHECKING:
    from rota.receiver.exchange import Exchange

_ONE_OF_SEVERAL = 5.0
"""Seconds for an address while there are others to try."""


class HttpPost:
    def __init__(self, resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: HookPolicy) -> Answer:
        from rota.receiver.exchange import Exchange  # late: a start need not wait for h11

        exchange = Exchange()
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
        self, exchange: Exchange, url: Url, headers: Mapping[str, str], body: bytes, policy: HookPolicy
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


def _trouble(error: OSError) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError() | BrokenPipeError():
            return "it closed the connection without an answer"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
    return error.strerror or str(error) or repr(error)
