"""Locks: keys held shared or exclusive by running jobs. All there is to know about them.

Each key has one queue, in queue order, of the jobs that have passed every gate before this one. A job may
have the key when no holder is in its way and nobody stands before it whom it may not pass: a later job
passes an earlier one only if both are shared. So a stream of shared holders cannot starve an exclusive
waiter, and an earlier job that still waits for a pool keeps its turn.

Two facts about a key's queue decide everything, however long it is (`Front`): the first job in it, and the
first that wants it exclusively. Locks are taken with the claim and end with their owner, never by age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.core.queue import Rank
from rota.core.status import Status
from rota.core.verdict import PASS, Verdict, Wait
from rota.core.wait import WaitKind


class LockMode(StrEnum):
    """Whether others may have the lock at the same time."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class Lock(msgspec.Struct, frozen=True, kw_only=True, order=True):
    key: str
    mode: LockMode = LockMode.EXCLUSIVE


def phase_lock(phase: str, flow: str) -> Lock:
    """What serializes the jobs of one phase and flow that are not parallelizable."""
    return Lock(key=f"phase/{phase}/{flow}")


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """What decides who may have a key now."""

    held: LockMode | None = None
    """How running jobs hold it; exclusive if any does."""
    first: Rank | None = None
    """The first contender."""
    first_exclusive: Rank | None = None
    """The first contender that wants it exclusively."""


def _earlier(one: Rank | None, other: Rank) -> Rank:
    return other if one is None or other < one else one


class LockBoard:
    """The fronts of the keys that matter to one tick; jobs join as they pass the gates before this one."""

    def __init__(self, fronts: Mapping[str, Front]) -> None:
        self._fronts = dict(fronts)

    def join(self, rank: Rank, locks: Iterable[Lock]) -> None:
        for lock in locks:
            front = self._fronts.get(lock.key, Front())
            exclusive = front.first_exclusive
            if lock.mode is LockMode.EXCLUSIVE:
                exclusive = _earlier(exclusive, rank)
            self._fronts[lock.key] = Front(
                held=front.held, first=_earlier(front.first, rank), first_exclusive=exclusive
            )

    def _admits(self, rank: Rank, lock: Lock) -> bool:
        front = self._fronts.get(lock.key, Front())
        if lock.mode is LockMode.EXCLUSIVE:
            return front.held is None and (front.first is None or rank <= front.first)
        return front.held is not LockMode.EXCLUSIVE and (front.first_exclusive is None or rank <= front.first_exclusive)

    def judge(self, rank: Rank, locks: Sequence[Lock]) -> Verdict:
        barred = [lock.key for lock in locks if not self._admits(rank, lock)]
        if not barred:
            return PASS
        return Wait(
            status=Status.WAITING_ON_LOCKS,
            kind=WaitKind.LOCKS,
            detail="waiting on locks",
            on=tuple(f"lock:{key}" for key in barred),
        )
