"""Queue order: `priority DESC, position ASC, created_at ASC` (INV-004, DEC-005)."""

from __future__ import annotations

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
