"""JSON in a row, read with care."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def readable(text: str, kind: type[T], otherwise: T) -> T:
    """A record that cannot be read is shown without that part: it must not hide the others from a list."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return otherwise
