"""Locks: keys held shared or exclusive by running jobs.

A lock is fair: no job that wants it is passed by a later job that conflicts with it. Each key has one queue, in queue
order, of the jobs that passed every earlier gate. A job may acquire the key if no holder conflicts with it and no
conflicting job precedes it: a later job passes an earlier job only if both are shared. So a stream of shared holders
cannot starve an exclusive waiter, and an earlier job that still waits for a pool keeps its place.

However long the queue of a key is, two facts about it decide (`LockFront`): its first job, and its first exclusive job.
Locks are acquired with the claim and released when their owner ends; they do not expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.kernel.queue import Rank
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Verdict, Wait, WaitKind


class LockMode(StrEnum):
    """Whether other jobs may hold the lock at the same time."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class Lock(msgspec.Struct, frozen=True, kw_only=True, order=True):
    key: str
    mode: LockMode = LockMode.EXCLUSIVE


def phase_lock(phase: str, flow: str) -> Lock:
    """Return the lock that serializes the jobs of a phase and flow that are not parallelizable."""
    return Lock(key=f"phase/{phase}/{flow}")


class LockFront(msgspec.Struct, frozen=True, kw_only=True):
    """State of a key that decides which job may acquire it."""

    held: LockMode | None = None
    """Mode in which running jobs hold the key; exclusive if any does."""
    first: Rank | None = None
    """The first contender."""
    first_exclusive: Rank | None = None
    """The first contender for exclusive use."""


def _min_rank(current: Rank | None, candidate: Rank) -> Rank:
    return candidate if current is None or candidate < current else current


class LockBoard:
    """Fronts of the keys that matter to one tick. Jobs join after they pass the earlier gates."""

    def __init__(self, fronts: Mapping[str, LockFront]) -> None:
        self._fronts = dict(fronts)

    def enqueue(self, rank: Rank, locks: Iterable[Lock]) -> None:
        for lock in locks:
            front = self._fronts.get(lock.key, LockFront())
            exclusive = front.first_exclusive
            if lock.mode is LockMode.EXCLUSIVE:
                exclusive = _min_rank(exclusive, rank)
            self._fronts[lock.key] = LockFront(
                held=front.held, first=_min_rank(front.first, rank), first_exclusive=exclusive
            )

    def _can_acquire(self, rank: Rank, lock: Lock) -> bool:
        front = self._fronts.get(lock.key, LockFront())
        if lock.mode is LockMode.EXCLUSIVE:
            return front.held is None and (front.first is None or rank <= front.first)
        return front.held is not LockMode.EXCLUSIVE and (front.first_exclusive is None or rank <= front.first_exclusive)

    def judge(self, rank: Rank, locks: Sequence[Lock]) -> Verdict:
        unavailable = [lock.key for lock in locks if not self._can_acquire(rank, lock)]
        if not unavailable:
            return PASS
        return Wait(
            status=Status.WAITING_ON_LOCKS,
            kind=WaitKind.LOCKS,
            detail="waiting on locks",
            on=tuple(f"lock:{key}" for key in unavailable),
        )
