"""Reads what the gates and the plan need: bounded, and the same for a tick, `why` and a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from rota.core.after import AfterPolicy, Edge, EdgeFact
from rota.core.control import Pause, Pauses
from rota.core.gate import Standing
from rota.core.lock import Front, Lock, LockMode
from rota.core.pool import GLOBAL, Draws, Limits
from rota.core.queue import Rank
from rota.core.snapshot import Lane, Snapshot
from rota.core.status import Status
from rota.core.wait import WaitKind
from rota.ids import JobId, LaneId
from rota.store.database import Database, Row
from rota.store.moment import from_stored, maybe_from_stored

HEADS = 64
"""How many ready jobs of one lane a snapshot holds at most; the plan says when it wants to see more."""


@lru_cache(maxsize=4096)
def decode_draws(text: str) -> Draws:
    return msgspec.json.decode(text, type=dict[str, int])


def decode_waited_on(text: str) -> tuple[WaitKind, ...]:
    return tuple(WaitKind(kind) for kind in text.split(",")) if text else ()


class Snapshots:
    def __init__(self, database: Database) -> None:
        self._db = database

    def stirred(self, limit: int) -> list[Standing]:
        """Jobs marked for a look, in queue order."""
        return self._standings(self._db.rows("stirred", limit=limit))

    def standings(self, jobs: Sequence[JobId]) -> list[Standing]:
        return self._standings(self._db.rows("standing", ids=list(jobs)))

    def _standings(self, rows: Sequence[Row]) -> list[Standing]:
        ids = [row[3] for row in rows]
        edges = self._speaking_edges([row[3] for row in rows if row[11] > 0])
        locks: dict[int, list[Lock]] = {}
        contending: set[int] = set()
        for job, key, mode, state in self._db.rows("locks_of", ids=ids) if ids else ():
            locks.setdefault(job, []).append(Lock(key=key, mode=LockMode(mode)))
            if state == "contending":
                contending.add(job)
        return [
            Standing(
                rank=Rank(*row[:4]),
                chain=JobId(row[12]),
                status=Status(row[4]),
                wait_kind=None if row[5] is None else WaitKind(row[5]),
                waited_on=decode_waited_on(row[6]),
                is_ready=bool(row[7]),
                contends=row[3] in contending,
                not_before=maybe_from_stored(row[8]),
                lane=LaneId(row[9]),
                draws=decode_draws(row[10]),
                locks=tuple(locks.get(row[3], ())),
                edges=edges.get(row[3], ()),
            )
            for row in rows
        ]

    def _speaking_edges(self, jobs: Sequence[int]) -> Mapping[int, tuple[EdgeFact, ...]]:
        if not jobs:
            return {}
        facts = {}
        for job, predecessor, chain, policy, status in self._db.rows("speaking_edges", ids=list(jobs)):
            edge = Edge(predecessor=JobId(predecessor), chain=JobId(chain), policy=AfterPolicy(policy))
            facts[job] = (EdgeFact(edge=edge, status=None if status is None else Status(status)),)
        return facts

    def fronts(self, keys: Iterable[str]) -> dict[str, Front]:
        """Who stands first for each key, and how it is held: three probes a key, however long its queue."""
        fronts = {}
        for key in set(keys):
            held = self._db.rows("front_held", key=key)[0][0]
            first = self._db.rows("front_first", key=key)
            exclusive = self._db.rows("front_first_exclusive", key=key)
            fronts[key] = Front(
                held=None if held is None else LockMode(held),
                first=Rank(*first[0]) if first else None,
                first_exclusive=Rank(*exclusive[0]) if exclusive else None,
            )
        return fronts

    def pauses(self) -> Pauses:
        return Pauses({scope: Pause(by=by, at=from_stored(at)) for scope, by, at in self._db.rows("pauses")})

    def used(self) -> tuple[dict[str, int], frozenset[int]]:
        """What running jobs draw from each pool, and the numbers of the workers that run them."""
        used: dict[str, int] = {}
        workers = set()
        for _lane, draws, worker in self._db.rows("running"):
            workers.add(int(worker.rpartition("/")[2]))
            for name, weight in decode_draws(draws).items():
                used[name] = used.get(name, 0) + weight
        return used, frozenset(workers)

    def snapshot(self, limits: Limits, batch_size: int | None) -> Snapshot:
        used, workers = self.used()
        pauses = self.pauses()
        horizon = self._db.rows("first_stirred")
        lanes = () if _is_full(limits, used, GLOBAL) else self._lanes(limits, used, pauses)
        return Snapshot(
            lanes=tuple(lanes),
            used=used,
            workers=workers,
            limits=limits,
            pauses=pauses,
            batch_size=batch_size,
            horizon=Rank(*horizon[0]) if horizon else None,
        )

    def _lanes(self, limits: Limits, used: Mapping[str, int], pauses: Pauses) -> list[Lane]:
        """The lanes with ready jobs. One that a full pool closes shows its first job only: that job may still
        close other pools to those behind it."""
        lanes = []
        for lane, text, ready in self._db.rows("lanes"):
            draws = decode_draws(text)
            if pauses.over(draws) is not None:
                continue
            limit = _room(limits, used, draws)
            heads = self._db.rows("heads", lane=lane, limit=limit)
            if heads:
                lanes.append(
                    Lane(
                        id=LaneId(lane),
                        draws=draws,
                        heads=tuple(Rank(*head) for head in heads),
                        has_more=ready > len(heads),
                    )
                )
        return lanes


def _is_full(limits: Limits, used: Mapping[str, int], name: str) -> bool:
    size = limits.size(name)
    return size is not None and used.get(name, 0) >= size


def _room(limits: Limits, used: Mapping[str, int], draws: Draws) -> int:
    """How many jobs of a lane could start at most, plus the one that closes it."""
    room = HEADS
    for name, weight in draws.items():
        size = limits.size(name)
        if size is not None and weight > 0:
            room = min(room, max(0, size - used.get(name, 0)) // weight)
    return min(HEADS, room + 1)
