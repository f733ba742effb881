"""Access control for requests over TCP. The socket does not need it: it is protected by its file mode.

    unknown host name                            421   a name that was rebound to this machine (DNS rebinding)
    page of another origin                       403   including preflight requests of browsers (CSRF, CORS)
    missing or wrong token                       401   except for documents that are the same for all clients
    body that is not declared as JSON            415   a form on any page can send everything else

The checks have this order: a page of another site does not even learn that a token is missing. No response is cached,
shown in a frame, or readable for another site.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.control.schemas import Health
from rota.errors import MisdirectedRequest, OriginNotAllowed, RotaError, Unauthorized, UnsupportedMediaType
from rota.http.problem import JsonResponse, problem_response
from rota.token import TokenFile

IsPublic = Callable[[str, str], bool]
"""Predicate of a method and a path: whether a request needs no token."""

_MAX_HOST_LENGTH = 255
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """ASGI middleware that admits requests over TCP."""

    def __init__(
        self,
        app: ASGIApp,
        token: TokenFile,
        *,
        is_public: IsPublic,
        allowed_hosts: Callable[[], Sequence[str]],
        disconnect_others: Callable[[Scope], None],
    ) -> None:
        """Create a guard. `allowed_hosts` are the names in the configuration. `disconnect_others` closes the
        connections of all other requests when the token has changed."""
        self._app = app
        self._token = token
        self._is_public = is_public
        self._allowed_hosts = allowed_hosts
        self._disconnect_others = disconnect_others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ClientIdentity(scope)
        secure_send = _with_security_headers(send)
        try:
            if self._token.reload():
                self._disconnect_others(scope)
            self._check_host(request)
            self._check_origin(request)
            is_authenticated = any(map(self._token.is_valid, request.tokens))
            if not is_authenticated and request.is_health:
                await JsonResponse(Health())(scope, receive, secure_send)
                return
            if not is_authenticated and not self._is_public(request.method, request.path):
                raise _unauthorized(has_token=bool(request.tokens))
            _check_media(request)
        except RotaError as error:
            await _refusal_response(error)(scope, receive, secure_send)
            return
        await self._app(scope, receive, secure_send)

    def _check_host(self, client: ClientIdentity) -> None:
        if client.host is None or not self._is_own_host(client, client.host):
            host = "no host" if client.host is None else f"{client.host!r}"
            raise MisdirectedRequest(
                f"the request is for {host}, which is not a name of this scheduler; if it should be one,"
                " add it to server.allowed_hosts in rota.toml"
            )

    def _is_own_host(self, client: ClientIdentity, host: str) -> bool:
        return client.is_this_machine(host) or self._is_allowed(host)

    def _is_allowed(self, host: str) -> bool:
        """Return whether the configuration allows a host. A name without a port allows all ports, because a proxy can
        listen on any."""
        names = [name.lower() for name in self._allowed_hosts()]
        return host in names or _split_host(host)[0] in names

    def _check_origin(self, client: ClientIdentity) -> None:
        for origin in client.origins:
            scheme, _, host = origin.partition("://")
            is_same = scheme == client.scheme and host == client.host
            if not is_same and not (scheme in _DEFAULT_PORTS and self._is_allowed(host)):
                raise OriginNotAllowed(f"the request comes from a page of {origin}; use a page of the scheduler itself")
        if client.is_from_another_site and not self._is_public_navigation(client):
            raise OriginNotAllowed("the request comes from a page of another site; use a page of the scheduler itself")

    def _is_public_navigation(self, client: ClientIdentity) -> bool:
        """Return whether a user follows a link to a public page, which has no data of this home. The page asks for the
        token."""
        return client.is_navigation and not client.is_health and self._is_public(client.method, client.path)


class ClientIdentity:
    """Parts of a request that identify its client."""

    def __init__(self, scope: Scope) -> None:
        self._headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name, []).append(value)
        self._server: tuple[str, int] = scope["server"]
        self.method: str = scope["method"]
        self.scheme: str = scope["scheme"]
        self.path: str = scope["path"]

    def _header_values(self, name: bytes) -> list[str]:
        return [value.decode("latin-1").strip().lower() for value in self._headers.get(name, ())]

    @property
    def host(self) -> str | None:
        """Value of the `Host` header; None if the header is missing or repeated."""
        values = self._header_values(b"host")
        return values[0] if len(values) == 1 and values[0] else None

    @property
    def origins(self) -> list[str]:
        return self._header_values(b"origin")

    @property
    def is_from_another_site(self) -> bool:
        """Whether the browser reports another site. It counts another port of this machine as the same site; this check
        does not."""
        return any(site in ("cross-site", "same-site") for site in self._header_values(b"sec-fetch-site"))

    @property
    def is_navigation(self) -> bool:
        """Whether a user follows a link."""
        return self._header_values(b"sec-fetch-mode") == ["navigate"]

    @property
    def is_health(self) -> bool:
        return self.path == "/health" and self.method in ("GET", "HEAD")

    @property
    def tokens(self) -> list[bytes]:
        tokens = list(self._headers.get(b"x-api-key", ()))
        for value in self._headers.get(b"authorization", ()):
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                tokens.append(token.strip())
        return tokens

    @property
    def content_type(self) -> str | None:
        """Media type of the body; None if there is no body."""
        has_body = b"transfer-encoding" in self._headers or any(
            int(size) for size in self._headers.get(b"content-length", ())
        )
        if not has_body:
            return None
        return ",".join(self._header_values(b"content-type")).partition(";")[0].strip()

    def is_this_machine(self, host: str) -> bool:
        return len(host) <= _MAX_HOST_LENGTH and _is_this_machine(host, _DEFAULT_PORTS[self.scheme], *self._server)


@lru_cache(maxsize=64)
def _is_this_machine(host: str, default_port: str, server_address: str, server_port: int) -> bool:
    """Return whether a host is a loopback name or address, or the address at which the connection arrived. Other names
    do not count, because a foreign name server can map them to this machine."""
    name, port = _split_host(host)
    if (port or default_port) != str(server_port):
        return False
    if name == "localhost":
        return True
    try:
        address = ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return address.is_loopback or address == _parse_address(server_address)


def _parse_address(text: str) -> IPv4Address | IPv6Address:
    """Parse an address. A dual-stack socket shows IPv4 addresses in an IPv6 form."""
    address = ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _split_host(host: str) -> tuple[str, str]:
    """Return the name and port of a host in a URL."""
    name, _, port = host.rpartition(":")
    has_port = name and not host.endswith("]") and (":" not in name or name.endswith("]"))
    return (name, port) if has_port else (host, "")


def _check_media(client: ClientIdentity) -> None:
    media = client.content_type
    if (
        media is not None
        and media != "application/json"
        and not (media.startswith("application/") and media.endswith("+json"))
    ):
        problem = f"has the Content-Type {media}" if media else "has no Content-Type"
        raise UnsupportedMediaType(
            f"the request body {problem}; send JSON, with the header Content-Type: application/json"
        )


def _unauthorized(*, has_token: bool) -> Unauthorized:
    """Return the refusal. It does not repeat the token that was sent, which may be valid elsewhere."""
    problem = "the token is not that of this home" if has_token else "the request has no token"
    advice = "send the header `Authorization: Bearer TOKEN` with the token that `rota token` prints"
    return Unauthorized(f"{problem}; {advice}")


def _refusal_response(error: RotaError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else None
    return problem_response(error.code, error.http_status, error.message, headers=headers)


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            missing = [(name, value) for name, value in _SECURITY_HEADERS if name not in present]
            message = {**message, "headers": [*message["headers"], *missing]}
        await send(message)

    return send_with_headers
