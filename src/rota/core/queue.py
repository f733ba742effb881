"""Queue order: `priority DESC, position ASC, created_at ASC` (INV-004, DEC-005).

A move gives a job a position between two others. Where they leave no room, the gaps of that priority are made anew:
its jobs keep their order and stand a gap apart, the last right before whatever is submitted next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.ids import JobId

POSITION_GAP = 100
"""Positions are integers with room between them, so that a move need not renumber the rest."""


class Rank(NamedTuple):
    """A job's place in the one total order; the smaller goes first."""

    precedence: int
    """Priority negated, so that the order is ascending throughout, in Python as in SQL."""
    position: int
    created_at: int
    """Microseconds since the epoch, as stored."""
    job: JobId


def position_of(job: JobId) -> int:
    """The place at the end of the line: ids only grow, so arrival order and gaps come for free."""
    return job * POSITION_GAP


def position_between(lower: int | None, upper: int) -> int | None:
    """Behind the one and before the other, in the middle of the room there is; none where there is none. With nobody
    before it a job stands a gap before the first."""
    if lower is None:
        return upper - POSITION_GAP
    return (lower + upper) // 2 if upper - lower > 1 else None


def position_behind(last: int, upcoming: JobId) -> int | None:
    """Behind the last, and before whatever is submitted from now on; in small steps, for many may go there before the
    next submit moves that bound."""
    room = position_of(upcoming) - last
    return last + max(1, min(POSITION_GAP, room // 8)) if room > 1 else None


def are_told_apart(positions: Sequence[int]) -> bool:
    """Their order is that of their positions alone: they can share these out anew."""
    return len(set(positions)) == len(positions)
