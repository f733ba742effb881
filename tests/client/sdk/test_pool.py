"""Reuse of connections. A broken connection never causes a request to take effect twice."""

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

from rota import AsyncClient, Client, Conflict, NotFound, ServiceUnavailable
from rota.client import retrying
from rota.client.sdk import transports
from tests.cli.fake_scheduler import RecordedRequest, chunked, json_response, problem
from tests.client.sdk.keep_alive_server import KeepAliveServer, respond_healthy
from tests.e2e.awaitable_client import AwaitableClient

ClientType = type[Client | AsyncClient]

BATCH_RESPONSE = json_response({"result": "submitted", "jobs": []})


def run_steps(
    client_type: ClientType, server: KeepAliveServer, steps: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        client = client_type(home=server.home.root, autostart=False)
        await steps(AwaitableClient(client))
        closed = client.close()
        if closed is not None:
            await closed

    asyncio.run(run())


def test_requests_share_a_connection(server: KeepAliveServer, client_type: ClientType) -> None:
    async def steps(client: Any) -> None:
        for _ in range(3):
            await client.health()

    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 0, 0]
    assert "connection" not in server.requests[0][1].headers


def test_connection_is_reused_after_a_refusal(server: KeepAliveServer, client_type: ClientType) -> None:
    async def steps(client: Any) -> None:
        for _ in range(2):
            with pytest.raises(NotFound):
                await client.job("job-9")

    server.reply = lambda _: problem(404, "not-found", "no such job")
    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 0]


def test_closed_idle_connection_is_not_used(
    server: KeepAliveServer, client_type: ClientType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed idle connection does not count as an attempt."""
    monkeypatch.setattr(retrying, "_MAX_ATTEMPTS", 1)

    async def steps(client: Any) -> None:
        await client.health()
        server.disconnect_all()
        await client.submit_many([])

    server.reply = lambda request: respond_healthy(request) if request.method == "GET" else BATCH_RESPONSE
    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 1]


def test_request_with_key_is_repeated_with_the_same_key(server: KeepAliveServer, client_type: ClientType) -> None:
    lost: list[RecordedRequest] = []

    def reply(request: RecordedRequest) -> bytes:
        if request.method == "GET":
            return respond_healthy(request)
        if not lost:
            lost.append(request)
            return b""
        return BATCH_RESPONSE

    async def steps(client: Any) -> None:
        await client.health()
        await client.submit_many([])

    server.reply = reply
    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 0, 1]
    assert len({request.headers["idempotency-key"] for _, request in server.requests[1:]}) == 1


def test_unrepeatable_request_uses_a_new_connection(server: KeepAliveServer, client_type: ClientType) -> None:
    """After a broken connection it is unknown whether the request was received, so it is not repeated."""

    async def steps(client: Any) -> None:
        await client.health()
        with pytest.raises(ServiceUnavailable, match="may have been carried out"):
            await client.move("job-1", first=True)

    server.reply = lambda request: respond_healthy(request) if request.method == "GET" else b""
    run_steps(client_type, server, steps)
    assert [(number, request.method) for number, request in server.requests] == [(0, "GET"), (1, "POST")]


def test_connection_of_unrepeatable_request_is_reused(server: KeepAliveServer, client_type: ClientType) -> None:
    async def steps(client: Any) -> None:
        with pytest.raises(Conflict):
            await client.move("job-1", first=True)
        await client.health()

    server.reply = lambda request: (
        respond_healthy(request) if request.method == "GET" else problem(409, "conflict", "not now")
    )
    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 0]


def test_old_idle_connection_is_not_used(
    server: KeepAliveServer, client_type: ClientType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler is about to close an old connection."""

    async def steps(client: Any) -> None:
        await client.health()
        monkeypatch.setattr(transports, "_IDLE_TIMEOUT", 0.0)
        await client.health()

    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 1]


@pytest.mark.parametrize(
    "reply",
    [
        json_response({"status": "ok", "pid": 1}).replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
        json_response({"status": "ok", "pid": 1}).replace(b"HTTP/1.1", b"HTTP/1.0"),
        json_response({"status": "ok", "pid": 1}) + b"more",
    ],
    ids=["connection-close", "http-1.0", "surplus-bytes"],
)
def test_unusable_connection_is_not_kept(server: KeepAliveServer, client_type: ClientType, reply: bytes) -> None:
    async def steps(client: Any) -> None:
        await client.health()
        await client.health()

    server.reply = lambda _: reply
    run_steps(client_type, server, steps)
    assert server.connection_numbers == [0, 1]


def test_threads_share_a_client(server: KeepAliveServer) -> None:
    """Each thread gets the responses of its own requests. Connections are reused between threads."""
    barrier = threading.Barrier(4)

    def send_requests(n: int) -> bool:
        barrier.wait()
        return all(client.why(f"job-{n}-{m}").job == f"job-{n}-{m}" for m in range(50))

    server.reply = lambda request: json_response(
        {"job": request.target.split("/")[3], "status": "QUEUED", "wait": None, "text": "", "warnings": []}
    )
    with Client(home=server.home.root) as client, ThreadPoolExecutor(4) as threads:
        assert all(threads.map(send_requests, range(4)))
    assert len(server.requests) == 200
    assert len(set(server.connection_numbers)) <= 8


def test_connection_outlives_its_event_loop(server: KeepAliveServer) -> None:
    client = AsyncClient(home=server.home.root)
    asyncio.run(client.health())
    asyncio.run(client.health())
    asyncio.run(client.close())
    assert server.connection_numbers == [0, 0]


FORK_SCRIPT = """
import asyncio, os, sys
import rota

client = getattr(rota, sys.argv[1])(home=sys.argv[2], autostart=False)
step = asyncio.run if isinstance(client, rota.AsyncClient) else lambda result: result
step(client.health())
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
step(client.health())
step(client.close())
"""

FORK_WHILE_READING_SCRIPT = """
import os, sys
import rota

with rota.Client(home=sys.argv[2], autostart=False) as client:
    chunks = client.logs("job-1", follow=True)
    first = next(chunks)
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    assert first + b"".join(chunks) == bytes(1 << 18)
"""


def run_script(script: str, client_type: ClientType, server: KeepAliveServer) -> None:
    command = [sys.executable, "-W", "error", "-c", script, client_type.__name__, server.home.directory]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr == ""


def test_forked_child_does_not_use_connections_of_its_parent(server: KeepAliveServer, client_type: ClientType) -> None:
    run_script(FORK_SCRIPT, client_type, server)
    assert server.connection_numbers == [0, 1, 0]


def test_forked_child_does_not_read_response_of_its_parent(server: KeepAliveServer) -> None:
    """The child requests the rest of the log itself."""

    def respond_with_rest(request: RecordedRequest) -> bytes:
        offset = int(request.target.partition("offset=")[2].partition("&")[0])
        return chunked(bytes((1 << 18) - offset), b"")

    server.reply = respond_with_rest
    run_script(FORK_WHILE_READING_SCRIPT, Client, server)
    assert server.connection_numbers == [0, 1]


def test_unclosed_client_leaks_no_socket(server: KeepAliveServer) -> None:
    """Warnings are errors: a socket that the garbage collector closes raises a ResourceWarning."""
    Client(home=server.home.root).health()
    gc.collect()

    async def leave_open() -> None:
        await AsyncClient(home=server.home.root).health()

    asyncio.run(leave_open())
    gc.collect()


def test_closed_client_sends_without_reuse(server: KeepAliveServer) -> None:
    client = Client(home=server.home.root)
    client.close()
    client.health()
    client.health()
    assert server.connection_numbers == [0, 1]


def test_idle_connections_are_limited(server: KeepAliveServer) -> None:
    """The number of connections in use is unlimited."""

    async def steps() -> None:
        async with AsyncClient(home=server.home.root) as client:
            await asyncio.gather(*(client.health() for _ in range(40)))
            assert len(client._pool._idle) == 16

    def respond_slowly(request: RecordedRequest) -> bytes:
        while len(server.requests) < 40:
            time.sleep(0.001)
        return respond_healthy(request)

    server.reply = respond_slowly
    asyncio.run(steps())
    assert len(set(server.connection_numbers)) == 40
