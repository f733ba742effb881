"""Where no descriptor is left at all."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from rota.api import entrance
from rota.api.entrance import Entrance


class Exhausted(socket.socket):
    """A listening socket of a process that has no descriptor left, for a while."""

    misses = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.misses:
            self.misses -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"welcome")
        transport.close()


async def said(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def test_who_cannot_be_let_in_waits_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(entrance, "_PAUSE", 0.01)
    monkeypatch.chdir(tmp_path)

    async def steps() -> None:
        listening = Exhausted(socket.AF_UNIX)
        listening.bind("door")
        listening.listen(100)
        listening.misses = 5
        door = Entrance(listening, Greeting, highest=1 << 20)
        assert await asyncio.gather(*(said(Path("door")) for _ in range(20))) == [b"welcome"] * 20
        assert listening.misses == 0
        door.close()
        assert listening.fileno() == -1

    asyncio.run(steps())
    (record,) = caplog.records
    assert record.getMessage() == (
        "nobody can be let in: Too many open files; tried again every second; `ulimit -n` limits it"
    )


def test_beyond_what_is_kept_back_they_are_told_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps() -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("door")
        listening.listen()
        door = Entrance(listening, Greeting, highest=0, word=b"not now")
        assert await said(Path("door")) == b"not now"
        door.close()

    asyncio.run(steps())
