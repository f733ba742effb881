"""Blocking transport over pooled connections."""

from __future__ import annotations

import socket

from rota.client.problem import ConnectionBroken
from rota.client.requests import Request
from rota.client.session import BlockingStream, BlockingTransport
from rota.client.transport import HomeSocket, ResponseStream, encode_request, transmit
from rota.home import Home
from rota.sdk.address import TcpAddress, no_response_hint
from rota.sdk.pool import ConnectionPool


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
