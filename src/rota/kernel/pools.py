"""Pools: named capacities that running jobs draw from, all or nothing.

A `ConcurrencyPolicy` (OQ-001, DEC-011) computes the demand of a job once, at submit. Jobs with the same demand are in
one lane, in queue order. Going down the order, the first job that does not fit closes each pool in which it lacks room
to later jobs of that tick: light jobs cannot starve a heavy job, and pools where it had room stay open. A job whose
weight exceeds the size of a pool can never start and closes no pool. Size `-1` is unlimited; size `0` lets no new job
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from rota.errors import InvalidInput
from rota.kernel.queue import Rank
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Verdict, Wait, WaitKind
from rota.naming import GLOBAL, POOL_KINDS, is_pool_name

_KINDS = POOL_KINDS
MAX_WEIGHT = 1_000_000

PoolDemand = Mapping[str, int]


class PoolInputs(Protocol):
    """Fields of a spec that determine its demand."""

    @property
    def type(self) -> str | None: ...
    @property
    def flow(self) -> str | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def pools(self) -> Mapping[str, int]: ...


class ConcurrencyPolicy(Protocol):
    def pool_demand(self, job: PoolInputs) -> PoolDemand:
        """Return the weight that the job draws from each pool while it runs."""
        ...


class PoolPolicy:
    """The built-in policy: weight 1 from global, type, flow and target, plus the pools that the job names."""

    def pool_demand(self, job: PoolInputs) -> PoolDemand:
        demand = {GLOBAL: 1}
        for kind, name in (("type", job.type), ("flow", job.flow), ("target", job.target)):
            if name is not None:
                demand[f"{kind}/{name}"] = 1
        demand.update(job.pools)
        return dict(sorted(demand.items(), key=lambda item: pool_sort_key(item[0])))


class PluginPolicy:
    """A policy from a plugin, with its name. Its result is validated before a job is stored."""

    def __init__(self, name: str, policy: ConcurrencyPolicy) -> None:
        self._name = name
        self._policy = policy

    def pool_demand(self, job: PoolInputs) -> PoolDemand:
        """Return the validated demand. Every job draws from global, whatever the policy returns: pausing `global` must
        hold all jobs."""
        try:
            demand = {GLOBAL: 1, **self._policy.pool_demand(job)}
        except (Exception, SystemExit) as error:  # a stray `sys.exit` must not end the scheduler
            raise self._make_error(f"failed: {error!r}") from error
        for name, weight in demand.items():
            if not isinstance(name, str) or not is_pool_name(name):
                raise self._make_error(f"returned an invalid pool name: {name!r}")
            if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
                raise self._make_error(f"returned the weight {weight!r} for {name}; a weight is from 1 to {MAX_WEIGHT}")
        return dict(sorted(demand.items(), key=lambda item: pool_sort_key(item[0])))

    def _make_error(self, problem: str) -> InvalidInput:
        return InvalidInput(f"the concurrency policy {self._name} {problem}; nothing was stored")


def pool_sort_key(name: str) -> tuple[int, str]:
    """Sort by global, type, flow, target, resource, name: the first of several full pools is the reported reason."""
    kind = name.partition("/")[0]
    return (0 if name == GLOBAL else 1 + _KINDS.index(kind), name)


class PoolSizes(msgspec.Struct, frozen=True):
    """Configured sizes, including wildcards."""

    sizes: Mapping[str, int]

    def size(self, name: str) -> int | None:
        """Return the size of the pool, or `None` if it is unlimited."""
        size = self.sizes.get(name)
        if size is None and name != GLOBAL:
            size = self.sizes.get(f"{name.partition('/')[0]}/*")
        return None if size is None or size < 0 else size

    def has_capacity_for(self, usage: Mapping[str, int]) -> bool:
        """Return whether no pool is over its size. A pool can be over its size after its limit was lowered."""
        sizes = ((self.size(name), drawn) for name, drawn in usage.items())
        return all(size is None or drawn <= size for size, drawn in sizes)

    def find_oversized_pool(self, demand: PoolDemand) -> str | None:
        """Return the first pool too small for the job even when empty. A pool of size 0 is closed, not too small."""
        return next((name for name, weight in demand.items() if 0 < (self.size(name) or 0) < weight), None)

    def describe_oversize(self, demand: PoolDemand) -> str | None:
        """Return why the job can never start, or `None` if it can."""
        name = self.find_oversized_pool(demand)
        return None if name is None else f"needs {demand[name]} of {name}, whose size is {self.size(name)}"

    def refuse_oversized(self, demand: PoolDemand) -> None:
        """Raise `InvalidInput` if the job could never start with the configured pools."""
        name = self.find_oversized_pool(demand)
        if name is not None:
            raise InvalidInput(
                f"the job {self.describe_oversize(demand)}: it could never start; "
                f"ask for less, or run `rota pool set {name} {demand[name]}` first"
            ).at_path(".pools")

    def warnings(self, demand: PoolDemand, explicit: Mapping[str, int]) -> list[str]:
        """Return warnings about pools that keep the job from starting, or that have no limit although the job names
        them."""
        warnings = []
        for name, weight in demand.items():
            size = self.size(name)
            if size is not None and weight > size:
                warnings.append(
                    f"pool {name} has size {size}, the job draws {weight}: it cannot start until the pool grows"
                )
            elif size is None and name in explicit and name != GLOBAL:
                warnings.append(f"pool {name} has no limit: set one with `rota pool set {name} N`")
        return warnings


class PoolBoard:
    """Free room in every pool at one moment, and the pools that are closed."""

    def __init__(self, sizes: PoolSizes, usage: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._usage = dict(usage)
        self._reserved: dict[str, int] = {}
        self._closed: dict[str, Rank] = {}

    def used(self, name: str) -> int:
        return self._usage.get(name, 0)

    def _lacks_room(self, name: str, weight: int) -> bool:
        size = self._sizes.size(name)
        return size is not None and self.used(name) + weight > size

    def _is_reserved(self, name: str, weight: int) -> bool:
        reserved = self._reserved.get(name, 0)
        return reserved > 0 and self._lacks_room(name, weight + reserved)

    def can_ever_fit(self, demand: PoolDemand) -> bool:
        """Return whether the demand would fit if all pools were empty."""
        sizes = ((self._sizes.size(name), weight) for name, weight in demand.items())
        return all(size is None or weight <= size for size, weight in sizes)

    def reserve(self, demand: PoolDemand) -> None:
        """Reserve room for a direct execution, which comes ahead of the queue."""
        for name, weight in demand.items():
            self._reserved[name] = self._reserved.get(name, 0) + weight

    def is_reserved(self, demand: PoolDemand) -> bool:
        """Return whether a pool lacks room because of a reservation."""
        return any(self._is_reserved(name, weight) for name, weight in demand.items())

    def is_closed(self, demand: PoolDemand) -> bool:
        """Return whether no later job of the lane can start in this tick."""
        return any(name in self._closed for name in demand)

    def closed_by(self, name: str, rank: Rank | None) -> Rank | None:
        """Return the job that closed the pool to this rank. Without a rank, any closing job counts."""
        closer = self._closed.get(name)
        return closer if closer is not None and (rank is None or closer < rank) else None

    def judge(self, demand: PoolDemand, rank: Rank | None = None) -> Verdict:
        """Return the verdict for a demand. Without a rank, it is the verdict for the next job in the queue."""
        if isinstance(oversize := self.judge_size(demand), Wait):
            return oversize
        for name, weight in demand.items():
            lacks_room, closer = self._lacks_room(name, weight), self.closed_by(name, rank)
            if lacks_room or closer is not None:
                return Wait(
                    status=Status.QUEUED,
                    kind=WaitKind.CAPACITY,
                    detail=f"waiting on pool {name} ({self.used(name)}/{self._sizes.size(name)})",
                    on=(f"pool:{name}",) if lacks_room or closer is None else (f"pool:{name}", f"job:{closer.job}"),
                )
        return PASS

    def judge_size(self, demand: PoolDemand) -> Verdict:
        """Hold a job that would not fit in an empty pool; only a change of that pool's size helps."""
        name, detail = self._sizes.find_oversized_pool(demand), self._sizes.describe_oversize(demand)
        if name is None or detail is None:
            return PASS
        return Wait(
            status=Status.QUEUED, kind=WaitKind.CAPACITY, detail=detail, on=(f"pool:{name}",), cannot_start=True
        )

    def close(self, demand: PoolDemand, rank: Rank) -> None:
        """Close each pool where the job lacks room."""
        for name, weight in demand.items():
            if self._lacks_room(name, weight) or self._is_reserved(name, weight):
                self._closed.setdefault(name, rank)

    def allocate(self, demand: PoolDemand) -> None:
        for name, weight in demand.items():
            self._usage[name] = self.used(name) + weight
