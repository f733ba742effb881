"""TCP address of a scheduler: `http://127.0.0.1:7682` or `https://…`, with its token."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from rota.client.problem import ResponseTimeout
from rota.client.transport import NO_RESPONSE_TEXT
from rota.errors import InvalidInput, RotaError, ServiceUnavailable

DEFAULT_PORT = 7682


class TcpAddress:
    def __init__(self, url: str, *, token: str | None = None, ca: str | None = None) -> None:
        """Parse the address. `ca` is a file with the certificates to trust instead of the system's."""
        if not isinstance(url, str) or not isinstance(token, str | None):
            raise InvalidInput(f"url and token must be text, such as http://127.0.0.1:{DEFAULT_PORT}")
        try:
            parts = urlsplit(url)
            (parts.hostname or "").encode("idna")
        except ValueError as error:
            raise InvalidInput(f"invalid scheduler URL {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InvalidInput(f"invalid scheduler URL {url!r}; expected a URL such as http://127.0.0.1:{DEFAULT_PORT}")
        try:
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"invalid scheduler URL {url!r}: {error}") from None
        self.host = parts.hostname
        self.port = port or {"http": 80, "https": 443}[parts.scheme]
        self.tls = _make_tls_context(ca) if parts.scheme == "https" else None
        bearer = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
        self.headers: Mapping[str, str] = {"Host": parts.netloc.rpartition("@")[2], **bearer}
        self.display_url = f"{parts.scheme}://{self.headers['Host']}"

    def connect(self, timeout: float | None) -> socket.socket:
        try:
            connection = socket.create_connection((self.host, self.port), timeout)
        except OSError as error:
            raise self.connection_error(error) from None
        disable_nagle(connection)
        if self.tls is None:
            return connection
        try:
            return self.tls.wrap_socket(connection, server_hostname=self.host)
        except OSError as error:
            connection.close()
            raise self.connection_error(error) from None

    def connection_error(self, error: OSError) -> RotaError:
        if isinstance(error, TimeoutError):
            return ResponseTimeout(NO_RESPONSE_TEXT)
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServiceUnavailable(
                f"{self.display_url} is not trusted: {error.verify_message}; pass its certificate authority as ca"
            )
        return ServiceUnavailable(
            f"no scheduler answers at {self.display_url}: {error.strerror or error}; run `rota status` on that machine"
        )


def no_response_hint(address: object) -> str | None:
    """Return a hint for a connection that ends without a response: a server that expects a TLS handshake does not
    answer plain HTTP."""
    if not isinstance(address, TcpAddress) or address.tls is not None:
        return None
    return (
        f"{address.display_url} closed the connection without a response; if it uses TLS, write https:// instead of"
        " http://"
    )


def _make_tls_context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "it has no certificates" if isinstance(error, ssl.SSLError) else error.strerror or error
        raise InvalidInput(f"the ca file {ca} cannot be used: {reason}; pass a file of PEM certificates") from None


def disable_nagle(connection: socket.socket) -> None:
    """Disable Nagle's algorithm: otherwise the end of a request waits until its beginning is acknowledged, which an
    idle server may delay."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
