"""Transport for an event loop, over pooled connections. Cancelling a task closes its connection.

A socket is registered with the loop only while a task waits for it. So it outlives the loop, and a fork of the process
does not affect the parent's loop: streams of asyncio stay registered until the loop ends, and a child process shares
the `epoll` of its parent.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rota.client.problem import ConnectionBroken, ResponseTimeout
from rota.client.requests import Request
from rota.client.retrying import RetryingTransport, restart_scheduler
from rota.client.transport import NO_RESPONSE_TEXT, HomeSocket, ResponseReader, encode_request
from rota.home import Home, short_socket_path
from rota.sdk.address import TcpAddress, disable_nagle, no_response_hint
from rota.sdk.pool import ConnectionPool

T = TypeVar("T")


class AsyncResponseStream(ResponseReader):
    """A response that is being received. Its connection returns to the pool when the response is complete."""

    def __init__(
        self, connection: socket.socket, pool: ConnectionPool, timeout: float | None, no_response_hint: str | None
    ) -> None:
        super().__init__(no_response_hint)
        self._connection = connection
        self._borrowed = pool.borrow(connection)
        self._timeout = timeout

    async def receive(self) -> bytes:
        self._borrowed.check_process()
        try:
            async with asyncio.timeout(self._timeout):
                data = await _run_when_ready(self._connection, partial(self._connection.recv, 65_536))
        except TimeoutError:
            raise ResponseTimeout(NO_RESPONSE_TEXT) from None
        except OSError:
            data = b""
        try:
            return self.feed(data)
        except ConnectionBroken:
            self._borrowed.mark_broken()
            raise

    def close(self) -> None:
        self._borrowed.finish(is_reusable=self.is_connection_reusable)


class AsyncTransport(RetryingTransport):
    def __init__(
        self, address: HomeSocket | TcpAddress, home: Home | None, *, autostart: bool, outage_timeout: float | None
    ) -> None:
        super().__init__(autostart=autostart and home is not None, outage_timeout=outage_timeout)
        self.tolerates_outage = outage_timeout != 0
        self._address = address
        self._home = home
        self.pool = ConnectionPool()

    async def send(self, request: Request) -> AsyncResponseStream:
        data = encode_request(request, self._address.headers, keep_alive=True)
        connection = self.pool.acquire() if request.is_repeatable else None
        try:
            async with asyncio.timeout(request.timeout):
                if connection is None:
                    connection = await self._connect()
                await _send_all(connection, data)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, TimeoutError):
                raise ResponseTimeout(NO_RESPONSE_TEXT) from None
            raise
        return AsyncResponseStream(connection, self.pool, request.timeout, no_response_hint(self._address))

    async def _connect(self) -> socket.socket:
        try:
            if isinstance(self._address, TcpAddress):
                return await _connect_tcp(self._address)
            return await _connect_home(self._address.home)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._address.connection_error(error) from None

    async def start_scheduler(self) -> None:
        assert self._home is not None  # noqa: S101 - autostart requires a home
        await asyncio.to_thread(
            restart_scheduler, self._home, has_answered=self.has_answered, tolerates_outage=self.tolerates_outage
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _connect_home(home: Home) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with short_socket_path(home.directory, "rota.sock") as address:
            await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect_tcp(address: TcpAddress) -> socket.socket:
    """Connect to the first of the host's addresses that accepts."""
    loop = asyncio.get_running_loop()
    last_error = OSError(f"{address.host} has no address")
    for family, kind, protocol, _, socket_address in await loop.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)
        try:
            await loop.sock_connect(connection, socket_address)
            disable_nagle(connection)
            return connection if address.tls is None else await _wrap_tls(connection, address.tls, address.host)
        except ssl.SSLError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            last_error = error
        except BaseException:
            connection.close()
            raise
    raise last_error


async def _wrap_tls(connection: socket.socket, tls: ssl.SSLContext, host: str) -> socket.socket:
    tls_connection = tls.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        await _run_when_ready(tls_connection, tls_connection.do_handshake)
    except BaseException:
        tls_connection.close()
        raise
    return tls_connection


async def _send_all(connection: socket.socket, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[await _run_when_ready(connection, partial(connection.send, rest), is_write=True) :]
    except ConnectionError:
        pass  # A server that refuses early may close before it has read everything. Its response can still be read.


async def _run_when_ready(connection: socket.socket, operation: Callable[[], T], *, is_write: bool = False) -> T:
    """Return the result of the operation as soon as the socket is ready for it. TLS may have to write in order to
    read."""
    while True:
        try:
            return operation()
        except ssl.SSLWantReadError:
            is_write_needed = False
        except ssl.SSLWantWriteError:
            is_write_needed = True
        except BlockingIOError:
            is_write_needed = is_write
        await _wait_until_ready(connection, for_write=is_write_needed)


async def _wait_until_ready(connection: socket.socket, *, for_write: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if for_write else (loop.add_reader, loop.remove_reader)
    add(connection, _resolve, ready)
    try:
        await ready
    finally:
        remove(connection)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
