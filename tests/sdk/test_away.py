"""A scheduler that is gone, to a client that does not bear with that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from e2e.either import Either
from rota import AsyncClient, Client, Unavailable
from rota.home import Home
from sdk.lasting import Lasting


def test_it_is_not_started_again_nor_waited_for(tmp_path: Path, kind: type[Client | AsyncClient]) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o700)
    server = Lasting(home)
    client = Either(kind(home=home.root, away=0))

    async def steps() -> None:
        await client.health()
        server.close()
        for call in (client.wait, client.job):
            with pytest.raises(Unavailable, match="not there any more; `rota up` starts it"):
                await call("job-1")

    asyncio.run(steps())
    assert home.socket.exists(), "as after a crash"
    assert not home.log.exists(), "nothing was started"
