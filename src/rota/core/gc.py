"""What may be removed: chains that ended long enough ago, and that nothing which stays refers to.

A chain goes whole or not at all, and its last end counts. What refers to it protects it, whatever its own status: the
`after` of a job that stays can be shown and followed for as long as the job is there. So a chain that stays for the
sake of another keeps its own predecessors too.

Most edges point at lower numbers (a batch may name its members in any order), so going down the numbers nearly always
meets whoever refers to a chain before the chain itself. Where it does not, the chain stays for this time, and another
pass finds it free.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.ids import JobId


class GcPolicy(msgspec.Struct, frozen=True, kw_only=True):
    older_than: timedelta = timedelta(days=7)
    interval: timedelta | None = timedelta(days=1)
    """How often it is done unasked; none: only when somebody asks."""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    id: JobId
    jobs: tuple[JobId, ...]
    ended_at: datetime | None
    """When its last job did; none while one of them is active, or what it did is still being written down."""
    referrers: frozenset[JobId] = frozenset()
    """Other chains with a job that comes after one of these."""
    is_named: bool = False
    """Something other than a job's `after` refers to it."""


class Kept(StrEnum):
    """Why a chain stays though it is old enough."""

    REFERENCED = "referenced"
    WORKTREE = "worktree"
    """A worktree of one of its jobs is still there: it may hold work that is nowhere else."""
    FILES = "files"
    """The files of one of its jobs cannot be removed."""


class SortedOut(msgspec.Struct, frozen=True, kw_only=True):
    free: list[Chain]
    """In the order given: nothing that stays refers to these, if each of them goes."""
    referenced: list[Chain]


def sort_out(
    chains: Iterable[Chain], *, until: datetime, gone: Set[JobId], stays: Set[JobId] = frozenset()
) -> SortedOut:
    """Of these chains, those that ended before `until`. `gone` are chains that have been found free before; those that
    `stays` names cannot go for a reason of their own, and are in neither list."""
    free: list[Chain] = []
    referenced: list[Chain] = []
    going: set[JobId] = set()
    for chain in chains:
        if chain.ended_at is None or chain.ended_at >= until or chain.id in stays:
            continue
        if chain.is_named or any(other not in going and other not in gone for other in chain.referrers):
            referenced.append(chain)
        else:
            free.append(chain)
            going.add(chain.id)
    return SortedOut(free=free, referenced=referenced)


def is_freed_later(chain: Chain, gone: Set[JobId]) -> bool:
    """Whether a chain that stayed for the sake of others could go now that these are gone."""
    return not chain.is_named and chain.referrers <= gone
