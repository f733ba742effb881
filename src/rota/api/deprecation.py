"""Deprecation headers in every response of a deprecated endpoint, refusals included (CON-004).

Deprecation: @1794787200                                  time of the deprecation (RFC 9745)
Sunset: Fri, 31 Dec 2027 23:59:59 GMT                     earliest time of the removal (RFC 8594)
Link: </api/jobs/job-24>; rel="successor-version"         replacement
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

from rota.api.endpoint import Endpoint, Handler

log = logging.getLogger("rota.api")

DEPRECATED = datetime(2026, 11, 16, tzinfo=UTC)
SUNSET = datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC)
_ID_PREFIXES = {"job_id": "job", "batch_id": "group"}
"""Path parameters that can be a bare number, with the prefix of their ids."""

_RESPONSE_HEADERS = {
    "Deprecation": f"`@{DEPRECATED.timestamp():.0f}`: time of the deprecation (RFC 9745).",
    "Sunset": f"`{format_datetime(SUNSET, usegmt=True)}`: earliest time of the removal (RFC 8594).",
    "Link": "Path of the replacement, as `successor-version`.",
}


def deprecated_endpoint(method: str, path: str, handler: Handler, successor: str, **options: Any) -> Endpoint:
    return Endpoint(
        method, path, handler, is_deprecated=True, successor=successor, response_headers=_RESPONSE_HEADERS, **options
    )


def deprecation_headers(endpoint: Endpoint, path_values: Mapping[str, str]) -> dict[str, str]:
    successor = (endpoint.successor or "/").format_map(
        {name: _format_path_value(name, value) for name, value in path_values.items()}
    )
    return {
        "Deprecation": f"@{DEPRECATED.timestamp():.0f}",
        "Sunset": format_datetime(SUNSET, usegmt=True),
        "Link": f'<{successor}>; rel="successor-version"',
    }


def _format_path_value(name: str, value: str) -> str:
    full = f"{_ID_PREFIXES[name]}-{value}" if name in _ID_PREFIXES and value.isascii() and value.isdigit() else value
    return quote(full, safe="")


class DeprecationLog:
    """Logs the first use of each deprecated endpoint, because the operator of Rota may not be the author of the
    client."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def warn_once(self, endpoint: Endpoint) -> None:
        name = (endpoint.method, endpoint.path)
        if name in self._logged:
            return
        self._logged.add(name)
        log.warning(
            "%s %s is deprecated and can be removed after %s; use %s instead", *name, SUNSET.date(), endpoint.successor
        )
