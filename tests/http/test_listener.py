"""Listeners of a process without free descriptors."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from rota.http import server
from rota.http.server import Listener


class ExhaustedSocket(socket.socket):
    """Listening socket of a process that has no free descriptor for a while."""

    failure_count = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.failure_count:
            self.failure_count -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class GreetingProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"welcome")
        transport.close()


async def read_greeting(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def test_connections_wait_without_descriptors_and_one_notice_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_ACCEPT_RETRY_DELAY", 0.01)
    monkeypatch.chdir(tmp_path)

    async def act() -> None:
        listening = ExhaustedSocket(socket.AF_UNIX)
        listening.bind("socket")
        listening.listen(100)
        listening.failure_count = 5
        listener = Listener(listening, GreetingProtocol, max_descriptor=1 << 20)
        assert await asyncio.gather(*(read_greeting(Path("socket")) for _ in range(20))) == [b"welcome"] * 20
        assert listening.failure_count == 0
        listener.close()
        assert listening.fileno() == -1

    asyncio.run(act())
    (record,) = caplog.records
    assert record.getMessage() == (
        "cannot accept connections, retrying every second: Too many open files; `ulimit -n` sets the limit"
    )


def test_connection_above_the_descriptor_limit_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def act() -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("socket")
        listening.listen()
        listener = Listener(listening, GreetingProtocol, max_descriptor=0, rejection=b"not now")
        assert await read_greeting(Path("socket")) == b"not now"
        listener.close()

    asyncio.run(act())
