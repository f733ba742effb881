"""Input of one tick: bounded, never the whole queue."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.ids import JobId, LaneId
from rota.kernel.holds import PauseState
from rota.kernel.locks import LockFront
from rota.kernel.pools import PoolDemand, PoolSizes
from rota.kernel.queue import Rank
from rota.kernel.reservations import ReservationCandidate


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Ready jobs with the same demand, type, flow and target, in queue order. A full pool excludes a whole lane at
    once."""

    id: LaneId
    demand: PoolDemand
    scopes: tuple[str, ...] = ()
    """Pause scopes that cover the lane."""
    breaker_keys: tuple[str, ...] = ()
    """Breakers that cover the lane."""
    heads: tuple[Rank, ...]
    has_more: bool
    """Whether the lane has ready jobs after these heads."""
    needs_facts: bool = False
    """Whether the jobs need artifacts or have a pinned head: their facts are probed again before they start."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    lanes: tuple[Lane, ...]
    pool_usage: Mapping[str, int]
    busy_workers: frozenset[int]
    """Worker numbers in use."""
    pool_sizes: PoolSizes
    pauses: PauseState
    batch_size: int | None
    has_ready: bool
    """Whether any job is ready, even if its lane is not in the snapshot."""
    frontier: Rank | None = None
    """First rank that a lane outside the snapshot may have; `None` if the snapshot has all lanes."""
    reservations: tuple[ReservationCandidate, ...] = ()
    """Waiting direct executions, in order of arrival."""
    lock_fronts: Mapping[str, LockFront] = {}
    """Fronts of the keys that the reservations need."""
    horizon: Rank | None = None
    """First dirty job that has not been evaluated: no job at or after it starts yet."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    lane: LaneId
    worker: int
    probes: tuple[str, ...] = ()
    """Breakers for which the job is the probe."""
    needs_facts: bool = False
    """Value from the lane."""
