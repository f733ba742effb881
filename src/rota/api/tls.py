"""TLS in front of HTTP, with a limit on how many may be shaking hands.

Whoever connects is counted before the handshake: asyncio's own TLS server would hold any number of connections that
never say a word, each with a descriptor that the scheduler needs.
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

MOST_HANDSHAKES = 64
_PATIENCE = 10.0
"""Seconds for a handshake."""


def context_of(cert: Path, key: Path) -> ssl.SSLContext:
    for path in (cert, key):
        try:
            with path.open("rb") as file:
                seen = os.fstat(file.fileno())
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        if path == key:
            _refuse_open(key, seen)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase must not make the scheduler ask for it at a terminal.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise ConfigError(
            f"{cert} and {key} cannot be used as certificate and key ({reason});"
            " they are PEM files that belong together, and the key has no passphrase"
        ) from None
    return context


def _refuse_open(key: Path, seen: os.stat_result) -> None:
    """A key that others can read is no secret. One that is not ours, as root's, may be shared with a group of which we
    are a part."""
    others = stat.S_IRWXO | (stat.S_IRWXG if seen.st_uid == os.geteuid() else 0)
    if seen.st_mode & others:
        raise ConfigError(
            f"others can read {key}: its mode is {stat.S_IMODE(seen.st_mode):04o}, not 0600; `chmod 600 {key}`,"
            " and if somebody may have read it use a new one"
        )


class Door(asyncio.Protocol):
    """One connection until TLS is agreed on; what comes right behind the handshake is handed on."""

    def __init__(
        self, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol], shaking: set[asyncio.Task[None]]
    ) -> None:
        self._context = context
        self._make = make
        self._shaking = shaking
        self._early: list[bytes] = []
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        if len(self._shaking) >= MOST_HANDSHAKES:
            plain.abort()
            return
        plain.pause_reading()  # the first word is the handshake's
        task = asyncio.get_running_loop().create_task(self._shake_hands(plain))
        self._shaking.add(task)
        task.add_done_callback(self._shaking.discard)

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio calls it
        self._is_lost = True

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        try:
            secure = await asyncio.get_running_loop().start_tls(
                plain, self, self._context, server_side=True, ssl_handshake_timeout=_PATIENCE
            )
        except OSError:  # what a stranger says wrong is not worth a line in the log
            plain.abort()
            return
        if secure is None or self._is_lost:
            plain.abort()
            return
        protocol = self._make()
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        for data in self._early:
            protocol.data_received(data)
