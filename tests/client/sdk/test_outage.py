"""A scheduler that stops while a client with an outage timeout of zero uses it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota import AsyncClient, Client, ServiceUnavailable
from rota.home import Home
from tests.client.sdk.keep_alive_server import KeepAliveServer
from tests.e2e.awaitable_client import AwaitableClient


def test_client_without_outage_timeout_neither_restarts_nor_waits(
    tmp_path: Path, client_type: type[Client | AsyncClient]
) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o700)
    server = KeepAliveServer(home)
    client = AwaitableClient(client_type(home=home.root, outage_timeout=0))

    async def steps() -> None:
        await client.health()
        server.close()
        for call in (client.wait, client.job):
            with pytest.raises(ServiceUnavailable, match="not running any more; start it with `rota up`"):
                await call("job-1")

    asyncio.run(steps())
    assert home.socket.exists(), "as after a crash"
    assert not home.log.exists(), "nothing was started"
