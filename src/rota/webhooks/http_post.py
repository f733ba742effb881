"""Delivery of one message over HTTP/1.1, to a checked address, with one deadline and a limited response.

h11 handles the protocol, and this module the connection. Rota therefore connects to the address that it has checked,
even if the name resolves differently a moment later. One deadline covers connect, TLS, headers and body, so that a slow
receiver cannot hold a delivery. Proxies, cookies, redirects and connection pools are not used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

import h11
import msgspec

from rota import __version__
from rota.blocking import start_thread
from rota.duration import format_duration
from rota.errors import InvalidInput, RotaError
from rota.webhooks.model import IpNetwork, Url, WebhookPolicy, parse_literal, parse_url, refusal_reason

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Function that returns the addresses of a name, or raises `OSError`."""
_ADDRESS_TIMEOUT = 5.0
"""Seconds for the connection to an address if there are further addresses to try."""
_MAX_BODY_BYTES = 8192
"""Number of bytes of a response body that are read."""
_MAX_RESPONSE_BYTES = 1 << 16
"""Total number of bytes that are read. The limit also ends an endless response."""
_MAX_EXCERPT_LENGTH = 200


class PostResult(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None = None
    """HTTP status; None without a response."""
    error: str | None = None
    """Reason why the delivery failed; None if the receiver accepted the message."""


class MessagePoster(Protocol):
    """Port for the delivery of messages."""

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: WebhookPolicy, /) -> PostResult:
        """Send the message once. Failures are results, not exceptions."""
        ...


class AddressNotAllowed(InvalidInput):
    """The host has no permitted address."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve the name in a thread of its own, so that a hanging resolver blocks neither other calls nor the exit."""

    def resolve_blocking() -> Sequence[str]:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(str(error)) from None
        return list(dict.fromkeys(str(row[4][0]) for row in rows))

    return await start_thread(resolve_blocking, name="rota-resolve")


async def resolve_permitted(
    host: str, port: int, allow: Sequence[IpNetwork], resolver: Resolver = resolve
) -> Sequence[str]:
    """Return the permitted addresses of the host, or raise `AddressNotAllowed` if there are none."""
    literal = parse_literal(host)
    addresses = [str(literal)] if literal is not None else await resolver(host, port)
    refusals = {address: refusal_reason(ip_address(address), allow) for address in addresses}
    permitted = [address for address, reason in refusals.items() if reason is None]
    if not permitted:
        reasons = "; ".join(reason for reason in refusals.values() if reason is not None)
        raise AddressNotAllowed(reasons or f"{host} has no address")
    return permitted


class HttpMessagePoster:
    def __init__(self, resolver: Resolver = resolve) -> None:
        self._resolver = resolver
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: WebhookPolicy) -> PostResult:
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


class HttpExchange:
    """Exchange over one connection: the request, and the part of the response that matters."""

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
