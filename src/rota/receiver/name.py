"""Names to addresses, and which of them may be connected to."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

from rota.aside import begin
from rota.core.address import Network, literal, refusal
from rota.errors import InvalidInput

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name; an `OSError` where it has none."""


class Refused(InvalidInput):
    """The name leads to no address that may be connected to."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """A resolver that does not answer holds up neither others nor the end."""

    def ask() -> Sequence[str]:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise OSError(str(error)) from None
        return list(dict.fromkeys(str(row[4][0]) for row in rows))

    return await begin(ask, name="rota-resolve")


async def permitted(host: str, port: int, allow: Sequence[Network], ask: Resolve = resolve) -> Sequence[str]:
    """The addresses that may be connected to; there is at least one."""
    given = literal(host)
    addresses = [str(given)] if given is not None else await ask(host, port)
    refusals = {each: refusal(ip_address(each), allow) for each in addresses}
    open_to_us = [each for each, why in refusals.items() if why is None]
    if not open_to_us:
        whys = "; ".join(why for why in refusals.values() if why is not None)
        raise Refused(whys or f"{host} has no address")
    return open_to_us
