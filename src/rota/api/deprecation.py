"""Endpoints that are going away say so with every answer, refusals too (CON-004).

Deprecation: @1794787200                                  since when (RFC 9745)
Sunset: Fri, 31 Dec 2027 23:59:59 GMT                     until when they are there at least (RFC 8594)
Link: </api/jobs/job-24>; rel="successor-version"         what to ask instead
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

from rota.api.endpoint import Endpoint, Handle

log = logging.getLogger("rota.api")

DEPRECATED = datetime(2026, 11, 16, tzinfo=UTC)
SUNSET = datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC)
_KINDS = {"job_id": "job", "batch_id": "group"}
"""Places in which a bare number may stand, and what it is the number of."""


_TELLS = {
    "Deprecation": f"`@{DEPRECATED.timestamp():.0f}`: since when there is something better (RFC 9745).",
    "Sunset": f"`{format_datetime(SUNSET, usegmt=True)}`: until when this is there at least (RFC 8594).",
    "Link": "The path to ask instead, as `successor-version`.",
}


def deprecated(method: str, path: str, handle: Handle, successor: str, **more: Any) -> Endpoint:
    return Endpoint(method, path, handle, is_deprecated=True, successor=successor, tells=_TELLS, **more)


def headers_of(endpoint: Endpoint, path: Mapping[str, str]) -> dict[str, str]:
    successor = (endpoint.successor or "/").format_map({name: _place(name, value) for name, value in path.items()})
    return {
        "Deprecation": f"@{DEPRECATED.timestamp():.0f}",
        "Sunset": format_datetime(SUNSET, usegmt=True),
        "Link": f'<{successor}>; rel="successor-version"',
    }


def _place(name: str, value: str) -> str:
    full = f"{_KINDS[name]}-{value}" if name in _KINDS and value.isascii() and value.isdigit() else value
    return quote(full, safe="")


class Notes:
    """Says once of each deprecated endpoint that it is asked: who runs Rota need not be who wrote the client."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def take(self, endpoint: Endpoint) -> None:
        name = (endpoint.method, endpoint.path)
        if name in self._said:
            return
        self._said.add(name)
        log.warning(
            "%s %s is deprecated and goes after %s; its client is to ask %s",
            *name, SUNSET.date(), endpoint.successor,
        )  # fmt: skip
