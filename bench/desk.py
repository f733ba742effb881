"""The least that a durable submit can cost over HTTP: a process that takes a request, stores it in a row, and answers
as much as Rota does. What is asked at the same time shares a FULL commit. There is nothing else: no check, no queue, no
scheduler behind it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import sqlite3
from pathlib import Path
from typing import Any

from bench.live import Client, by_connections, in_batches, one_by_one

_FILLING = "." * 1000
"""As much as Rota tells of a job."""


class Desk:
    def __init__(self, home: Path) -> None:
        home.mkdir()
        self._home = home
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(home / "rota.sock"))
        listening.listen(128)
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(listening, home), daemon=True)
        process.start()
        listening.close()
        self._process = process
        self._client = Client(home)

    def close(self) -> None:
        self._process.terminate()
        self._process.join()

    def batch_submits(self, count: int) -> float:
        return in_batches(self._client, count)

    def single_submits(self, count: int, clients: int) -> float:
        return one_by_one(self._home, count, clients)

    def connected_submits(self, count: int, connections: int) -> float:
        return by_connections(self._home, count, connections)


def _serve(listening: socket.socket, home: Path) -> None:
    async def serve() -> None:
        desk = _Store(home / "desk.db")
        server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(desk), sock=listening)
        await server.serve_forever()

    asyncio.run(serve())


class _Store:
    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, text TEXT)")
        self._asked: list[tuple[_Connection, list[Any]]] = []
        self._last = 0

    def ask(self, who: _Connection, jobs: list[Any]) -> None:
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._store)
        self._asked.append((who, jobs))

    def _store(self) -> None:
        asked, self._asked = self._asked, []
        answers = []
        self._database.execute("BEGIN")
        for who, jobs in asked:
            ids = range(self._last + 1, self._last + len(jobs) + 1)
            self._last += len(jobs)
            rows = [(number, json.dumps(job)) for number, job in zip(ids, jobs, strict=True)]
            self._database.executemany("INSERT INTO job VALUES (?, ?)", rows)
            answers.append((who, list(ids)))
        self._database.execute("COMMIT")
        for who, told in answers:
            who.answer(told)


class _Connection(asyncio.Protocol):
    def __init__(self, store: _Store) -> None:
        self._store = store
        self._given = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream it is one
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._given += data
        head, end, body = self._given.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if not end or len(body) < length:
            return
        self._given.clear()
        asked = json.loads(body)
        self._store.ask(self, asked.get("jobs") or [asked])

    def answer(self, jobs: list[int]) -> None:
        body = json.dumps({"jobs": jobs, "more": _FILLING}).encode()
        head = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)
