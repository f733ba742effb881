"""Carrying asks out on an event loop, over connections that are kept. A task that is cancelled closes its connection.

A socket is registered with the loop only while somebody waits for it. So it outlives the loop, and a fork of the
process leaves the parent's loop alone: what asyncio's streams keep is theirs until the loop ends, and the child's
`epoll` is the parent's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rota.client.ask import Ask
from rota.client.carry import Carrier, bring_back
from rota.client.problem import Broken, NoAnswer
from rota.client.transport import SILENT, HomeSocket, Reading, request_bytes
from rota.home import Home, short_address
from rota.sdk.address import Address, unheard_at, without_delay
from rota.sdk.pool import Pool

T = TypeVar("T")


class Received(Reading):
    """One answer as it comes in; its connection goes back when it is whole."""

    def __init__(self, connection: socket.socket, pool: Pool, patience: float | None, unheard: str | None) -> None:
        super().__init__(unheard)
        self._connection = connection
        self._loan = pool.lend(connection)
        self._patience = patience

    async def receive(self) -> bytes:
        self._loan.check()
        try:
            async with asyncio.timeout(self._patience):
                data = await _done(self._connection, partial(self._connection.recv, 65_536))
        except TimeoutError:
            raise NoAnswer(SILENT) from None
        except OSError:
            data = b""
        try:
            return self.take(data)
        except Broken:
            self._loan.broke()
            raise

    def close(self) -> None:
        self._loan.end(is_good=self.can_go_on)


class Streaming(Carrier):
    def __init__(self, place: HomeSocket | Address, home: Home | None, *, starts: bool, away: float | None) -> None:
        super().__init__(starts=starts and home is not None, away=away)
        self.bears = away != 0
        self._place = place
        self._home = home
        self.pool = Pool()

    async def send(self, ask: Ask) -> Received:
        request = request_bytes(ask, self._place.headers, keeps=True)
        connection = self.pool.take() if ask.is_repeatable else None
        try:
            async with asyncio.timeout(ask.patience):
                if connection is None:
                    connection = await self._connect()
                await _transmit(connection, request)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, TimeoutError):
                raise NoAnswer(SILENT) from None
            raise
        return Received(connection, self.pool, ask.patience, unheard_at(self._place))

    async def _connect(self) -> socket.socket:
        try:
            if isinstance(self._place, Address):
                return await _connect_tcp(self._place)
            return await _connect_home(self._place.home)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._place.explain(error) from None

    async def start(self) -> None:
        assert self._home is not None  # noqa: S101 - else nothing is started
        await asyncio.to_thread(bring_back, self._home, answered=self.answered, bears=self.bears)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _connect_home(home: Home) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with short_address(home.directory, "rota.sock") as address:
            await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect_tcp(address: Address) -> socket.socket:
    """To the first of its addresses that answers."""
    loop = asyncio.get_running_loop()
    refusal = OSError(f"{address.host} has no address")
    for family, kind, protocol, _, place in await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)
        try:
            await loop.sock_connect(connection, place)
            without_delay(connection)
            return connection if address.tls is None else await _secured(connection, address.tls, address.host)
        except ssl.SSLError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            refusal = error
        except BaseException:
            connection.close()
            raise
    raise refusal


async def _secured(connection: socket.socket, tls: ssl.SSLContext, host: str) -> socket.socket:
    secured = tls.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
    try:
        await _done(secured, secured.do_handshake)
    except BaseException:
        secured.close()
        raise
    return secured


async def _transmit(connection: socket.socket, request: bytes) -> None:
    rest = memoryview(request)
    try:
        while rest:
            rest = rest[await _done(connection, partial(connection.send, rest), writes=True) :]
    except ConnectionError:
        pass  # A server that refuses early may close before it has read everything: its answer is still there to read.


async def _done(connection: socket.socket, act: Callable[[], T], *, writes: bool = False) -> T:
    """What a step comes to, as soon as the socket lets it be taken. TLS may have to write in order to read."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            wants_writing = False
        except ssl.SSLWantWriteError:
            wants_writing = True
        except BlockingIOError:
            wants_writing = writes
        await _ready(connection, wants_writing=wants_writing)


async def _ready(connection: socket.socket, *, wants_writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    watch, leave = (loop.add_writer, loop.remove_writer) if wants_writing else (loop.add_reader, loop.remove_reader)
    watch(connection, _settle, ready)
    try:
        await ready
    finally:
        leave(connection)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
