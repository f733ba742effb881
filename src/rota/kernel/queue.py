"""Queue order, and unique keys: one active chain for each key.

The order is `priority DESC, position ASC, created_at ASC` (INV-004, DEC-005). A moved job gets a position between two
others. If there is no gap left, the positions of that priority are reassigned: its jobs keep their order with a full
gap between them, and the last job ends up right before the next submitted job.

A chain holds its unique key exclusively from submit until it has ended, including its backoff. A submit with a held key
returns the holder. A chain that continues after its end, by a retry or a rewind, must acquire its key again; if another
chain holds the key, the retry or rewind is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rota.errors import Conflict, InvalidInput, error_path
from rota.ids import JobId, format_job_id
from rota.naming import KEY_RULE, is_key

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


class UniqueKeyHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Holder of a unique key."""

    job: JobId
    chain: JobId


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


def check_unique_key(key: str | None) -> None:
    if key is not None and not is_key(key):
        raise InvalidInput(f"not a usable unique key: {key!r}; use {KEY_RULE}").at_path(".unique")


def collect_unique_keys(requested: Sequence[str | None]) -> list[str]:
    """Return the keys that the jobs of one submit request; each key may occur only once."""
    positions: dict[str, int] = {}
    for n, key in enumerate(requested):
        if key is None:
            continue
        with error_path(f"[{n}]"):
            check_unique_key(key)
            if key in positions:
                conflict = f"jobs {positions[key] + 1} and {n + 1} of the submit have the same unique key, {key!r}"
                raise InvalidInput(f"{conflict}; use a different key for each job").at_path(".unique")
        positions[key] = n
    return list(positions)


def refuse_held_keys(
    jobs: Iterable[tuple[JobId, str | None]],
    holders: Mapping[str, UniqueKeyHolder],
    chains: Collection[JobId],
    *,
    action: str,
) -> None:
    """Raise `Conflict` if a chain that is to continue cannot have its unique key.

    `jobs` are the last jobs of these chains, each with its key.
    """
    jobs_by_key: dict[str, JobId] = {}
    for job, key in jobs:
        if key is None:
            continue
        if key in jobs_by_key:
            raise Conflict(
                f"cannot {action}: {format_job_id(jobs_by_key[key])} and {format_job_id(job)} have the same unique key,"
                f" {key!r}, and only one of them can be active; submit the work again instead"
            )
        jobs_by_key[key] = job
        holder = holders.get(key)
        if holder is not None and holder.chain not in chains:
            name = format_job_id(holder.job)
            raise Conflict(
                f"cannot {action} {format_job_id(job)}: its unique key {key!r} is held by {name}; "
                f"run `rota wait {name}` or `rota cancel {name}` first"
            )
