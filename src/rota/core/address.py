"""Addresses that messages are sent to: which URLs can be used, and which addresses are refused.

Loopback and private networks are where most receivers of a scheduler are. What is refused is what no receiver has and
what gives away the machine's own credentials: link-local addresses, the metadata services of clouds, and addresses that
are nobody's or everybody's. A name says nothing of this, so it is asked again of the address at each connect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

from rota.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_URL = 2048
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
_CARRY_IPV4 = (ip_network("64:ff9b::/96"), ip_network("::/96"))
_ODD = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?$", re.IGNORECASE)
"""How the last part of a host looks that a resolver takes for a number."""


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that can be used, taken apart."""

    is_secure: bool
    host: str
    """As it is looked up: a name, or an address without brackets."""
    port: int
    authority: str
    """As the `Host` header says it."""
    target: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}"


def read_url(text: str) -> Url:
    """The URL, or a refusal that says what is wrong with it."""
    if len(text) > LONGEST_URL:
        raise InvalidInput(f"the URL has {len(text)} characters; it can have {LONGEST_URL} at most")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput(
            f"not a usable URL: {_shown(text)!r}; percent-encode spaces and other than ASCII characters, and write a"
            " host that has them as xn--…"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"not a usable URL: {_shown(text)}: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidInput(f"not a usable URL: {_shown(text)}; it begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("a URL with a user or password is refused; the receiver knows Rota by the signature")
    if "#" in text:
        raise InvalidInput(f"{text}: what follows # never reaches a server; leave it out")
    if port == 0:
        raise InvalidInput(f"not a usable URL: {text}; nobody listens at port 0")
    if not host or "\\" in text:
        raise InvalidInput(f"not a usable URL: {text}; it names no host")
    is_secure = parts.scheme == "https"
    shown = f"[{host}]" if ":" in host else host
    return Url(
        is_secure=is_secure,
        host=_host(host, text),
        port=port or (443 if is_secure else 80),
        authority=shown if port is None else f"{shown}:{port}",
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )


def _shown(text: str) -> str:
    """Without the password that one which cannot be read may have."""
    return re.sub(r"//[^/@]*@", "//…@", text)


def _host(host: str, url: str) -> str:
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        raise InvalidInput(f"{host} is refused: it is a metadata service, which gives away credentials")
    if literal(name) is None:
        if ":" in name or "%" in name or not name:
            raise InvalidInput(f"not a usable URL: {url}; its host cannot be read")
        if _ODD.match(name.rpartition(".")[2]):
            raise InvalidInput(f"{host} is no name: write the address as four numbers, as in http://127.0.0.1/")
    return name


def literal(host: str) -> Address | None:
    """The address that a host is already."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def refusal(address: Address, allow: Sequence[Network] = ()) -> str | None:
    """Why nothing is sent there; none where it may be."""
    bare = _bare(address)
    if any(each.version == bare.version and bare in each for each in allow):
        return None
    if bare in _METADATA:
        why = "a metadata service, which gives away credentials"
    elif bare.is_link_local:
        why = "link-local"
    elif bare.is_multicast:
        why = "multicast"
    elif bare.is_unspecified or (bare.version == 4 and bare in _THIS_HOST):
        why = "the address of nobody"
    elif bare == _BROADCAST:
        why = "the address of everybody"
    else:
        return None
    return f"{address} is refused: it is {why}; webhooks.allow lets networks through"


def _bare(address: Address) -> Address:
    """Without what an IPv6 address is wrapped around."""
    if not isinstance(address, IPv6Address):
        return address
    if address.scope_id is not None:
        address = IPv6Address(int(address))
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    is_carrier = int(address) > 1 and any(address in network for network in _CARRY_IPV4)
    return IPv4Address(int(address) & 0xFFFFFFFF) if is_carrier else address


def read_network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(f"not a network: {text!r}; write it as 169.254.1.0/24") from None
