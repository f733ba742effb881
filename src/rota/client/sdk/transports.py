"""Transports of the two clients, blocking and for an event loop, over pooled connections.

A client cannot know for certain whether the scheduler has closed an idle connection: it checks before use, but the
connection may close while the request is in flight. So only repeatable requests use pooled connections. Other requests
open a new connection and leave it to the pool.

Sockets are pooled as they are: not registered with an event loop, and without a lock that a fork could leave locked.
The operations of a deque are atomic. A forked child closes the connections of its parent without using them: two
processes on one connection would read each other's responses.

With an event loop, a socket is registered only while a task waits for it, and cancelling the task closes the
connection. So a socket outlives the loop, and a fork of the process does not affect the parent's loop: streams of
asyncio stay registered until the loop ends, and a child process shares the `epoll` of its parent.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit
from weakref import finalize

from rota.client.problem import ConnectionBroken, ResponseTimeout
from rota.client.requests import Request
from rota.client.retrying import RetryingTransport, restart_scheduler
from rota.client.session import BlockingStream, BlockingTransport
from rota.client.transport import NO_RESPONSE_TEXT, HomeSocket, ResponseReader, ResponseStream, encode_request, transmit
from rota.errors import InvalidInput, RotaError, ServiceUnavailable
from rota.home import Home, short_socket_path

_MAX_IDLE_CONNECTIONS = 16
"""Maximum number of idle connections; others are closed. Connections in use are not limited."""
_IDLE_TIMEOUT = 4.0
"""Seconds after which an idle connection is not reused. The scheduler closes it after five."""
DEFAULT_PORT = 7682
T = TypeVar("T")


class _IdleConnection(NamedTuple):
    connection: socket.socket
    process_id: int
    idle_since: float


class ConnectionPool:
    """A pool that threads can share, and tasks of several event loops."""

    def __init__(self) -> None:
        self._idle: deque[_IdleConnection] = deque()
        self._is_closed = False
        finalize(self, _close_all, self._idle)

    def acquire(self) -> socket.socket | None:
        """Return the most recently used idle connection that is usable, or `None`."""
        while (idle := _pop_idle(self._idle)) is not None:
            is_fresh = time.monotonic() - idle.idle_since < _IDLE_TIMEOUT
            if idle.process_id == os.getpid() and is_fresh and _is_idle(idle.connection):
                return idle.connection
            idle.connection.close()
        return None

    def release(self, connection: socket.socket) -> None:
        """Keep the connection for the next request. Its last response has been read to the end."""
        if self._is_closed or len(self._idle) >= _MAX_IDLE_CONNECTIONS:
            connection.close()
        else:
            self._idle.append(_IdleConnection(connection, os.getpid(), time.monotonic()))

    def borrow(self, connection: socket.socket) -> BorrowedConnection:
        """Borrow the connection for one response."""
        return BorrowedConnection(connection, self)

    def close_idle(self) -> None:
        """Close all idle connections."""
        _close_all(self._idle)

    def close(self) -> None:
        """Close all idle connections, and do not keep any further ones."""
        self._is_closed = True
        self.close_idle()


class BorrowedConnection:
    """A connection that is in use for one response."""

    def __init__(self, connection: socket.socket, pool: ConnectionPool) -> None:
        self._connection = connection
        self._pool = pool
        self._process_id = os.getpid()
        self._is_finished = False

    def check_process(self) -> None:
        """Refuse to read a response in a child process that was forked after the request."""
        if os.getpid() != self._process_id:
            raise ConnectionBroken(
                "this response belongs to the parent process; send the request again in this process"
            )

    def mark_broken(self) -> None:
        """Close the idle connections too: a server that closed this one has closed them as well."""
        self._pool.close_idle()

    def finish(self, *, is_reusable: bool) -> None:
        """Return the connection to the pool if it is reusable, otherwise close it."""
        if self._is_finished:
            return
        self._is_finished = True
        if is_reusable and os.getpid() == self._process_id:
            self._pool.release(self._connection)
        else:
            self._connection.close()


def _pop_idle(idle: deque[_IdleConnection]) -> _IdleConnection | None:
    try:
        return idle.pop()
    except IndexError:  # another thread took the last one
        return None


def _close_all(idle: deque[_IdleConnection]) -> None:
    while (idle_connection := _pop_idle(idle)) is not None:
        idle_connection.connection.close()


def _is_idle(connection: socket.socket) -> bool:
    """Return whether the connection is open. Between two requests there is no data, so readable means closed."""
    if isinstance(connection, ssl.SSLSocket) and connection.pending():
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)


class TcpAddress:
    """TCP address of a scheduler, `http://127.0.0.1:7682` or `https://…`, with its token."""

    def __init__(self, url: str, *, token: str | None = None, ca: str | None = None) -> None:
        """Parse the address. `ca` is a file with the certificates to trust instead of the system's."""
        if not isinstance(url, str) or not isinstance(token, str | None):
            raise InvalidInput(f"url and token must be text, such as http://127.0.0.1:{DEFAULT_PORT}")
        try:
            parts = urlsplit(url)
            (parts.hostname or "").encode("idna")
        except ValueError as error:
            raise InvalidInput(f"invalid scheduler URL {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InvalidInput(f"invalid scheduler URL {url!r}; expected a URL such as http://127.0.0.1:{DEFAULT_PORT}")
        try:
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"invalid scheduler URL {url!r}: {error}") from None
        self.host = parts.hostname
        self.port = port or {"http": 80, "https": 443}[parts.scheme]
        self.tls = _make_tls_context(ca) if parts.scheme == "https" else None
        bearer = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
        self.headers: Mapping[str, str] = {"Host": parts.netloc.rpartition("@")[2], **bearer}
        self.display_url = f"{parts.scheme}://{self.headers['Host']}"

    def connect(self, timeout: float | None) -> socket.socket:
        try:
            connection = socket.create_connection((self.host, self.port), timeout)
        except OSError as error:
            raise self.connection_error(error) from None
        disable_nagle(connection)
        if self.tls is None:
            return connection
        try:
            return self.tls.wrap_socket(connection, server_hostname=self.host)
        except OSError as error:
            connection.close()
            raise self.connection_error(error) from None

    def connection_error(self, error: OSError) -> RotaError:
        if isinstance(error, TimeoutError):
            return ResponseTimeout(NO_RESPONSE_TEXT)
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServiceUnavailable(
                f"{self.display_url} is not trusted: {error.verify_message}; pass its certificate authority as ca"
            )
        return ServiceUnavailable(
            f"no scheduler answers at {self.display_url}: {error.strerror or error}; run `rota status` on that machine"
        )


def no_response_hint(address: object) -> str | None:
    """Return a hint for a connection that ends without a response: a server that expects a TLS handshake does not
    answer plain HTTP."""
    if not isinstance(address, TcpAddress) or address.tls is not None:
        return None
    return (
        f"{address.display_url} closed the connection without a response; if it uses TLS, write https:// instead of"
        " http://"
    )


def _make_tls_context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "it has no certificates" if isinstance(error, ssl.SSLError) else error.strerror or error
        raise InvalidInput(f"the ca file {ca} cannot be used: {reason}; pass a file of PEM certificates") from None


def disable_nagle(connection: socket.socket) -> None:
    """Disable Nagle's algorithm: otherwise the end of a request waits until its beginning is acknowledged, which an
    idle server may delay."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class PooledStream(ResponseStream):
    """A response that is being received. Its connection returns to the pool when the response is complete."""

    def __init__(self, connection: socket.socket, pool: ConnectionPool, no_response_hint: str | None) -> None:
        super().__init__(connection, no_response_hint)
        self._borrowed = pool.borrow(connection)

    def receive(self) -> bytes:
        self._borrowed.check_process()
        try:
            return super().receive()
        except ConnectionBroken:
            self._borrowed.mark_broken()
            raise

    def close(self) -> None:
        self._borrowed.finish(is_reusable=self.is_connection_reusable)


class PooledBlockingTransport(BlockingTransport):
    def __init__(
        self, address: HomeSocket | TcpAddress, home: Home | None, *, autostart: bool, outage_timeout: float | None
    ) -> None:
        super().__init__(address, home, autostart=autostart, outage_timeout=outage_timeout)
        self.tolerates_outage = outage_timeout != 0
        self.pool = ConnectionPool()

    async def send(self, request: Request) -> BlockingStream:
        data = encode_request(request, self._address.headers, keep_alive=True)
        connection = self.pool.acquire() if request.is_repeatable else None
        if connection is None:
            connection = self._address.connect(request.timeout)
        else:
            connection.settimeout(request.timeout)
        transmit(connection, data)
        return BlockingStream(PooledStream(connection, self.pool, no_response_hint(self._address)))


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
