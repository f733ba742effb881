"""Who may ask over TCP. Around the application there, and nowhere else: the socket is trusted by its file's mode.

    the Host is not one of ours                  421   a name that suddenly means this machine (DNS rebinding)
    a page of another origin asks                403   also before its browser asks for leave (CSRF, CORS)
    no token, or another one                     401   but for documents that are the same for everybody
    a body that is not said to be JSON           415   a form of any page can send all else

They are asked in this order: a page from elsewhere does not even learn that a token is missing. No answer is kept by a
cache, shown in a frame, or read by another site.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.api.problem import Json, problem
from rota.errors import ForeignOrigin, Misdirected, RotaError, Unauthorized, UnsupportedMedia
from rota.token import Token
from rota.wire.health import HealthForm

IsPublic = Callable[[str, str], bool]
"""Whether what is at a path can be asked for by a method without a token."""

_LONGEST_HOST = 255
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_PRIVATE = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    def __init__(
        self, app: ASGIApp, token: Token, *, is_public: IsPublic, allowed: Callable[[], Sequence[str]],
        cut: Callable[[Scope], None],
    ) -> None:  # fmt: skip
        """`allowed` are the names in the configuration; `cut` ends what other requests than this one have opened, when
        their token is good no longer."""
        self._app = app
        self._token = token
        self._is_public = is_public
        self._allowed = allowed
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(scope)
        private = _private(send)
        try:
            if self._token.look():
                self._cut(scope)
            self._check_host(asked)
            self._check_origin(asked)
            is_known = any(map(self._token.is_right, asked.tokens))
            if not is_known and asked.is_health:
                await Json(HealthForm())(scope, receive, private)
                return
            if not is_known and not self._is_public(asked.method, asked.path):
                raise _unauthorized(has_one=bool(asked.tokens))
            _check_media(asked)
        except RotaError as error:
            await _refusal(error)(scope, receive, private)
            return
        await self._app(scope, receive, private)

    def _check_host(self, asked: Asked) -> None:
        if asked.host is None or not self._is_ours(asked, asked.host):
            named = "no host" if asked.host is None else f"{asked.host!r}"
            raise Misdirected(
                f"the request is for {named}, which is no name of this scheduler; if it is to be one,"
                " add it to server.allowed_hosts in rota.toml"
            )

    def _is_ours(self, asked: Asked, host: str) -> bool:
        return asked.is_this_machine(host) or self._is_allowed(host)

    def _is_allowed(self, host: str) -> bool:
        """A name without a port stands for all of them: a proxy may listen on any."""
        names = [name.lower() for name in self._allowed()]
        return host in names or _split(host)[0] in names

    def _check_origin(self, asked: Asked) -> None:
        for origin in asked.origins:
            scheme, _, host = origin.partition("://")
            is_same = scheme == asked.scheme and host == asked.host
            if not is_same and not (scheme in _DEFAULT_PORTS and self._is_allowed(host)):
                raise ForeignOrigin(f"a page of {origin} asks; only pages of the scheduler's own are answered")
        if asked.is_from_another_site and not self._is_page(asked):
            raise ForeignOrigin("a page of another site asks; only pages of the scheduler's own are answered")

    def _is_page(self, asked: Asked) -> bool:
        """Somebody follows a link to a page with nothing of this home in it; there he is asked for the token."""
        return asked.is_navigation and not asked.is_health and self._is_public(asked.method, asked.path)


class Asked:
    """What of a request says who asks."""

    def __init__(self, scope: Scope) -> None:
        found: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name, []).append(value)
        self._found = found
        self._server: tuple[str, int] = scope["server"]
        self.method: str = scope["method"]
        self.scheme: str = scope["scheme"]
        self.path: str = scope["path"]

    def _texts(self, name: bytes) -> list[str]:
        return [value.decode("latin-1").strip().lower() for value in self._found.get(name, ())]

    @property
    def host(self) -> str | None:
        """None where it is not said, or twice."""
        texts = self._texts(b"host")
        return texts[0] if len(texts) == 1 and texts[0] else None

    @property
    def origins(self) -> list[str]:
        return self._texts(b"origin")

    @property
    def is_from_another_site(self) -> bool:
        """As browsers say it. Another port of this machine is the same site to them, and not to us."""
        return any(site in ("cross-site", "same-site") for site in self._texts(b"sec-fetch-site"))

    @property
    def is_navigation(self) -> bool:
        """Somebody followed a link."""
        return self._texts(b"sec-fetch-mode") == ["navigate"]

    @property
    def is_health(self) -> bool:
        return self.path == "/health" and self.method in ("GET", "HEAD")

    @property
    def tokens(self) -> list[bytes]:
        given = list(self._found.get(b"x-api-key", ()))
        for value in self._found.get(b"authorization", ()):
            scheme, _, rest = value.partition(b" ")
            if scheme.lower() == b"bearer":
                given.append(rest.strip())
        return given

    @property
    def media(self) -> str | None:
        """What its body is said to be; none where it has none."""
        has_body = b"transfer-encoding" in self._found or any(
            int(size) for size in self._found.get(b"content-length", ())
        )
        if not has_body:
            return None
        return ",".join(self._texts(b"content-type")).partition(";")[0].strip()

    def is_this_machine(self, host: str) -> bool:
        return len(host) <= _LONGEST_HOST and _is_this_machine(host, _DEFAULT_PORTS[self.scheme], *self._server)


@lru_cache(maxsize=64)
def _is_this_machine(host: str, default_port: str, own: str, own_port: int) -> bool:
    """By a loopback name or address, or by the address that the connection came in at; never by a name of which
    somebody's name server says what it means."""
    name, port = _split(host)
    if (port or default_port) != str(own_port):
        return False
    if name == "localhost":
        return True
    try:
        address = ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return address.is_loopback or address == _address(own)


def _address(text: str) -> IPv4Address | IPv6Address:
    """A socket for both kinds of addresses shows the older ones in a form of the newer."""
    address = ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _split(host: str) -> tuple[str, str]:
    """Name and port, as a URL has them."""
    name, _, port = host.rpartition(":")
    has_port = name and not host.endswith("]") and (":" not in name or name.endswith("]"))
    return (name, port) if has_port else (host, "")


def _check_media(asked: Asked) -> None:
    media = asked.media
    if (
        media is not None
        and media != "application/json"
        and not (media.startswith("application/") and media.endswith("+json"))
    ):
        said = f"is said to be {media}" if media else "is not said to be JSON"
        raise UnsupportedMedia(f"the request's body {said}; send JSON, with the header Content-Type: application/json")


def _unauthorized(*, has_one: bool) -> Unauthorized:
    """What was sent is not said again: it may be a token of somewhere else."""
    what = "this is not the token of this home" if has_one else "this needs the token of the home"
    return Unauthorized(f"{what}; send the header `Authorization: Bearer TOKEN`, and `rota token` prints it")


def _refusal(error: RotaError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else None
    return problem(error.code, error.http_status, error.message, headers=headers)


def _private(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            more = [(name, value) for name, value in _PRIVATE if name not in given]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent
