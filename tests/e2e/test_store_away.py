"""A database that is away for a while: who asks goes on when it is back, or is told when to come again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from e2e.client import Client as Run
from e2e.either import Either
from e2e.rig import PATIENCE, Rota, Stage, eventually
from postgres_server import Server, own_server
from rota import AsyncClient, Client


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


def refused(rota: Rota, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The problem that it is refused with, which says when to come again."""
    with closing(rota.connection()) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        problem: dict[str, Any] = json.loads(answer.read())
        assert (answer.status, answer.getheader("Retry-After")) == (503, "1"), problem
    return problem


def turned_away(rota: Rota, method: str, route: str) -> int:
    """How many requests were answered with 503: nothing else goes wrong here."""
    begin = f'rota_http_requests_total{{method="{method}",route="{route}",code="5xx"}} '
    lines = rota.api("GET", "/metrics").body.decode().splitlines()
    return sum(int(float(line.removeprefix(begin))) for line in lines if line.startswith(begin))


def test_everybody_goes_on_over_a_restart_of_the_server(rota: Rota, server: Server, stage: Stage) -> None:
    rota.ask("config", "set", "store.url", server.url())
    rota.ask("config", "set", "pools.global", "4")
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    before = [rota.begin("wait", job), rota.begin("logs", "--follow", job)]
    direct = Run(rota, *stage.actor("direct"))
    assert stage.hear() == ["direct begins"]
    server.stop()

    assert refused(rota, "GET", "/api/jobs")["code"] == "store-away"
    wanted = refused(rota, "POST", "/api/jobs", {"command": ["true"]})
    assert wanted["code"] == "store-away"
    assert "is away" in wanted["detail"]
    assert any("is away" in each for each in rota.status()["trouble"])
    meanwhile = [rota.begin("submit", "--", "echo", "submitted"), rota.begin("list")]
    waiting = Run(rota, "--", "echo", "at last")
    waiting.says("waiting for it")

    async def submit_from_python() -> list[str]:
        async with asyncio.timeout(PATIENCE):
            clients = [Either(kind(home=rota.home)) for kind in (Client, AsyncClient)]
            asked = [asyncio.ensure_future(_submitted(client)) for client in clients]
            await asyncio.to_thread(eventually, lambda: turned_away(rota, "POST", "/api/jobs") >= 6)
            await asyncio.to_thread(server.start)
            return [await each for each in asked]

    jobs = asyncio.run(submit_from_python())
    submitted, listed = (rota.end(each) for each in meanwhile)
    assert (submitted.code, listed.code) == (0, 0), (submitted, listed)
    assert "is away" in submitted.err
    assert submitted.err.count("waiting for it") == 1
    assert waiting.end().out == "at last\n"
    stage.release("job")
    stage.release("direct")
    direct.end()
    for each in before:
        assert rota.end(each).code == 0
    assert sorted([*jobs, *submitted.lines]) == ["job-2", "job-3", "job-4"], "each once"


async def _submitted(client: Any) -> str:
    return str((await client.submit(["true"])).job.id)
