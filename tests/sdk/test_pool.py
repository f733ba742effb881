"""Connections are kept between requests, and nothing is done twice because one of them broke."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cli.stand_in import Request, answer, chunked, problem
from e2e.either import Either
from rota import AsyncClient, Client, Conflict, NotFound, Unavailable
from rota.client import carry
from rota.sdk import pool
from sdk.lasting import Lasting, healthy

Kind = type[Client | AsyncClient]

BATCH = answer({"result": "submitted", "jobs": []})


def play(kind: Kind, server: Lasting, steps: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        client = kind(home=server.home.root, starts=False)
        await steps(Either(client))
        closed = client.close()
        if closed is not None:
            await closed

    asyncio.run(whole())


def test_requests_share_a_connection(server: Lasting, kind: Kind) -> None:
    async def steps(client: Any) -> None:
        for _ in range(3):
            await client.health()

    play(kind, server, steps)
    assert server.over == [0, 0, 0]
    assert "connection" not in server.came[0][1].headers


def test_a_refusal_leaves_its_connection_good(server: Lasting, kind: Kind) -> None:
    async def steps(client: Any) -> None:
        for _ in range(2):
            with pytest.raises(NotFound):
                await client.job("job-9")

    server.reply = lambda _: problem(404, "not-found", "no such job")
    play(kind, server, steps)
    assert server.over == [0, 0]


def test_one_that_was_closed_meanwhile_is_not_used(
    server: Lasting, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent over it: it does not even count as a try."""
    monkeypatch.setattr(carry, "_TRIES", 1)

    async def steps(client: Any) -> None:
        await client.health()
        server.hang_up()
        await client.submit_many([])

    server.reply = lambda request: healthy(request) if request.method == "GET" else BATCH
    play(kind, server, steps)
    assert server.over == [0, 1]


def test_one_that_closes_under_a_request_with_a_key_has_it_sent_again_with_the_same(
    server: Lasting, kind: Kind
) -> None:
    lost: list[Request] = []

    def reply(request: Request) -> bytes:
        if request.method == "GET":
            return healthy(request)
        if not lost:
            lost.append(request)
            return b""
        return BATCH

    async def steps(client: Any) -> None:
        await client.health()
        await client.submit_many([])

    server.reply = reply
    play(kind, server, steps)
    assert server.over == [0, 0, 1]
    assert len({request.headers["idempotency-key"] for _, request in server.came[1:]}) == 1


def test_what_must_not_be_sent_twice_has_a_connection_of_its_own(server: Lasting, kind: Kind) -> None:
    """Where it breaks, nobody knows whether it was heard, so it is not sent again."""

    async def steps(client: Any) -> None:
        await client.health()
        with pytest.raises(Unavailable, match="may have been carried out"):
            await client.move("job-1", first=True)

    server.reply = lambda request: healthy(request) if request.method == "GET" else b""
    play(kind, server, steps)
    assert [(number, request.method) for number, request in server.came] == [(0, "GET"), (1, "POST")]


def test_it_leaves_its_connection_for_others(server: Lasting, kind: Kind) -> None:
    async def steps(client: Any) -> None:
        with pytest.raises(Conflict):
            await client.move("job-1", first=True)
        await client.health()

    server.reply = lambda request: healthy(request) if request.method == "GET" else problem(409, "conflict", "not now")
    play(kind, server, steps)
    assert server.over == [0, 0]


def test_one_that_is_old_is_not_used(server: Lasting, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is about to close it."""

    async def steps(client: Any) -> None:
        await client.health()
        monkeypatch.setattr(pool, "_IDLE", 0.0)
        await client.health()

    play(kind, server, steps)
    assert server.over == [0, 1]


@pytest.mark.parametrize(
    "reply",
    [
        answer({"status": "ok", "pid": 1}).replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
        answer({"status": "ok", "pid": 1}).replace(b"HTTP/1.1", b"HTTP/1.0"),
        answer({"status": "ok", "pid": 1}) + b"more",
    ],
    ids=["said", "old", "surplus"],
)
def test_one_that_is_no_good_is_not_kept(server: Lasting, kind: Kind, reply: bytes) -> None:
    async def steps(client: Any) -> None:
        await client.health()
        await client.health()

    server.reply = lambda _: reply
    play(kind, server, steps)
    assert server.over == [0, 1]


def test_threads_share_a_client(server: Lasting) -> None:
    """Each answer is that of its own request, and no more connections are made than there are at once."""
    together = threading.Barrier(4)

    def ask(n: int) -> bool:
        together.wait()
        return all(client.why(f"job-{n}-{m}").job == f"job-{n}-{m}" for m in range(50))

    server.reply = lambda request: answer(
        {"job": request.target.split("/")[3], "status": "QUEUED", "wait": None, "text": "", "warnings": []}
    )
    with Client(home=server.home.root) as client, ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(4)))
    assert len(server.came) == 200
    assert len(set(server.over)) <= 8


def test_a_connection_outlives_its_event_loop(server: Lasting) -> None:
    client = AsyncClient(home=server.home.root)
    asyncio.run(client.health())
    asyncio.run(client.health())
    asyncio.run(client.close())
    assert server.over == [0, 0]


FORKS = """
import asyncio, os, sys
import rota

client = getattr(rota, sys.argv[1])(home=sys.argv[2], starts=False)
step = asyncio.run if isinstance(client, rota.AsyncClient) else lambda answer: answer
step(client.health())
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
step(client.health())
step(client.close())
"""

FORKS_WHILE_READING = """
import os, sys
import rota

with rota.Client(home=sys.argv[2], starts=False) as client:
    pieces = client.logs("job-1", follow=True)
    read = next(pieces)
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    assert read + b"".join(pieces) == bytes(1 << 18)
"""


def run_script(script: str, kind: Kind, server: Lasting) -> None:
    words = [sys.executable, "-W", "error", "-c", script, kind.__name__, server.home.directory]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stderr == ""


def test_a_child_does_not_use_the_connections_of_its_parent(server: Lasting, kind: Kind) -> None:
    run_script(FORKS, kind, server)
    assert server.over == [0, 1, 0]


def test_a_child_does_not_read_the_answer_of_its_parent(server: Lasting) -> None:
    """It asks for the rest itself."""

    def rest(request: Request) -> bytes:
        offset = int(request.target.partition("offset=")[2].partition("&")[0])
        return chunked(bytes((1 << 18) - offset), b"")

    server.reply = rest
    run_script(FORKS_WHILE_READING, Client, server)
    assert server.over == [0, 1]


def test_a_client_that_nobody_closes_leaves_nothing(server: Lasting) -> None:
    """Warnings are errors here: a socket that is left to the garbage collector gives one."""
    Client(home=server.home.root).health()
    gc.collect()

    async def forgetful() -> None:
        await AsyncClient(home=server.home.root).health()

    asyncio.run(forgetful())
    gc.collect()


def test_a_closed_client_keeps_nothing(server: Lasting) -> None:
    client = Client(home=server.home.root)
    client.close()
    client.health()
    client.health()
    assert server.over == [0, 1]


def test_only_so_many_are_kept(server: Lasting) -> None:
    """For a moment there may be any number."""

    async def steps() -> None:
        async with AsyncClient(home=server.home.root) as client:
            await asyncio.gather(*(client.health() for _ in range(40)))
            assert len(client._pool._kept) == 16

    def slowly(request: Request) -> bytes:
        while len(server.came) < 40:
            time.sleep(0.001)
        return healthy(request)

    server.reply = slowly
    asyncio.run(steps())
    assert len(set(server.over)) == 40
