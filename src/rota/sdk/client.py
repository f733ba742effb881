"""The two clients."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.client.ask.given import seconds
from rota.client.ask.wanted import Seconds
from rota.client.transport import HomeSocket
from rota.errors import InvalidInput
from rota.home import Home, find_home
from rota.sdk.address import Address
from rota.sdk.keeping import Keeping
from rota.sdk.streaming import Streaming
from rota.sdk.verb import Awaiting, Blocking, Line
from rota.sdk.verbs import Verbs


def _place(
    home: str | Path | None, url: str | None, token: str | None, ca: str | Path | None
) -> tuple[HomeSocket | Address, Home | None]:
    """What is said, else what the environment says, else the home that a command would find. What would be passed over
    is refused."""
    if home is not None and url is not None:
        raise InvalidInput("home and url are two schedulers; say one of them")
    if url is None and home is None:
        url = os.environ.get("ROTA_URL") or None
    if url is not None:
        token = os.environ.get("ROTA_TOKEN") if token is None else token
        return Address(url, token=token, ca=_path("ca", ca)), None
    if token is not None or ca is not None:
        raise InvalidInput("token and ca are for a scheduler over TCP; say its url too, or leave them out")
    found = find_home(_path("home", home))
    return HomeSocket(found), found


def _path(name: str, given: str | Path | None) -> str | None:
    if given is None or isinstance(given, str | os.PathLike):
        return given if given is None else os.fspath(given)
    raise InvalidInput(f"{name} is a path, not {given!r}")


def _away(given: Seconds | None) -> float | None:
    found = seconds("away", given)
    if found is not None and found < 0:
        raise InvalidInput(f"away is for how long a scheduler may be, 0 for not at all, not {given!r}")
    return found


class Client(Verbs, Blocking):
    """A scheduler, for a program that waits for its answers.

        with rota.Client() as client:
            job = client.submit(["make", "test"]).job
            print(client.wait(job.id).status)

    Threads can share one.
    """

    def __init__(
        self, *, home: str | Path | None = None, url: str | None = None, token: str | None = None,
        ca: str | Path | None = None, starts: bool = True, away: Seconds | None = 30.0,
    ) -> None:  # fmt: skip
        """The scheduler of a home, over its socket: found as the commands find it, and started if it is not there
        unless `starts` is false. Or, with `url`, one over TCP, with its `token`, and for https with a file of
        certificates to trust in `ca`. Where neither is said, `ROTA_URL` and `ROTA_TOKEN` count. A scheduler that is
        stopped while `wait`, `logs` or `events` go on is waited for: for so many seconds as `away` says, or without end
        if that is None."""
        place, found = _place(home, url, token, ca)
        carrier = Keeping(place, found, starts=starts, away=_away(away))
        self._pool = carrier.pool
        self._line = Line(carrier, is_here=found is not None)

    def close(self) -> None:
        """Close the connections that are kept. What is asked later has one for itself."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Verbs, Awaiting):
    """The same for a program with an event loop.

        async with rota.AsyncClient() as client:
            job = (await client.submit(["make", "test"])).job
            async for piece in client.logs(job.id, follow=True):
                sys.stdout.buffer.write(piece)

    A task that is cancelled closes its connection. A job that it waited for goes on; a `run` is cancelled with it.
    """

    def __init__(
        self, *, home: str | Path | None = None, url: str | None = None, token: str | None = None,
        ca: str | Path | None = None, starts: bool = True, away: Seconds | None = 30.0,
    ) -> None:  # fmt: skip
        """As of `Client`."""
        place, found = _place(home, url, token, ca)
        carrier = Streaming(place, found, starts=starts, away=_away(away))
        self._pool = carrier.pool
        self._line = Line(carrier, is_here=found is not None)

    async def close(self) -> None:
        """As of `Client`."""
        self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
