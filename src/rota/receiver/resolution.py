"""Resolution of host names, and the check of their addresses."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

from rota.blocking import start_thread
from rota.core.address import IpNetwork, parse_literal, refusal_reason
from rota.errors import InvalidInput

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Function that returns the addresses of a name, or raises `OSError`."""


class AddressNotAllowed(InvalidInput):
    """The host has no permitted address."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve the name in a thread of its own, so that a hanging resolver blocks neither other calls nor the exit."""

    def resolve_blocking() -> Sequence[str]:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(str(error)) from None
        return list(dict.fromkeys(str(row[4][0]) for row in rows))

    return await start_thread(resolve_blocking, name="rota-resolve")


async def resolve_permitted(
    host: str, port: int, allow: Sequence[IpNetwork], resolver: Resolver = resolve
) -> Sequence[str]:
    """Return the permitted addresses of the host, or raise `AddressNotAllowed` if there are none."""
    literal = parse_literal(host)
    addresses = [str(literal)] if literal is not None else await resolver(host, port)
    refusals = {address: refusal_reason(ip_address(address), allow) for address in addresses}
    permitted = [address for address, reason in refusals.items() if reason is None]
    if not permitted:
        reasons = "; ".join(reason for reason in refusals.values() if reason is not None)
        raise AddressNotAllowed(reasons or f"{host} has no address")
    return permitted
