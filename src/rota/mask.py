"""Mask secrets in URLs before they are printed, logged or sent to a client."""

from __future__ import annotations

import re
from urllib.parse import unquote

MASK = "***"
_STORE_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:@/]*)(?P<password>:[^@/]*)?@)?(?P<target>[^@?]*)"
)
"""Part before the query, as libpq splits it. A password can contain `?`."""
_HOST_AND_PORT = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
_MAX_PORT = 65535
_MAX_PORT_DIGITS = 5
_SHOWN_PARAMETERS = frozenset(
    {
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "dbname",
        "fallback_application_name",
        "gssencmode",
        "host",
        "hostaddr",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "load_balance_hosts",
        "port",
        "replication",
        "search_path",
        "sslcert",
        "sslcrl",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
"""Parameters that never hold a secret; the value of any other parameter is masked."""
_USER_PASSWORD = re.compile(r"(://[^\s:@/]*):[^\s@]*@")
_QUERY_PASSWORD = re.compile(r"([?&][^\s=&]*(?:password|secret|scram)[^\s=&]*)=[^\s\"']*")
_ASSIGNMENT = re.compile(r"(?:passw|pwd|secret|scram)[^=]*=", re.IGNORECASE)
"""Password outside a URL, as in the libpq string `host=db password=…`."""


def mask_store_url(url: str) -> str:
    """Return the URL of a store without its password.

    A URL that libpq would not accept can contain the password anywhere, so everything after its scheme is masked.
    """
    match = _STORE_URL.match(url)
    rest = url if match is None else url[match.end() :]
    if match is None or rest[:1] not in ("", "?"):
        return _mask_malformed(url)
    if not url.isprintable() or not has_numeric_port(url):
        return f"{match['scheme']}{MASK}"
    user = "" if match["user"] is None else f"{match['user']}{':' + MASK if match['password'] else ''}@"
    return f"{match['scheme']}{user}{match['target']}{_mask_parameters(rest)}"


def has_numeric_port(url: str) -> bool:
    """Return whether each host of a store's URL has no port or a number. Anything else can be part of a password."""
    return all(_HOST_AND_PORT.fullmatch(host) for host in _split_hosts(url))


def has_port_in_range(url: str) -> bool:
    """Return whether each numeric port of a store's URL is a TCP port."""
    ports = [match[2][1:] for host in _split_hosts(url) if (match := _HOST_AND_PORT.fullmatch(host)) and match[2]]
    return all(len(port) <= _MAX_PORT_DIGITS and 1 <= int(port) <= _MAX_PORT for port in ports if port)


def _split_hosts(url: str) -> list[str]:
    match = _STORE_URL.match(url)
    return ("" if match is None else match["target"].partition("/")[0]).split(",")


def mask_passwords(message: str) -> str:
    """Return the message with the password masked in every URL that it quotes."""
    return _QUERY_PASSWORD.sub(rf"\1={MASK}", _USER_PASSWORD.sub(rf"\1:{MASK}@", message))


def has_masked_password(url: str) -> bool:
    """Return whether the URL contains a mask instead of a password, because it was copied from output."""
    return f":{MASK}@" in url or f"={MASK}" in url


def mask_query(url: str) -> str:
    """Return the URL of a webhook without its query, which often contains a token."""
    base, separator, _ = url.partition("?")
    return f"{base}?{MASK}" if separator else base


def _mask_malformed(url: str) -> str:
    if not re.search(r":.*[@?]", url, re.DOTALL) and not _ASSIGNMENT.search(url):  # a file path
        return url
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/+", url)
    return f"{scheme[0] if scheme else ''}{MASK}"


def _mask_parameters(query: str) -> str:
    """Mask the first parameter that can hold a secret and everything after it.

    The rest can belong to the secret, because an unescaped `&` in a password starts a new parameter.
    """
    shown: list[str] = []
    for field in query.split("&"):
        name, equals, _ = field.partition("=")
        if field.strip("?") and unquote(name.removeprefix("?")) not in _SHOWN_PARAMETERS:
            mark = "?" if field.startswith("?") else ""
            return "&".join([*shown, f"{name}={MASK}" if equals else f"{mark}{MASK}"])
        shown.append(field)
    return "&".join(shown)
