"""Query parameters that several endpoints share: page size, cursor and wait time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from rota.errors import InvalidInput, error_path

T = TypeVar("T")
F = TypeVar("F")

MAX_WAIT_SECONDS = 60
"""Maximum seconds that a request waits before it is answered with the current state."""
WaitSeconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)]


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds = MAX_WAIT_SECONDS
    """Maximum seconds to wait until everything has ended."""


class CancelQuery(WaitQuery, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Return what would be cancelled, without cancelling it."""


PageSize = Annotated[int, Meta(ge=1, le=1000)]


def parse_field(field: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    """Parse a field of a request; return None if it is absent. Errors get the name of the field as their path."""
    with error_path(f".{field}"):
        return None if text is None else parse(text)


def parse_cursor(cursor: str | None, parse: Callable[[str], T], default: F) -> T | F:
    """Parse a cursor, which is the `next` of the previous page. Return `default` if there is none. `parse` raises
    ValueError or InvalidInput for an invalid cursor."""
    if cursor is None:
        return default
    try:
        return parse(cursor)
    except (ValueError, InvalidInput):
        message = f"invalid cursor {cursor!r}; use the `next` of the previous page"
        raise InvalidInput(message).at_path(".cursor") from None
