"""What lists and looks are asked with: where a page begins, how long it is, how long one waits for news."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from msgspec import Meta

from rota.errors import InvalidInput, within

T = TypeVar("T")
F = TypeVar("F")

LONGEST_WAIT = 60
"""Seconds after which somebody who waits for something is answered as it is then."""
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]
PageSize = Annotated[int, Meta(ge=1, le=1000)]


def parsed(field: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    """What a field of the request means; none where nothing is said."""
    with within(f".{field}"):
        return None if text is None else parse(text)


def begins_at(cursor: str | None, parse: Callable[[str], T], first: F) -> T | F:
    """What the cursor names, the `next` of the page before; `first` where there is none. What `parse` cannot read it
    says by ValueError or InvalidInput."""
    if cursor is None:
        return first
    try:
        return parse(cursor)
    except (ValueError, InvalidInput):
        raise InvalidInput(f"not a cursor: {cursor!r}; use the `next` of the page before").under(".cursor") from None
