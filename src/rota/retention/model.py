"""Retention: which ended chains may be removed.

A chain is removed as a whole or not at all. It is collectable when its last job ended long enough ago and no kept job
refers to it. Any reference protects it, whatever the status of the referring job, because the `after` of a kept job
must still be shown and followed. So a chain that is kept for the sake of another keeps its own predecessors too.

Most edges point at lower numbers (a batch may name its members in any order), so a pass in descending order nearly
always meets the referrers of a chain before the chain itself. Where it does not, the chain is kept this time, and the
next pass collects it.
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
    """Time between automatic collections; `None` collects only on request."""


class EndedChain(msgspec.Struct, frozen=True, kw_only=True):
    id: JobId
    jobs: tuple[JobId, ...]
    ended_at: datetime | None
    """End of its last job; `None` while one of its jobs is active, or while its files are still being written."""
    referrers: frozenset[JobId] = frozenset()
    """Other chains with a job that comes after one of these jobs."""
    is_referenced_elsewhere: bool = False
    """Whether a reference other than a job's `after` exists."""


class KeptReason(StrEnum):
    """Reason why a chain is kept although it is old enough."""

    REFERENCED = "referenced"
    WORKTREE = "worktree"
    """A worktree of one of its jobs still exists: it may hold work that exists nowhere else."""
    FILES = "files"
    """The files of one of its jobs cannot be removed."""


class CollectablePartition(msgspec.Struct, frozen=True, kw_only=True):
    collectable: list[EndedChain]
    """Chains without a kept referrer, provided that all of them are removed. In the order given."""
    referenced: list[EndedChain]


def partition_collectable(
    chains: Iterable[EndedChain], *, until: datetime, removed: Set[JobId], kept: Set[JobId] = frozenset()
) -> CollectablePartition:
    """Partition the chains that ended before `until`.

    `removed` are chains that an earlier call found collectable. Chains in `kept` cannot be removed for another reason;
    they are in neither list.
    """
    collectable: list[EndedChain] = []
    referenced: list[EndedChain] = []
    removable: set[JobId] = set()
    for chain in chains:
        if chain.ended_at is None or chain.ended_at >= until or chain.id in kept:
            continue
        if chain.is_referenced_elsewhere or any(
            referrer not in removable and referrer not in removed for referrer in chain.referrers
        ):
            referenced.append(chain)
        else:
            collectable.append(chain)
            removable.add(chain.id)
    return CollectablePartition(collectable=collectable, referenced=referenced)


def is_now_collectable(chain: EndedChain, removed: Set[JobId]) -> bool:
    """Return whether a chain that was kept for its referrers is collectable after these chains were removed."""
    return not chain.is_referenced_elsewhere and chain.referrers <= removed
