"""A database outage: clients continue after it, or get a 503 with Retry-After."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from rota import AsyncClient, Client
from tests.e2e.awaitable_client import AwaitableClient
from tests.e2e.direct_client import DirectClient
from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually
from tests.postgres_server import Server, own_server


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


def read_unavailable(rota: Rota, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Send a request and check that it gets 503 with Retry-After; return the problem."""
    with closing(rota.connection()) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        problem: dict[str, Any] = json.loads(response.read())
        assert (response.status, response.getheader("Retry-After")) == (503, "1"), problem
    return problem


def count_unavailable_responses(rota: Rota, method: str, route: str) -> int:
    """Number of 5xx responses of a route, which are all 503 in this test."""
    prefix = f'rota_http_requests_total{{method="{method}",route="{route}",code="5xx"}} '
    lines = rota.api("GET", "/metrics").body.decode().splitlines()
    return sum(int(float(line.removeprefix(prefix))) for line in lines if line.startswith(prefix))


def test_clients_survive_a_database_restart(rota: Rota, server: Server, children: ChildControl) -> None:
    rota.run("config", "set", "store.url", server.url())
    rota.run("config", "set", "pools.global", "4")
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    waiting_commands = [rota.spawn("wait", job), rota.spawn("logs", "--follow", job)]
    direct = DirectClient(rota, *children.gated("direct"))
    assert children.read_lines() == ["direct begins"]
    server.stop()

    assert read_unavailable(rota, "GET", "/api/jobs")["code"] == "store-unavailable"
    problem = read_unavailable(rota, "POST", "/api/jobs", {"command": ["true"]})
    assert problem["code"] == "store-unavailable"
    assert "is unavailable" in problem["detail"]
    assert any("is unavailable" in error for error in rota.status()["errors"])
    meanwhile = [rota.spawn("submit", "--", "echo", "submitted"), rota.spawn("list")]
    waiting = DirectClient(rota, "--", "echo", "at last")
    waiting.wait_for_stderr("waiting for it")

    async def submit_from_python() -> list[str]:
        async with asyncio.timeout(TIMEOUT):
            clients = [AwaitableClient(kind(home=rota.home)) for kind in (Client, AsyncClient)]
            submitting = [asyncio.ensure_future(_submit(client)) for client in clients]
            await asyncio.to_thread(eventually, lambda: count_unavailable_responses(rota, "POST", "/api/jobs") >= 6)
            await asyncio.to_thread(server.start)
            return [await task for task in submitting]

    jobs = asyncio.run(submit_from_python())
    submitted, listed = (rota.finish(command) for command in meanwhile)
    assert (submitted.code, listed.code) == (0, 0), (submitted, listed)
    assert "is unavailable" in submitted.err
    assert submitted.err.count("waiting for it") == 1
    assert waiting.finish().out == "at last\n"
    children.release("job")
    children.release("direct")
    direct.finish()
    for command in waiting_commands:
        assert rota.finish(command).code == 0
    assert sorted([*jobs, *submitted.lines]) == ["job-2", "job-3", "job-4"], "each submit creates one job"


async def _submit(client: Any) -> str:
    return str((await client.submit(["true"])).job.id)
