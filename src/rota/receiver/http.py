"""Delivery of one message over HTTP/1.1, to a checked address, with one deadline and a limited response.

h11 handles the protocol, and this module the connection. Rota therefore connects to the address that it has checked,
even if the name resolves differently a moment later. One deadline covers connect, TLS, headers and body, so that a slow
receiver cannot hold a delivery. Proxies, cookies, redirects and connection pools are not used.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rota.core.address import Url, parse_url
from rota.core.webhook import WebhookPolicy
from rota.duration import format_duration
from rota.errors import RotaError
from rota.receiver.port import PostResult
from rota.receiver.resolution import Resolver, resolve, resolve_permitted

if TYPE_CHECKING:
    from rota.receiver.exchange import HttpExchange

_ADDRESS_TIMEOUT = 5.0
"""Seconds for the connection to an address if there are further addresses to try."""


class HttpMessagePoster:
    def __init__(self, resolver: Resolver = resolve) -> None:
        self._resolver = resolver
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: WebhookPolicy) -> PostResult:
        from rota.receiver.exchange import HttpExchange  # late, because the import of h11 would delay the start

        exchange = HttpExchange()
        try:
            async with asyncio.timeout(policy.timeout.total_seconds()):
                await self._deliver(exchange, parse_url(url), headers, body, policy)
        except TimeoutError:
            return PostResult(status=exchange.status, error=f"timed out after {format_duration(policy.timeout)}")
        except RotaError as error:
            return PostResult(error=error.message)
        except ssl.SSLCertVerificationError as error:
            return PostResult(error=f"the certificate is not trusted: {error.verify_message}")
        except OSError as error:
            return PostResult(status=exchange.status, error=_describe_error(error))
        return exchange.result()

    async def _deliver(
        self, exchange: HttpExchange, url: Url, headers: Mapping[str, str], body: bytes, policy: WebhookPolicy
    ) -> None:
        reader, writer = await self._connect(url, policy)
        try:
            writer.write(exchange.build_request(url, headers, body))
            await exchange.receive(reader)
        finally:
            writer.transport.abort()

    async def _connect(self, url: Url, policy: WebhookPolicy) -> tuple[StreamReader, StreamWriter]:
        addresses = await resolve_permitted(url.host, url.port, policy.allow, self._resolver)
        if url.is_secure and self._tls is None:  # reads the certificate authorities from disk
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        options: dict[str, Any] = {"ssl": self._tls, "server_hostname": url.host} if url.is_secure else {}
        for address in addresses[:-1]:
            try:
                async with asyncio.timeout(_ADDRESS_TIMEOUT):
                    return await asyncio.open_connection(address, url.port, **options)
            except ssl.SSLError:
                raise
            except OSError:
                continue
        return await asyncio.open_connection(addresses[-1], url.port, **options)


def _describe_error(error: OSError) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError() | BrokenPipeError():
            return "the receiver closed the connection without a response"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
    return error.strerror or str(error) or repr(error)
