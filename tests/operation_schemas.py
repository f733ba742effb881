"""JSON forms of operation_contracts.py."""

from __future__ import annotations

from enum import Enum

import msgspec


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that an implementation got."""

    arguments: str
    """Their Python form."""


class NumberPage(msgspec.Struct, frozen=True):
    """A page of numbers."""

    numbers: list[int]
    """The numbers."""
    next: str | None


EXAMPLES = (Arguments(arguments="{}"), NumberPage(numbers=[1], next=None))
