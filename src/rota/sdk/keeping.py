"""Carrying asks out for a program that blocks, over connections that are kept."""

from __future__ import annotations

import socket

from rota.client.ask import Ask
from rota.client.problem import Broken
from rota.client.session import Blocking, Pulled
from rota.client.transport import HomeSocket, Stream, request_bytes, transmit
from rota.home import Home
from rota.sdk.address import Address, unheard_at
from rota.sdk.pool import Pool


class Lent(Stream):
    """One answer as it comes in; its connection goes back when it is whole."""

    def __init__(self, connection: socket.socket, pool: Pool, unheard: str | None) -> None:
        super().__init__(connection, unheard)
        self._loan = pool.lend(connection)

    def receive(self) -> bytes:
        self._loan.check()
        try:
            return super().receive()
        except Broken:
            self._loan.broke()
            raise

    def close(self) -> None:
        self._loan.end(is_good=self.can_go_on)


class Keeping(Blocking):
    def __init__(self, place: HomeSocket | Address, home: Home | None, *, starts: bool, away: float | None) -> None:
        super().__init__(place, home, starts=starts, away=away)
        self.bears = away != 0
        self.pool = Pool()

    async def send(self, ask: Ask) -> Pulled:
        request = request_bytes(ask, self._place.headers, keeps=True)
        connection = self.pool.take() if ask.is_repeatable else None
        if connection is None:
            connection = self._place.connect(ask.patience)
        else:
            connection.settimeout(ask.patience)
        transmit(connection, request)
        return Pulled(Lent(connection, self.pool, unheard_at(self._place)))
