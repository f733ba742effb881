"""What ought to be so, worked out the slow and simple way from everything that was asked for.

The engine looks only at what an event concerns; the oracle looks at every job, every time. Where they differ, a
wake-up was lost, a turn was taken out of order, or an explanation is not true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.ids import JobId

_MEETS = {
    "success": {Status.COMPLETED, Status.SKIPPED},
    "finished": set(TERMINAL),
    "failed": {Status.FAILED},
}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was asked for."""

    job: JobId
    command: tuple[str, ...]
    edges: tuple[tuple[JobId, str], ...]
    locks: Mapping[str, str]
    draws: Mapping[str, int]
    priority: int
    chain: JobId
    max_retries: int = 0
    retries: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """A retry stands at the place of the first of its chain."""
        return (-self.priority, self.chain, self.job)


def is_met(edge: tuple[JobId, str], outcomes: Mapping[JobId, Status]) -> bool:
    """`outcomes` are the statuses of the last jobs of the chains, by any job of them."""
    predecessor, policy = edge
    return outcomes[predecessor] in _MEETS[policy]


def outcomes_of(wishes: Mapping[JobId, Wish], statuses: Mapping[JobId, Status]) -> dict[JobId, Status]:
    lasts = {wish.chain: job for job, wish in sorted(wishes.items())}
    return {job: statuses[lasts[wish.chain]] for job, wish in wishes.items()}


def conflicts(one: str, other: str) -> bool:
    return "exclusive" in (one, other)


def used(wishes: Iterable[Wish]) -> dict[str, int]:
    total: dict[str, int] = {}
    for wish in wishes:
        for pool, weight in wish.draws.items():
            total[pool] = total.get(pool, 0) + weight
    return total


class Oracle:
    def __init__(
        self,
        wishes: Mapping[JobId, Wish],
        statuses: Mapping[JobId, Status],
        not_before: Mapping[JobId, datetime | None],
        limits: Mapping[str, int],
        now: datetime,
    ) -> None:
        self._wishes = wishes
        self._outcomes = outcomes_of(wishes, statuses)
        self._not_before = not_before
        self._limits = limits
        self._now = now
        self.running = [wish for job, wish in wishes.items() if statuses[job] in STARTED]
        self.waiting = sorted(
            (wish for job, wish in wishes.items() if statuses[job] in WAITING), key=lambda wish: wish.rank
        )

    def holds_on_edges(self, wish: Wish) -> bool:
        return not all(is_met(edge, self._outcomes) for edge in wish.edges)

    def is_decided(self, wish: Wish) -> bool:
        """An edge can no longer be met."""
        return any(self._outcomes[edge[0]] in TERMINAL and not is_met(edge, self._outcomes) for edge in wish.edges)

    def holds_on_delay(self, wish: Wish) -> bool:
        until = self._not_before[wish.job]
        return until is not None and until > self._now

    def contenders(self) -> list[Wish]:
        return [wish for wish in self.waiting if not self.holds_on_edges(wish) and not self.holds_on_delay(wish)]

    def holds_on_locks(self, wish: Wish) -> list[str]:
        """The keys it may not have: held against it, or wanted against it by somebody before it."""
        before = [other for other in self.contenders() if other.rank < wish.rank]
        return sorted(
            key
            for key, mode in wish.locks.items()
            if any(key in other.locks and conflicts(mode, other.locks[key]) for other in (*self.running, *before))
        )

    def ready(self) -> list[Wish]:
        return [wish for wish in self.contenders() if not self.holds_on_locks(wish)]

    def lacks(self, wish: Wish, taken: Mapping[str, int]) -> set[str]:
        return {
            pool
            for pool, weight in wish.draws.items()
            if self._limits.get(pool, -1) >= 0 and taken.get(pool, 0) + weight > self._limits[pool]
        }

    def closing(self) -> tuple[list[Wish], set[str]]:
        """Who could start now, and the pools that the first who does not fit closes."""
        taken, closed, able = used(self.running), set[str](), list[Wish]()
        for wish in self.ready():
            if closed & wish.draws.keys():
                continue
            lacking = self.lacks(wish, taken)
            if lacking:
                closed |= lacking
                continue
            able.append(wish)
            taken = used([*self.running, *able])
        return able, closed

    def check_turns(self, started: Sequence[Wish]) -> None:
        """INV-004: of what has just started, nothing took what a job before it was waiting for."""
        closed: set[str] = set()
        for wish in self.ready():
            later = [other for other in started if other.rank > wish.rank]
            others = [other for other in self.running if other not in later]
            if not closed & wish.draws.keys():
                lacking = self.lacks(wish, used(others))
                closed |= lacking or wish.draws.keys()
            passed = [other.job for other in later if closed & other.draws.keys()]
            assert passed == [], f"job-{wish.job} was passed by {passed}"

    def expected_kind(self, wish: Wish) -> str | None:
        """The first gate that does not pass."""
        if self.holds_on_edges(wish):
            return "dependencies"
        if self.holds_on_delay(wish):
            return "delay"
        if self.holds_on_locks(wish):
            return "locks"
        able, _closed = self.closing()
        return None if wish in able else "capacity"


def conflicting(wishes: Sequence[Wish]) -> list[tuple[JobId, JobId, str]]:
    """Pairs that hold one key against each other."""
    return [
        (one.job, other.job, key)
        for n, one in enumerate(wishes)
        for other in wishes[n + 1 :]
        for key in one.locks.keys() & other.locks.keys()
        if conflicts(one.locks[key], other.locks[key])
    ]
