"""Reads what the gates and the plan need: bounded, and the same for a tick, `why` and a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from rota.core.after import AfterPolicy, Edge, EdgeFact, EdgeState
from rota.core.breaker import HALF_OPEN, Breakers, HalfOpen, Open, Probed, keys_of
from rota.core.control import Holds, Pause, Pauses, scopes_of
from rota.core.gate import Standing
from rota.core.lock import Front, Lock, LockMode
from rota.core.pool import Draws, Limits
from rota.core.queue import Rank
from rota.core.slot import SlotStanding
from rota.core.snapshot import Lane, Snapshot
from rota.core.status import Status
from rota.core.wait import WaitKind
from rota.ids import JobId, LaneId, SlotId
from rota.names import GLOBAL
from rota.store.artifact import ArtifactRecords
from rota.store.database import Row
from rota.store.moment import from_stored, maybe_from_stored

LANES = 32
"""How many lanes a snapshot holds unless more are asked for."""
HEADS = 64
"""How many ready jobs of one lane a snapshot holds at most; the plan says when it wants to see more."""


@lru_cache(maxsize=4096)
def decode_draws(text: str) -> Draws | None:
    """None when it cannot be read."""
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return None


def decode_waited_on(text: str) -> tuple[WaitKind, ...]:
    return tuple(WaitKind(kind) for kind in text.split(",")) if text else ()


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A marked job whose own record cannot be used."""

    job: JobId
    chain: JobId
    error: str


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    used: dict[str, int]
    """What is drawn from each pool."""
    workers: frozenset[int]
    """The numbers of the workers that run something."""
    has_waiting_slots: bool


class Snapshots(ArtifactRecords):
    def stirred(self, limit: int) -> tuple[list[Standing], list[Unreadable]]:
        """Jobs marked for a look, in queue order; apart from them those whose own record cannot be read."""
        return self._standings(self._db.rows("stirred", limit=limit))

    def standings(self, jobs: Sequence[JobId]) -> list[Standing]:
        """As the gates see them; one that cannot be read is not among them."""
        return self._standings(self._db.rows("standing", ids=list(jobs)))[0]

    def _standings(self, rows: Sequence[Row]) -> tuple[list[Standing], list[Unreadable]]:
        ids = [row[3] for row in rows]
        edges = self._speaking_edges([row[3] for row in rows if row[11] > 0])
        locks: dict[int, list[Lock]] = {}
        asking = [row[12] for row in rows if row[15]]
        needs, pins = (self.needs_of(asking), self.pins_of(asking)) if asking else ({}, {})
        contending: set[int] = set()
        for job, key, mode, state in self._db.rows("locks_of", ids=ids) if ids else ():
            locks.setdefault(job, []).append(Lock(key=key, mode=LockMode(mode)))
            if state == "contending":
                contending.add(job)
        standings, unreadable = [], []
        for row in rows:
            job = row[3]
            try:
                standing = _standing(row, tuple(locks.get(job, ())), edges.get(job, ()), job in contending)
                if row[15]:
                    chain = row[12]
                    standing = msgspec.structs.replace(standing, needs=needs.get(chain, ()), pin=pins.get(chain))
                standings.append(standing)
            except ValueError as error:
                unreadable.append(Unreadable(job=JobId(job), chain=JobId(row[12]), error=str(error)))
        return standings, unreadable

    def _speaking_edges(self, jobs: Sequence[int]) -> Mapping[int, tuple[EdgeFact, ...]]:
        if not jobs:
            return {}
        facts = {}
        for job, predecessor, chain, policy, state, status in self._db.rows("speaking_edges", ids=list(jobs)):
            edge = Edge(predecessor=JobId(predecessor), chain=JobId(chain), policy=AfterPolicy(policy))
            is_known = status is None or status in Status.__members__
            facts[job] = (
                EdgeFact(
                    edge=edge,
                    status=Status(status) if status is not None and is_known else None,
                    is_dropped=state == EdgeState.UNMEETABLE,
                    error=None if is_known else f"unknown status {status!r}",
                ),
            )
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

    def fronts_of(self, jobs: Sequence[JobId]) -> dict[str, Front]:
        """The same of every key that one of these jobs wants, in one statement: for who looks at many at once."""
        return {
            key: Front(
                held=None if held is None else LockMode(held),
                first=Rank(*ranks[:4]) if ranks[3] is not None else None,
                first_exclusive=Rank(*ranks[4:]) if ranks[7] is not None else None,
            )
            for key, held, *ranks in self._db.rows("fronts_of", ids=list(jobs))
        }

    def pauses(self, *, holds: Holds) -> Pauses:
        scopes, states = dict(holds.clearing), {}
        for scope, by, at, state, probe in self._db.rows("pauses"):
            if state is None:
                scopes[scope] = Pause(by=by, at=from_stored(at))
            else:
                states[scope] = breaker_state(state, at, probe)
        return Pauses(scopes, Breakers(states), holds.file)

    def used(self) -> tuple[dict[str, int], frozenset[int]]:
        """What running jobs and slots draw from each pool, and the numbers of the workers that run them."""
        now = self._occupancy()
        return now.used, now.workers

    def _occupancy(self) -> Occupancy:
        used: dict[str, int] = {}
        workers = set()
        has_waiting_slots = False
        for _lane, text, worker in self._db.rows("running"):
            if worker is None:
                has_waiting_slots = True
                continue
            workers.add(int(worker.rpartition("/")[2]))
            for name, weight in (decode_draws(text) or {GLOBAL: 1}).items():
                used[name] = used.get(name, 0) + weight
        return Occupancy(used=used, workers=frozenset(workers), has_waiting_slots=has_waiting_slots)

    def waiting_slots(self) -> list[SlotStanding]:
        """In order of arrival."""
        rows = self._db.rows("waiting_slots")
        locks: dict[int, list[Lock]] = {}
        contending = set()
        for owner, key, mode, state in self._db.rows("locks_of", ids=[-row[0] for row in rows]) if rows else ():
            locks.setdefault(-owner, []).append(Lock(key=key, mode=LockMode(mode)))
            if state == "contending":
                contending.add(-owner)
        return [
            SlotStanding(
                id=SlotId(slot),
                draws=decode_draws(draws) or {GLOBAL: 1},
                scopes=scopes_of(decode_draws(draws) or {}, type_, flow, target),
                locks=tuple(locks.get(slot, ())),
                contends=slot in contending or slot not in locks,
            )
            for slot, draws, type_, flow, target in rows
        ]

    def snapshot(
        self, limits: Limits, batch_size: int | None, most_lanes: int = LANES, *, holds: Holds, is_left: bool = True,
        most_heads: int = HEADS,
    ) -> Snapshot:  # fmt: skip
        """Where it is known that every marked job has had its look, `is_left` is false and none is looked for."""
        now = self._occupancy()
        used, slots = now.used, self.waiting_slots() if now.has_waiting_slots else ()
        pauses = self.pauses(holds=holds)
        is_full = pauses.are_over_all or _is_full(limits, used, GLOBAL)
        horizon = self._db.rows("first_stirred") if is_left else ()
        rows = self._db.rows("lanes", limit=1 if is_full else most_lanes + 1)
        return Snapshot(
            lanes=() if is_full else tuple(self._lanes(rows[:most_lanes], limits, used, pauses, most_heads)),
            slots=tuple(_without(slots, holds.absent)) if holds.absent else tuple(slots),
            fronts=self.fronts(lock.key for slot in slots for lock in slot.locks) if slots else {},
            used=used,
            workers=now.workers,
            limits=limits,
            pauses=pauses,
            batch_size=batch_size,
            has_ready=bool(rows),
            frontier=Rank(*rows[most_lanes][7:]) if len(rows) > most_lanes else None,
            horizon=Rank(*horizon[0]) if horizon else None,
        )

    def _lanes(
        self, rows: Sequence[Row], limits: Limits, used: Mapping[str, int], pauses: Pauses, most_heads: int
    ) -> Iterator[Lane]:  # fmt: skip
        """The lanes with ready jobs. One that a full pool closes shows its first job only: that job may still
        close other pools to those behind it. One whose draws cannot be read is left out."""
        for lane, text, type_, flow, target, asks, ready, *_ in rows:
            draws, keys = decode_draws(text), keys_of(type_, target)
            scopes = scopes_of(draws or {}, type_, flow, target)
            if draws is None or pauses.are_over(scopes, keys):
                continue
            heads = self._db.rows("heads", lane=lane, limit=_room(limits, used, draws, most_heads))
            if heads:
                ranks = tuple(Rank(*head) for head in heads)
                has_more = ready > len(heads)
                yield Lane(
                    id=LaneId(lane), draws=draws, scopes=scopes, keys=keys, heads=ranks, has_more=has_more,
                    asks=bool(asks),
                )  # fmt: skip


def _without(slots: Iterable[SlotStanding], absent: frozenset[SlotId]) -> Iterator[SlotStanding]:
    """The same, with what is known of their clients."""
    return (msgspec.structs.replace(slot, is_absent=slot.id in absent) for slot in slots)


def breaker_state(state: str, until: int, probe: int | None) -> Open | HalfOpen | Probed:
    if state == "open":
        return Open(from_stored(until))
    return HALF_OPEN if probe is None else Probed(JobId(probe))


def _standing(row: Row, locks: tuple[Lock, ...], edges: tuple[EdgeFact, ...], contends: bool) -> Standing:
    draws = decode_draws(row[10])
    if draws is None:
        raise ValueError(f"its draws cannot be read: {row[10]!r}")
    return Standing(
        rank=Rank(*row[:4]),
        chain=JobId(row[12]),
        status=Status(row[4]),
        wait_kind=None if row[5] is None else WaitKind(row[5]),
        waited_on=decode_waited_on(row[6]),
        is_ready=bool(row[7]),
        contends=contends,
        not_before=maybe_from_stored(row[8]),
        lane=LaneId(row[9]),
        draws=draws,
        scopes=scopes_of(draws, row[13], row[16], row[14]),
        keys=keys_of(row[13], row[14]),
        locks=locks,
        edges=edges,
    )


def _is_full(limits: Limits, used: Mapping[str, int], name: str) -> bool:
    size = limits.size(name)
    return size is not None and used.get(name, 0) >= size


def _room(limits: Limits, used: Mapping[str, int], draws: Draws, most: int) -> int:
    """How many jobs of a lane could start at most, plus the one that closes it."""
    room = most
    for name, weight in draws.items():
        size = limits.size(name)
        if size is not None and weight > 0:
            room = min(room, max(0, size - used.get(name, 0)) // weight)
    return min(most, room + 1)
