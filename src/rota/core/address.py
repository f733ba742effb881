"""Webhook addresses: which URLs are valid and which IP addresses are refused.

Loopback and private networks are allowed, because most receivers of a scheduler run there. Refused are addresses that
no receiver has or that give away the machine's own credentials: link-local addresses, cloud metadata services,
unspecified addresses, multicast and broadcast. A host name proves nothing, so the sender checks the resolved address
again at each connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

from rota.errors import InvalidInput
from rota.mask import MASK, mask_query

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

MAX_URL_LENGTH = 2048
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
_METADATA = frozenset(
    map(
        ip_address,
        ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    )
)
_BROADCAST = ip_address("255.255.255.255")
_THIS_HOST = ip_network("0.0.0.0/8")
_IPV4_EMBEDDING = (ip_network("64:ff9b::/96"), ip_network("::/96"))
_NUMERIC_HOST = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?$", re.IGNORECASE)
"""Last label of a host that a resolver reads as a number."""


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """A validated URL, split into its parts."""

    is_secure: bool
    host: str
    """Host to resolve: a name, or an address without brackets."""
    port: int
    authority: str
    """Value of the `Host` header."""
    target: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse a URL, or raise `InvalidInput` with the reason."""
    if len(text) > MAX_URL_LENGTH:
        raise InvalidInput(f"the URL has {len(text)} characters; shorten it to at most {MAX_URL_LENGTH}")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput(
            f"not a usable URL: {_mask_url(text)!r}; percent-encode spaces and non-ASCII characters, and write an"
            " internationalized host name as xn--…"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; the host or port is invalid") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "a URL with a user or password is refused; remove them: messages are authenticated by their signature"
        )
    if "#" in text:
        raise InvalidInput(f"{_mask_url(text)}: the part after # is never sent to a server; remove it")
    if port == 0:
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; port 0 is not valid")
    if not host or "\\" in text:
        raise InvalidInput(f"not a usable URL: {_mask_url(text)}; the host is missing")
    is_secure = parts.scheme == "https"
    shown = f"[{host}]" if ":" in host else host
    return Url(
        is_secure=is_secure,
        host=_check_host(host, text),
        port=port or (443 if is_secure else 80),
        authority=shown if port is None else f"{shown}:{port}",
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )


def _mask_url(text: str) -> str:
    """Return a refused URL without its query and without anything that can be a user and password."""
    return mask_query(re.sub(r"//.*@", f"//{MASK}@", text))


def _check_host(host: str, url: str) -> str:
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        raise InvalidInput(f"{host} is refused: it is a metadata service, which exposes credentials")
    if parse_literal(name) is None:
        if ":" in name or "%" in name or not name:
            raise InvalidInput(f"not a usable URL: {_mask_url(url)}; the host is invalid")
        if _NUMERIC_HOST.match(name.rpartition(".")[2]):
            raise InvalidInput(
                f"{host} is not a host name; write the address as four numbers, for example http://127.0.0.1/"
            )
    return name


def parse_literal(host: str) -> IpAddress | None:
    """Return the host as an address if it is an address literal."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def refusal_reason(address: IpAddress, allow: Sequence[IpNetwork] = ()) -> str | None:
    """Return why messages to this address are refused, or `None` if they are allowed."""
    unwrapped = _unwrap_address(address)
    if any(network.version == unwrapped.version and unwrapped in network for network in allow):
        return None
    if unwrapped in _METADATA:
        kind = "a metadata service, which exposes credentials"
    elif unwrapped.is_link_local:
        kind = "link-local"
    elif unwrapped.is_multicast:
        kind = "multicast"
    elif unwrapped.is_unspecified or (unwrapped.version == 4 and unwrapped in _THIS_HOST):
        kind = "an unspecified address"
    elif unwrapped == _BROADCAST:
        kind = "the broadcast address"
    else:
        return None
    return f"{address} is refused: it is {kind}; add its network to webhooks.allow to permit it"


def _unwrap_address(address: IpAddress) -> IpAddress:
    """Return the IPv4 address embedded in an IPv6 address, or the address without its scope id."""
    if not isinstance(address, IPv6Address):
        return address
    if address.scope_id is not None:
        address = IPv6Address(int(address))
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    has_embedded = int(address) > 1 and any(address in network for network in _IPV4_EMBEDDING)
    return IPv4Address(int(address) & 0xFFFFFFFF) if has_embedded else address


def parse_network(text: str) -> IpNetwork:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(f"not a network: {text!r}; write it like 169.254.1.0/24") from None
