"""Pools: named capacities that running jobs draw from, all or nothing.

What a job draws is one pure question to a `ConcurrencyPolicy` (OQ-001, DEC-011), asked once at submit. Jobs
with the same draws stand in one lane, in queue order. Going down the order, the first job that does not fit
closes each pool in which it lacks room to later jobs of that tick: a heavy job is not starved by light
ones, and pools where it had room stay open. `-1` is no limit, `0` lets nothing new start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from rota.core.queue import Rank
from rota.core.status import Status
from rota.core.verdict import PASS, Verdict, Wait
from rota.core.wait import WaitKind
from rota.errors import InvalidInput
from rota.names import GLOBAL, POOL_KINDS, is_pool_name

KINDS = POOL_KINDS
MOST_WEIGHT = 1_000_000

Draws = Mapping[str, int]


class Drawing(Protocol):
    """The part of a spec that decides its draws."""

    @property
    def type(self) -> str | None: ...
    @property
    def flow(self) -> str | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def pools(self) -> Mapping[str, int]: ...


class ConcurrencyPolicy(Protocol):
    def draws(self, job: Drawing) -> Draws:
        """What the job takes from which pool while it runs."""
        ...


class PoolPolicy:
    """The pools as configured: 1 from global, 1 from type, flow and target, and what the job names."""

    def draws(self, job: Drawing) -> Draws:
        draws = {GLOBAL: 1}
        for kind, name in (("type", job.type), ("flow", job.flow), ("target", job.target)):
            if name is not None:
                draws[f"{kind}/{name}"] = 1
        draws.update(job.pools)
        return dict(sorted(draws.items(), key=lambda draw: speaking_order(draw[0])))


class NamedPolicy:
    """Somebody else's, known by its name: what it says is checked before anything is stored."""

    def __init__(self, name: str, policy: ConcurrencyPolicy) -> None:
        self._name = name
        self._policy = policy

    def draws(self, job: Drawing) -> Draws:
        """Every job draws from global, whatever the policy says of it: that is the switch for all."""
        try:
            said = self._policy.draws(job)
            draws = {GLOBAL: 1, **said}
        except (Exception, SystemExit) as error:  # a stray `sys.exit` must not end the scheduler
            raise self._refusal(f"failed: {error!r}") from error
        for name, weight in draws.items():
            if not isinstance(name, str) or not is_pool_name(name):
                raise self._refusal(f"says that the job draws from {name!r}, which is no pool")
            if type(weight) is not int or not 1 <= weight <= MOST_WEIGHT:
                raise self._refusal(f"says that the job draws {weight!r} from {name}: it is 1 to {MOST_WEIGHT}")
        return dict(sorted(draws.items(), key=lambda draw: speaking_order(draw[0])))

    def _refusal(self, what: str) -> InvalidInput:
        return InvalidInput(f"the concurrency policy {self._name} {what}; nothing was stored")


def speaking_order(name: str) -> tuple[int, str]:
    """Of several full pools the first in the order global, type, flow, target, resource, name speaks."""
    kind = name.partition("/")[0]
    return (0 if name == GLOBAL else 1 + KINDS.index(kind), name)


class Limits(msgspec.Struct, frozen=True):
    """Sizes as configured, wildcards included."""

    sizes: Mapping[str, int]

    def size(self, name: str) -> int | None:
        """The pool's size, or none when it has no limit."""
        size = self.sizes.get(name)
        if size is None and name != GLOBAL:
            size = self.sizes.get(f"{name.partition('/')[0]}/*")
        return None if size is None or size < 0 else size

    def hold(self, used: Mapping[str, int]) -> bool:
        """Whether no more is drawn than there is: not so when a limit was lowered, until enough of it has ended."""
        sizes = ((self.size(name), drawn) for name, drawn in used.items())
        return all(size is None or drawn <= size for size, drawn in sizes)

    def warnings(self, draws: Draws, named: Mapping[str, int]) -> list[str]:
        """What will keep the job from ever starting, or not hold it as its author thinks."""
        said = []
        for name, weight in draws.items():
            size = self.size(name)
            if size is not None and weight > size:
                said.append(
                    f"pool {name} has size {size}, the job draws {weight}: it cannot start until the pool grows"
                )
            elif size is None and name in named and name != GLOBAL:
                said.append(f"pool {name} has no limit: set one with `rota pool set {name} N`")
        return said


class PoolBoard:
    """Room in every pool at one moment, and what has been closed by a job that did not fit."""

    def __init__(self, limits: Limits, used: Mapping[str, int]) -> None:
        self._limits = limits
        self._used = dict(used)
        self._reserved: dict[str, int] = {}
        self._closed: dict[str, Rank] = {}

    def used(self, name: str) -> int:
        return self._used.get(name, 0)

    def _lacks(self, name: str, weight: int) -> bool:
        size = self._limits.size(name)
        return size is not None and self.used(name) + weight > size

    def _is_reserved(self, name: str, weight: int) -> bool:
        reserved = self._reserved.get(name, 0)
        return reserved > 0 and self._lacks(name, weight + reserved)

    def could_hold(self, draws: Draws) -> bool:
        """Whether it would ever fit, if nobody else drew from these."""
        sizes = ((self._limits.size(name), weight) for name, weight in draws.items())
        return all(size is None or weight <= size for size, weight in sizes)

    def reserve(self, draws: Draws) -> None:
        """Somebody who goes before the queue waits for this room."""
        for name, weight in draws.items():
            self._reserved[name] = self._reserved.get(name, 0) + weight

    def is_reserved(self, draws: Draws) -> bool:
        """Whether room is lacking in a pool where somebody who goes first waits."""
        return any(self._is_reserved(name, weight) for name, weight in draws.items())

    def is_closed(self, draws: Draws) -> bool:
        """No later job of this lane can start in this tick."""
        return any(name in self._closed for name in draws)

    def closed_by(self, name: str, rank: Rank | None) -> Rank | None:
        """Who closed the pool to this one: somebody before it, or to whoever asks without a rank."""
        closer = self._closed.get(name)
        return closer if closer is not None and (rank is None or closer < rank) else None

    def judge(self, draws: Draws, rank: Rank | None = None) -> Verdict:
        """Of one that has no rank, as of the next that would come."""
        for name, weight in draws.items():
            lacks, closer = self._lacks(name, weight), self.closed_by(name, rank)
            if lacks or closer is not None:
                return Wait(
                    status=Status.QUEUED,
                    kind=WaitKind.CAPACITY,
                    detail=f"waiting on pool {name} ({self.used(name)}/{self._limits.size(name)})",
                    on=(f"pool:{name}",) if lacks or closer is None else (f"pool:{name}", f"job:{closer.job}"),
                )
        return PASS

    def close(self, draws: Draws, rank: Rank) -> None:
        for name, weight in draws.items():
            if self._lacks(name, weight) or self._is_reserved(name, weight):
                self._closed.setdefault(name, rank)

    def take(self, draws: Draws) -> None:
        for name, weight in draws.items():
            self._used[name] = self.used(name) + weight
