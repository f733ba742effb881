"""What the gates are asked about, made in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rota.core.after import AfterPolicy, Edge, EdgeFact
from rota.core.artifact import MissingProducer, Need, Outside, Places, Producer, parse_artifact
from rota.core.breaker import Breakers, HalfOpen, Open, Probed
from rota.core.control import Pause, Pauses, scopes_of
from rota.core.fact import Fact, Seen
from rota.core.gate import Facts, Standing
from rota.core.lock import Front, Lock, LockBoard, LockMode
from rota.core.pinned_head import Pin, PinnedHead
from rota.core.pool import Limits, PoolBoard
from rota.core.queue import Rank
from rota.core.snapshot import Lane, Snapshot
from rota.core.status import Status
from rota.ids import JobId, LaneId

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE


def rank(job: int, priority: int = 0, position: int | None = None) -> Rank:
    return Rank(
        precedence=-priority, position=job * 100 if position is None else position, created_at=job, job=JobId(job)
    )


def edge(
    job: int, status: Status | None, policy: AfterPolicy = AfterPolicy.SUCCESS, error: str | None = None
) -> EdgeFact:
    return EdgeFact(edge=Edge(predecessor=JobId(job), chain=JobId(job), policy=policy), status=status, error=error)


REPOSITORY = "/repo/.git"


def need(name: str, *producers: Status, is_rewound: bool = False, may_wait: bool = False, **fields: Any) -> Need:
    """An artifact of the repository, with producers that have come to this."""
    return Need(
        artifact=parse_artifact(name),
        scope=REPOSITORY,
        producers=tuple(Producer(status=status, is_rewound=is_rewound) for status in producers),
        missing_producer=MissingProducer.WAIT if may_wait else MissingProducer.BLOCK,
        **fields,
    )


def pin(branch: str, oid: str) -> Pin:
    return Pin(repository=REPOSITORY, head=PinnedHead(branch=branch, oid=oid))


def lock(text: str) -> Lock:
    """`repo` or `repo:shared`, as on the command line."""
    key, _, mode = text.partition(":")
    return Lock(key=key, mode=LockMode(mode or "exclusive"))


def standing(job: int = 1, *, locks: Sequence[str] = (), priority: int = 0, **fields: Any) -> Standing:
    """A job that has just been submitted, unless the fields say otherwise."""
    usual: dict[str, Any] = {
        "chain": JobId(job),
        "status": Status.QUEUED,
        "wait_kind": None,
        "waited_on": (),
        "is_ready": False,
        "keys": (),
        "contends": False,
        "not_before": None,
        "lane": LaneId(1),
        "draws": {"global": 1},
        "edges": (),
    }
    given = {**usual, **fields}
    given.setdefault("scopes", scopes_of(given["draws"], None, None, None))
    return Standing(rank=rank(job, priority), locks=tuple(lock(text) for text in locks), **given)


def facts(
    *,
    paused: Sequence[str] = (),
    breakers: Mapping[str, Open | HalfOpen | Probed] | None = None,
    fronts: Mapping[str, Front] | None = None,
    sizes: Mapping[str, int] | None = None,
    used: Mapping[str, int] | None = None,
    reserved: Mapping[str, int] | None = None,
    seen: Mapping[Fact, Seen] | None = None,
    held: str | None = None,
) -> Facts:
    """A world in which nothing is in the way, unless the fields say otherwise."""
    pools = PoolBoard(Limits(sizes or {}), used or {})
    pools.reserve(reserved or {})
    return Facts(
        now=NOW,
        pauses=Pauses({scope: Pause(by="ann", at=NOW) for scope in paused}, Breakers(breakers or {}), held),
        locks=LockBoard(fronts or {}),
        pools=pools,
        outside=Outside(seen=seen or {}, places=Places(jobs="/home/jobs", sentinels="/home/tmp/merge-conflicts")),
    )


def lane(
    number: int, draws: Mapping[str, int], *heads: Rank, has_more: bool = False, keys: tuple[str, ...] = ()
) -> Lane:
    scopes = scopes_of(draws, None, None, None)
    return Lane(id=LaneId(number), draws=draws, scopes=scopes, keys=keys, heads=heads, has_more=has_more)


def snapshot(*lanes: Lane, **fields: Any) -> Snapshot:
    """Without limits, pauses, horizon or batch, and with nobody at work, unless the fields say otherwise."""
    usual: dict[str, Any] = {
        "used": {},
        "workers": frozenset(),
        "limits": Limits({}),
        "pauses": Pauses(),
        "batch_size": None,
        "has_ready": bool(lanes),
    }
    return Snapshot(lanes=lanes, **{**usual, **fields})
