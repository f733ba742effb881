"""TCP server of the scheduler: where it listens, or why it does not.

A failure here does not affect the socket: TCP is off, and `status` shows the reason. A change of the configuration
applies while the scheduler runs: another address, port or certificate closes the existing connections; other names in
`allowed_hosts` do not. There is no timer: a server that is off tries again when the configuration is read again
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

from rota.blocking import start_thread
from rota.config import ServerConfig as Settings
from rota.control.schemas import TcpStatus
from rota.errors import ConfigError, HomeError, RotaError
from rota.home import Home
from rota.http.auth import Guard, IsPublic
from rota.http.limits import LimitNotice
from rota.http.protocol import TcpProtocol
from rota.http.server import HttpServer, Listener, make_config
from rota.http.tls import TlsHandshake, make_ssl_context
from rota.token import TokenFile, ensure

log = logging.getLogger("rota.http")

_MAX_REFUSALS = 32
"""Number of connections above the maximum that get a refusal. More are closed without one."""
_BACKLOG = 1024
"""Maximum number of connections that wait: all listening clients reconnect at once after a restart."""
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""Keep-alive options, by which a dead client is noticed within two minutes."""

_START_TIMEOUT = 2.0
"""Seconds that the scheduler's start waits for the server: a name server, or a file system with the certificates, may
never answer."""
_STARTING_REASON = "it is being started; the name in server.host or the files of TLS take a while to read"

SocketAddress = tuple[Any, ...]
"""Address in the format of its socket's family."""
ListenerSpec = tuple[Any, ...]
"""Configuration of a listener. A change requires a new listener."""


class TcpServer:
    """TCP server, on the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        home: Home,
        settings: Callable[[], Settings],
        *,
        is_public: IsPublic,
        max_connections: int,
        max_descriptor: int,
    ) -> None:
        self._home = home
        self._settings = settings
        self._token = TokenFile(home.token)
        self._max_connections = max_connections
        self._notice = LimitNotice(log)
        guard = Guard(
            app,
            self._token,
            is_public=is_public,
            allowed_hosts=lambda: settings().allowed_hosts,
            disconnect_others=self._disconnect_clients,
        )
        self._server = HttpServer(make_config(guard, TcpProtocol), max_descriptor=max_descriptor)
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        self._listener: Listener | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._spec: ListenerSpec | None = None
        self._url: str | None = None
        self._disabled_reason: str | None = _STARTING_REASON
        self._has_failed = False
        self._wake = asyncio.Event()
        self._has_tried = asyncio.Event()

    def status(self) -> TcpStatus:
        self._check_token()
        if self._has_unusable_token:
            return TcpStatus(url=None, disabled_reason=self._token.error)
        return TcpStatus(url=self._url, disabled_reason=self._disabled_reason)

    @property
    def error(self) -> str | None:
        """Error that the user has to fix. A port in use is not an error."""
        reason = self.status().disabled_reason
        return f"TCP is off: {reason}" if reason and (self._has_failed or self._has_unusable_token) else None

    @property
    def _has_unusable_token(self) -> bool:
        return self._url is not None and self._token.error is not None

    def wake(self) -> None:
        """Check the configuration and the token, which may have changed."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            self._check_token()
            try:
                await self._apply_config()
            except Exception:
                log.exception("internal error: TCP is off")
                self._url, self._disabled_reason = None, "internal error; see `rota.log` in the home"
                self._has_failed = True
            self._has_tried.set()
            await self._wake.wait()

    async def wait_for_start(self) -> None:
        """Wait until the server listens or is off, so that the start of the scheduler can report it; at most for the
        time that a start may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_TIMEOUT):
                await self._has_tried.wait()

    async def close(self) -> None:
        """Close the server. Responses in progress have a moment to complete, as on the socket."""
        if self._listener is not None:
            self._listener.close()
        self._server.servers = []
        await self._server.shutdown()
        for task in self._handshakes:
            task.cancel()

    async def _apply_config(self) -> None:
        settings = self._settings()
        spec = await start_thread(partial(_read_listener_spec, self._home.root, settings), name="rota-tcp")
        if spec == self._spec and self._listener is not None:
            return
        self._stop_listening()
        self._spec, self._has_failed = spec, False
        try:
            self._url, self._disabled_reason = await self._listen(settings), None
            log.info("listening on %s", self._url)
        except _TcpDisabled as reason:
            self._url, self._disabled_reason = None, str(reason)
            log.info("TCP is off: %s", reason)
        except RotaError as error:
            self._url, self._disabled_reason, self._has_failed = None, error.message, True
            log.warning("TCP is off: %s", error.message)

    async def _listen(self, settings: Settings) -> str:
        if settings.port == "off":
            raise _TcpDisabled('server.port is "off"')
        context, family, address = await start_thread(partial(_prepare, self._home, settings), name="rota-tcp")
        self._check_token()
        if self._token.error is not None:
            raise HomeError(self._token.error)
        listening = _bind(family, address, settings)
        protocol_factory = (
            self._make_protocol
            if context is None
            else partial(TlsHandshake, context, self._make_protocol, self._handshakes)
        )
        self._listener = Listener(listening, protocol_factory, max_descriptor=self._server.max_descriptor)
        host, port = listening.getsockname()[:2]
        return f"{'http' if context is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"

    def _make_protocol(self) -> asyncio.Protocol:
        state = self._server.server_state
        count = len(state.connections)
        if count >= self._max_connections:
            self._notice.log(f"{count:,} TCP connections are open, the maximum; more are refused until some close")
        if count >= self._max_connections + _MAX_REFUSALS:
            return _ClosingProtocol()
        return TcpProtocol(
            config=self._server.config,
            server_state=state,
            app_state=self._server.lifespan.state,
            exceeds_limit=count >= self._max_connections,
        )

    def _check_token(self) -> None:
        if self._token.reload():
            self._disconnect_clients()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._disconnect_clients()

    def _disconnect_clients(self, except_scope: Scope | None = None) -> None:
        self._server.disconnect_clients(except_scope)


class _TcpDisabled(Exception):
    """TCP is off, but not because of an error."""


class _ClosingProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _read_listener_spec(root: Path, settings: Settings) -> ListenerSpec:
    files = [settings.tls_cert, settings.tls_key]
    stamps = [None if file is None else _file_stamp(root / file) for file in files]
    return settings.host, settings.port, *files, *stamps


def _prepare(home: Home, settings: Settings) -> tuple[ssl.SSLContext | None, socket.AddressFamily, SocketAddress]:
    """Run the steps that may take long or forever: file access and a name lookup."""
    ensure(home.token)
    context = _load_ssl_context(home.root, settings)
    family, address = _resolve(settings)
    if context is None and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ConfigError(
            f"server.host = {settings.host!r} is not a loopback address, and others require TLS;"
            " set server.tls_cert and server.tls_key, or set server.host to 127.0.0.1"
        )
    return context, family, address


def _load_ssl_context(root: Path, settings: Settings) -> ssl.SSLContext | None:
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        present, missing = ("tls_key", "tls_cert") if cert is None else ("tls_cert", "tls_key")
        raise ConfigError(f"server.{present} is set and server.{missing} is not; TLS needs both")
    return make_ssl_context(root / cert, root / key)


def _resolve(settings: Settings) -> tuple[socket.AddressFamily, SocketAddress]:
    host, port = settings.host, settings.port
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a valid name"
        raise ConfigError(
            f"server.host = {host!r} cannot be resolved: {reason}; set it to an address such as 127.0.0.1"
        ) from None
    family, _, _, _, address = addresses[0]
    return family, address


def _bind(family: socket.AddressFamily, address: SocketAddress, settings: Settings) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # connections inherit it
        for option, value in _KEEP_ALIVE:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise _TcpDisabled(
                f"port {settings.port} is in use on {settings.host};"
                " `rota config set server.port 0` selects any free port"
            ) from None
        address_text = f"{settings.host} port {settings.port}"
        raise ConfigError(f"cannot listen on {address_text}: {error.strerror}; see [server] in rota.toml") from None
    return listening


def _file_stamp(path: Path) -> tuple[int, ...] | None:
    """Return the state of a file. Its mode and owner are part of it: a key that other users can read is not secret."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid
