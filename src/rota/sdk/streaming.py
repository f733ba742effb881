"""Carrying asks out on an event loop. A task that is cancelled closes its connection."""

from __future__ import annotations

import asyncio
import socket

from rota.client.ask import Ask
from rota.client.carry import Carrier, bring_back
from rota.client.problem import NoAnswer
from rota.client.transport import SILENT, HomeSocket, Reading, request_bytes
from rota.home import Home, short_address
from rota.sdk.address import Address

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Received(Reading):
    """One answer as it comes in."""

    def __init__(self, connection: Connection, patience: float | None) -> None:
        super().__init__()
        self._reader, self._writer = connection
        self._patience = patience

    async def receive(self) -> bytes:
        try:
            async with asyncio.timeout(self._patience):
                data = await self._reader.read(65_536)
        except TimeoutError:
            raise NoAnswer(SILENT) from None
        except OSError:
            data = b""
        return self.take(data)

    def close(self) -> None:
        # At once: whoever cancels does not wait for what is not needed any more to be sent.
        self._writer.transport.abort()


class Streaming(Carrier):
    def __init__(self, place: HomeSocket | Address, home: Home | None, *, starts: bool) -> None:
        super().__init__(starts=starts and home is not None)
        self._place = place
        self._home = home

    async def send(self, ask: Ask) -> Received:
        request = request_bytes(ask, self._place.headers)
        try:
            async with asyncio.timeout(ask.patience):
                connection = await self._connect()
        except TimeoutError:
            raise NoAnswer(SILENT) from None
        # What the server has not read yet waits in memory: its answer may come before it has read all.
        connection[1].write(request)
        return Received(connection, ask.patience)

    async def _connect(self) -> Connection:
        try:
            if isinstance(self._place, Address):
                return await asyncio.open_connection(self._place.host, self._place.port, ssl=self._place.tls)
            return await _open(self._place.home)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._place.explain(error) from None

    async def start(self) -> None:
        assert self._home is not None  # noqa: S101 - else nothing is started
        await asyncio.to_thread(bring_back, self._home, answered=self.answered)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _open(home: Home) -> Connection:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with short_address(home.directory, "rota.sock") as address:
            await asyncio.get_running_loop().sock_connect(connection, address)
        return await asyncio.open_unix_connection(sock=connection)
    except BaseException:
        connection.close()
        raise
