"""The scheduler over TCP: where it listens, and if it does not, why.

Whatever goes wrong here, the socket serves: TCP is off then, and `status` says why. A change of the configuration is
taken up while running: another address or port, or another certificate, ends what is connected; other names in
`allowed_hosts` do not. Nothing is looked at on a timer: what is off is tried again when the configuration is read again
(`kill -HUP`, `rota config set`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Scope

from rota.api.entrance import Entrance
from rota.api.guard import Guard, IsPublic
from rota.api.protocol import TcpProtocol
from rota.api.server import Server, configuration
from rota.api.tls import Door, context_of
from rota.aside import begin
from rota.config import Server as Settings
from rota.errors import ConfigError, HomeError, RotaError
from rota.home import Home
from rota.token import Token, ensure
from rota.wire.scheduler import TcpForm

log = logging.getLogger("rota.api")

_TOLD = 32
"""Connections beyond the most that are told so; further ones are closed without a word."""
_BACKLOG = 1024
"""All who listened come back at once when the scheduler does."""
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""Who is gone without a word is noticed within two minutes."""

_PATIENCE = 2.0
"""Seconds that a start waits for it: a name server, or a file system with certificates, may never answer."""
_BEGINS = "it is being started; a name in server.host, or the files of TLS, take their time"

Address = tuple[Any, ...]
"""As the family of a socket has it."""
Wanted = tuple[Any, ...]
"""What a listener was made for, so far as another one is needed when it changes."""


class Tcp:
    """On the event loop."""

    def __init__(
        self, app: ASGIApp, home: Home, settings: Callable[[], Settings], *, is_public: IsPublic,
        most_connections: int, highest: int,
    ) -> None:  # fmt: skip
        self._home = home
        self._settings = settings
        self._token = Token(home.token)
        self._most = most_connections
        guard = Guard(app, self._token, is_public=is_public, allowed=lambda: settings().allowed_hosts, cut=self._cut)
        self._server = Server(configuration(guard, TcpProtocol), highest=highest)
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        self._listener: Entrance | None = None
        self._shaking: set[asyncio.Task[None]] = set()
        self._wanted: Wanted | None = None
        self._url: str | None = None
        self._off: str | None = _BEGINS
        self._is_fault = False
        self._wake = asyncio.Event()
        self._has_tried = asyncio.Event()

    def about(self) -> TcpForm:
        self._look_at_token()
        if self._is_locked:
            return TcpForm(url=None, off=self._token.trouble)
        return TcpForm(url=self._url, off=self._off)

    @property
    def trouble(self) -> str | None:
        """What somebody has to mend; a port that another one has is nobody's fault."""
        off = self.about().off
        return f"TCP is off: {off}" if off and (self._is_fault or self._is_locked) else None

    @property
    def _is_locked(self) -> bool:
        return self._url is not None and self._token.trouble is not None

    def wake(self) -> None:
        """The configuration or the token may be another."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            self._look_at_token()
            try:
                await self._take_up()
            except Exception:
                log.exception("a defect; TCP is off")
                self._url, self._off, self._is_fault = None, "a defect in Rota; rota.log has the details", True
            self._has_tried.set()
            await self._wake.wait()

    async def begun(self) -> None:
        """Until it listens or has said why not, so that who waits for the scheduler's start is told; but no longer than
        a start may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._has_tried.wait()

    async def close(self) -> None:
        """Answers under way have a moment, as on the socket."""
        if self._listener is not None:
            self._listener.close()
        self._server.servers = []
        await self._server.shutdown()
        for task in self._shaking:
            task.cancel()

    async def _take_up(self) -> None:
        settings = self._settings()
        wanted = await begin(partial(_what, self._home.root, settings), name="rota-tcp")
        if wanted == self._wanted and self._listener is not None:
            return
        self._stop_listening()
        self._wanted, self._is_fault = wanted, False
        try:
            self._url, self._off = await self._listen(settings), None
            log.info("serves %s", self._url)
        except _Off as reason:
            self._url, self._off = None, str(reason)
            log.info("TCP is off: %s", reason)
        except RotaError as error:
            self._url, self._off, self._is_fault = None, error.message, True
            log.warning("TCP is off: %s", error.message)

    async def _listen(self, settings: Settings) -> str:
        if settings.port == "off":
            raise _Off('server.port is "off"')
        secure, family, address = await begin(partial(_prepare, self._home, settings), name="rota-tcp")
        self._look_at_token()
        if self._token.trouble is not None:
            raise HomeError(self._token.trouble)
        listening = _bind(family, address, settings)
        make = self._protocol if secure is None else partial(Door, secure, self._protocol, self._shaking)
        self._listener = Entrance(listening, make, highest=self._server.highest)
        host, port = listening.getsockname()[:2]
        return f"{'http' if secure is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"

    def _protocol(self) -> asyncio.Protocol:
        state = self._server.server_state
        count = len(state.connections)
        if count >= self._most + _TOLD:
            return _Closed()
        return TcpProtocol(
            config=self._server.config,
            server_state=state,
            app_state=self._server.lifespan.state,
            is_surplus=count >= self._most,
        )

    def _look_at_token(self) -> None:
        if self._token.look():
            self._cut()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._cut()

    def _cut(self, scope: Scope | None = None) -> None:
        self._server.cut(scope)


class _Off(Exception):
    """It is off, and nobody has made a mistake."""


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _what(root: Path, settings: Settings) -> Wanted:
    files = [settings.tls_cert, settings.tls_key]
    stamps = [None if each is None else _stamp(root / each) for each in files]
    return settings.host, settings.port, *files, *stamps


def _prepare(home: Home, settings: Settings) -> tuple[ssl.SSLContext | None, socket.AddressFamily, Address]:
    """All that may take a while, or for ever: files, and a resolver."""
    ensure(home.token)
    secure = _secure(home.root, settings)
    family, address = _resolve(settings)
    if secure is None and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ConfigError(
            f"server.host = {settings.host!r} is not a loopback address, and elsewhere only TLS is spoken;"
            " set server.tls_cert and server.tls_key, or leave server.host at 127.0.0.1"
        )
    return secure, family, address


def _secure(root: Path, settings: Settings) -> ssl.SSLContext | None:
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        there, missing = ("tls_key", "tls_cert") if cert is None else ("tls_cert", "tls_key")
        raise ConfigError(f"server.{there} is set and server.{missing} is not; TLS needs both")
    return context_of(root / cert, root / key)


def _resolve(settings: Settings) -> tuple[socket.AddressFamily, Address]:
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "it is no name"
        raise ConfigError(
            f"server.host = {host!r} is not known here: {said}; set it to an address, as 127.0.0.1"
        ) from None
    family, _, _, _, address = found[0]
    return family, address


def _bind(family: socket.AddressFamily, address: Address, settings: Settings) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a connection has what its listener has
        for option, value in _KEEP_ALIVE:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        where = f"{settings.host} port {settings.port}"
        if error.errno == errno.EADDRINUSE:
            raise _Off(
                f"port {settings.port} is taken on {settings.host};"
                " `rota config set server.port 0` takes any that is free"
            ) from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror}; see [server] in rota.toml") from None
    return listening


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Who may read a file counts as what is in it: a key that others can read is no secret any more."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_mode, seen.st_uid
