"""Where a page of a list begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rota.errors import InvalidInput

T = TypeVar("T")
F = TypeVar("F")


def begins_at(cursor: str | None, parse: Callable[[str], T], first: F) -> T | F:
    """What the cursor names, the `next` of the page before; `first` where there is none."""
    if cursor is None:
        return first
    try:
        return parse(cursor)
    except InvalidInput:
        raise InvalidInput(f"not a cursor: {cursor!r}; use the `next` of the page before").under(".cursor") from None
