"""The two client classes."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.client.requests.arguments import as_seconds
from rota.client.requests.options import Seconds
from rota.client.sdk.calls import AwaitableClient, BlockingClient, Channel
from rota.client.sdk.methods import ClientMethods
from rota.client.sdk.transports import AsyncTransport, PooledBlockingTransport, TcpAddress
from rota.client.transport import HomeSocket
from rota.errors import InvalidInput
from rota.home import Home, find_home


def _resolve_address(
    home: str | Path | None, url: str | None, token: str | None, ca: str | Path | None
) -> tuple[HomeSocket | TcpAddress, Home | None]:
    """Return the address from the arguments, from the environment, or of the home that commands use. Refuse arguments
    that would have no effect."""
    if home is not None and url is not None:
        raise InvalidInput("home and url name different schedulers; pass only one of them")
    if url is None and home is None:
        url = os.environ.get("ROTA_URL") or None
    if url is not None:
        token = os.environ.get("ROTA_TOKEN") if token is None else token
        return TcpAddress(url, token=token, ca=_path_text("ca", ca)), None
    if token is not None or ca is not None:
        raise InvalidInput("token and ca are only for a scheduler over TCP; pass url too, or omit them")
    local_home = find_home(_path_text("home", home))
    return HomeSocket(local_home), local_home


def _path_text(name: str, value: str | Path | None) -> str | None:
    if value is None or isinstance(value, str | os.PathLike):
        return value if value is None else os.fspath(value)
    raise InvalidInput(f"{name} must be a path, not {value!r}")


def _outage_seconds(value: Seconds | None) -> float | None:
    seconds = as_seconds("outage_timeout", value)
    if seconds is not None and seconds < 0:
        raise InvalidInput(f"outage_timeout must be at least 0 (0 does not wait), not {value!r}")
    return seconds


class Client(ClientMethods, BlockingClient):
    """A blocking client.

        with rota.Client() as client:
            job = client.submit(["make", "test"]).job
            print(client.wait(job.id).status)

    Threads can share a client.
    """

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        url: str | None = None,
        token: str | None = None,
        ca: str | Path | None = None,
        autostart: bool = True,
        outage_timeout: Seconds | None = 30.0,
    ) -> None:
        """Connect to the scheduler of a home over its socket, or with `url` to a scheduler over TCP.

        The home is found as by the commands, and a scheduler that is not running is started unless `autostart` is
        false. Over TCP, `token` authenticates and `ca` is a file of certificates to trust for https. Without `home` and
        `url`, `ROTA_URL` and `ROTA_TOKEN` apply. If the scheduler stops while `wait`, `logs` or `events` are in
        progress, they wait up to `outage_timeout` for its restart, or without limit for `None`.
        """
        address, local_home = _resolve_address(home, url, token, ca)
        transport = PooledBlockingTransport(
            address, local_home, autostart=autostart, outage_timeout=_outage_seconds(outage_timeout)
        )
        self._pool = transport.pool
        self._channel = Channel(transport, is_local=local_home is not None)

    def close(self) -> None:
        """Close the pooled connections. Later requests open new ones."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(ClientMethods, AwaitableClient):
    """A client for an event loop.

        async with rota.AsyncClient() as client:
            job = (await client.submit(["make", "test"])).job
            async for chunk in client.logs(job.id, follow=True):
                sys.stdout.buffer.write(chunk)

    Cancelling a task closes its connection. A job that the task waited for continues; a `run` is cancelled.
    """

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        url: str | None = None,
        token: str | None = None,
        ca: str | Path | None = None,
        autostart: bool = True,
        outage_timeout: Seconds | None = 30.0,
    ) -> None:
        """Take the same arguments as `Client`."""
        address, local_home = _resolve_address(home, url, token, ca)
        transport = AsyncTransport(
            address, local_home, autostart=autostart, outage_timeout=_outage_seconds(outage_timeout)
        )
        self._pool = transport.pool
        self._channel = Channel(transport, is_local=local_home is not None)

    async def close(self) -> None:
        """Close the pooled connections. Later requests open new ones."""
        self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
