"""Factories for the inputs of the gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rota.ids import JobId, LaneId
from rota.kernel.artifacts import (
    ArtifactNeed,
    ArtifactPaths,
    MissingProducer,
    Observations,
    Pin,
    PinnedHead,
    Producer,
    parse_artifact,
)
from rota.kernel.breaker import BreakerStates, HalfOpenState, OpenState, ProbingState
from rota.kernel.edges import DependencyPolicy, Edge, UnmetEdge
from rota.kernel.facts import Fact, FactValue
from rota.kernel.gates import Candidate, GateContext
from rota.kernel.holds import Pause, PauseState, scopes_of
from rota.kernel.lanes import Lane, Snapshot
from rota.kernel.locks import Lock, LockBoard, LockFront, LockMode
from rota.kernel.pools import PoolBoard, PoolSizes
from rota.kernel.queue import Rank
from rota.kernel.status import Status

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE


def rank(job: int, priority: int = 0, position: int | None = None) -> Rank:
    return Rank(
        precedence=-priority, position=job * 100 if position is None else position, created_at=job, job=JobId(job)
    )


def edge(
    job: int, status: Status | None, policy: DependencyPolicy = DependencyPolicy.SUCCESS, error: str | None = None
) -> UnmetEdge:
    return UnmetEdge(edge=Edge(predecessor=JobId(job), chain=JobId(job), policy=policy), status=status, error=error)


REPOSITORY = "/repo/.git"


def need(
    name: str, *producers: Status, is_rewound: bool = False, may_wait: bool = False, **fields: Any
) -> ArtifactNeed:
    """Make a need for an artifact of the repository, with producers in these statuses."""
    return ArtifactNeed(
        artifact=parse_artifact(name),
        scope=REPOSITORY,
        producers=tuple(Producer(status=status, is_rewound=is_rewound) for status in producers),
        missing_producer=MissingProducer.WAIT if may_wait else MissingProducer.BLOCK,
        **fields,
    )


def pin(branch: str, oid: str) -> Pin:
    return Pin(repository=REPOSITORY, head=PinnedHead(branch=branch, oid=oid))


def lock(text: str) -> Lock:
    """Parse `repo` or `repo:shared`, as on the command line."""
    key, _, mode = text.partition(":")
    return Lock(key=key, mode=LockMode(mode or "exclusive"))


def candidate(job: int = 1, *, locks: Sequence[str] = (), priority: int = 0, **fields: Any) -> Candidate:
    """Make a newly submitted job; fields override the defaults."""
    defaults: dict[str, Any] = {
        "chain": JobId(job),
        "status": Status.QUEUED,
        "wait_kind": None,
        "waited_on": (),
        "is_ready": False,
        "breaker_keys": (),
        "is_contending": False,
        "not_before": None,
        "lane": LaneId(1),
        "demand": {"global": 1},
        "edges": (),
    }
    values = {**defaults, **fields}
    values.setdefault("scopes", scopes_of(values["demand"], None, None, None))
    return Candidate(rank=rank(job, priority), locks=tuple(lock(text) for text in locks), **values)


def gate_context(
    *,
    paused: Sequence[str] = (),
    breakers: Mapping[str, OpenState | HalfOpenState | ProbingState] | None = None,
    fronts: Mapping[str, LockFront] | None = None,
    sizes: Mapping[str, int] | None = None,
    usage: Mapping[str, int] | None = None,
    reserved: Mapping[str, int] | None = None,
    observed: Mapping[Fact, FactValue] | None = None,
    hold_text: str | None = None,
) -> GateContext:
    """Make a context in which every gate passes; fields override the defaults."""
    pools = PoolBoard(PoolSizes(sizes or {}), usage or {})
    pools.reserve(reserved or {})
    return GateContext(
        now=NOW,
        pauses=PauseState(
            {scope: Pause(actor="user", at=NOW) for scope in paused}, BreakerStates(breakers or {}), hold_text
        ),
        locks=LockBoard(fronts or {}),
        pools=pools,
        observations=Observations(
            observed=observed or {}, paths=ArtifactPaths(jobs="/home/jobs", sentinels="/home/tmp/merge-conflicts")
        ),
    )


def lane(
    number: int, demand: Mapping[str, int], *heads: Rank, has_more: bool = False, breaker_keys: tuple[str, ...] = ()
) -> Lane:
    scopes = scopes_of(demand, None, None, None)
    return Lane(
        id=LaneId(number), demand=demand, scopes=scopes, breaker_keys=breaker_keys, heads=heads, has_more=has_more
    )


def snapshot(*lanes: Lane, **fields: Any) -> Snapshot:
    """Make a snapshot without limits, pauses, horizon, batch size or busy workers; fields override the defaults."""
    defaults: dict[str, Any] = {
        "pool_usage": {},
        "busy_workers": frozenset(),
        "pool_sizes": PoolSizes({}),
        "pauses": PauseState(),
        "batch_size": None,
        "has_ready": bool(lanes),
    }
    return Snapshot(lanes=lanes, **{**defaults, **fields})
