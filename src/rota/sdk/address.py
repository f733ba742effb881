"""A scheduler over TCP: `http://127.0.0.1:7682` or `https://…`, with its token."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from rota.client.problem import NoAnswer
from rota.client.transport import SILENT
from rota.errors import InvalidInput, RotaError, Unavailable

PORT = 7682


class Address:
    def __init__(self, url: str, *, token: str | None = None, ca: str | None = None) -> None:
        """`ca` is a file with the certificates to trust, instead of the system's."""
        if not isinstance(url, str) or not isinstance(token, str | None):
            raise InvalidInput(f"the address of a scheduler and its token are text, as http://127.0.0.1:{PORT}")
        try:
            parts = urlsplit(url)
            (parts.hostname or "").encode("idna")
        except ValueError as error:
            raise InvalidInput(f"not the address of a scheduler: {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InvalidInput(f"not the address of a scheduler: {url!r}; write it as http://127.0.0.1:{PORT}")
        try:
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"not the address of a scheduler: {url!r}: {error}") from None
        self.host = parts.hostname
        self.port = port or {"http": 80, "https": 443}[parts.scheme]
        self.tls = _trusting(ca) if parts.scheme == "https" else None
        bearer = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
        self.headers: Mapping[str, str] = {"Host": parts.netloc.rpartition("@")[2], **bearer}
        self.shown = f"{parts.scheme}://{self.headers['Host']}"

    def connect(self, timeout: float | None) -> socket.socket:
        try:
            connection = socket.create_connection((self.host, self.port), timeout)
        except OSError as error:
            raise self.explain(error) from None
        without_delay(connection)
        if self.tls is None:
            return connection
        try:
            return self.tls.wrap_socket(connection, server_hostname=self.host)
        except OSError as error:
            connection.close()
            raise self.explain(error) from None

    def explain(self, error: OSError) -> RotaError:
        if isinstance(error, TimeoutError):
            return NoAnswer(SILENT)
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unavailable(f"{self.shown} is not trusted: {error.verify_message}; name its authority's file as ca")
        return Unavailable(f"no scheduler answers at {self.shown}: {error.strerror or error}; see `rota status` there")


def unheard_at(place: object) -> str | None:
    """What it may mean that a connection ends without a word: who waits for a handshake answers nothing else."""
    if not isinstance(place, Address) or place.tls is not None:
        return None
    return f"{place.shown} closes the connection without an answer; if it speaks TLS, write https:// instead of http://"


def _trusting(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "it has no certificates" if isinstance(error, ssl.SSLError) else error.strerror or error
        raise InvalidInput(f"ca cannot be used: {ca}: {reason}; name a file of certificates in PEM form") from None


def without_delay(connection: socket.socket) -> None:
    """The end of a request does not wait until its beginning is acknowledged, which a quiet server may put off."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
