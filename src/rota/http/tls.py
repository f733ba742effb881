"""TLS in front of HTTP, with a limit on concurrent handshakes.

Connections are counted before the handshake. asyncio's own TLS server would hold any number of silent connections, each
with a descriptor that the scheduler needs.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import cast

from rota.errors import ConfigError

MAX_HANDSHAKES = 64
_HANDSHAKE_TIMEOUT = 10.0
"""Seconds to complete a handshake."""


def make_ssl_context(cert: Path, key: Path) -> ssl.SSLContext:
    for path in (cert, key):
        try:
            with path.open("rb") as file:
                file_status = os.fstat(file.fileno())
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        if path == key:
            _refuse_readable_key(key, file_status)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase must not make the scheduler ask for it at a terminal.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(
            f"{cert} and {key} cannot be used as certificate and key ({reason});"
            " use PEM files that belong together, and a key without a passphrase"
        ) from None
    return context


def _refuse_readable_key(key: Path, key_stat: os.stat_result) -> None:
    """Refuse a key that other users can read. A key of another user, such as root, may be readable for a group that
    this process belongs to."""
    others = stat.S_IRWXO | (stat.S_IRWXG if key_stat.st_uid == os.geteuid() else 0)
    if key_stat.st_mode & others:
        raise ConfigError(
            f"other users can read {key}: its mode is {stat.S_IMODE(key_stat.st_mode):04o}, not 0600;"
            f" run `chmod 600 {key}`, and replace the key if another user may have read it"
        )


class TlsHandshake(asyncio.Protocol):
    """Protocol of a connection until its TLS handshake is complete. Data right behind the handshake is passed on."""

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol_factory: Callable[[], asyncio.Protocol],
        handshakes: set[asyncio.Task[None]],
    ) -> None:
        self._context = context
        self._protocol_factory = protocol_factory
        self._handshakes = handshakes
        self._early_data: list[bytes] = []
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        if len(self._handshakes) >= MAX_HANDSHAKES:
            plain.abort()
            return
        plain.pause_reading()  # the handshake reads first
        task = asyncio.get_running_loop().create_task(self._handshake(plain))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def data_received(self, data: bytes) -> None:
        self._early_data.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it
        self._is_lost = True

    async def _handshake(self, plain: asyncio.Transport) -> None:
        try:
            secure = await asyncio.get_running_loop().start_tls(
                plain, self, self._context, server_side=True, ssl_handshake_timeout=_HANDSHAKE_TIMEOUT
            )
        except OSError:  # a failed handshake of an unknown client is not logged
            plain.abort()
            return
        if secure is None or self._is_lost:
            plain.abort()
            return
        protocol = self._protocol_factory()
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        for data in self._early_data:
            protocol.data_received(data)
