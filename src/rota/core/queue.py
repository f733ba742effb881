"""Queue order: `priority DESC, position ASC, created_at ASC` (INV-004, DEC-005).

A moved job gets a position between two others. If there is no gap left, the positions of that priority are reassigned:
its jobs keep their order with a full gap between them, and the last job ends up right before the next submitted job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.ids import JobId

POSITION_GAP = 100
"""Distance between positions, so that a move need not renumber other jobs."""


class Rank(NamedTuple):
    """Position of a job in the total order; the smaller rank goes first."""

    precedence: int
    """Negated priority, so that the order is ascending in Python as in SQL."""
    position: int
    created_at: int
    """Microseconds since the epoch, as stored."""
    job: JobId


FIRST_RANK = (-(2**62), -(2**62), 0, 0)
"""Rank before every job."""
LAST_RANK = (2**62, 2**62, 2**62, 2**62)
"""Rank behind every job."""


def priority_bounds(precedence: int) -> tuple[Rank, Rank]:
    """Return a rank before and a rank behind all jobs of a priority."""
    (_, *first), (_, *last) = FIRST_RANK, LAST_RANK
    return Rank._make((precedence, *first)), Rank._make((precedence, *last))


def initial_position(job: JobId) -> int:
    """Return the position at the end of the queue. Ids only grow, so they give both the arrival order and the gaps."""
    return job * POSITION_GAP


def position_between(lower: int | None, upper: int) -> int | None:
    """Return the middle position between two jobs, or `None` if there is no gap. Without a lower bound, return a
    position one gap before `upper`."""
    if lower is None:
        return upper - POSITION_GAP
    return (lower + upper) // 2 if upper - lower > 1 else None


def position_after(last: int, next_job: JobId) -> int | None:
    """Return a position after `last` and before every job submitted later, or `None` if there is none. Steps are small,
    because many jobs may move there before the next submit raises the bound."""
    room = initial_position(next_job) - last
    return last + max(1, min(POSITION_GAP, room // 8)) if room > 1 else None


def has_distinct_positions(positions: Sequence[int]) -> bool:
    """Return whether positions alone determine the order, so that they can be redistributed."""
    return len(set(positions)) == len(positions)
