"""Reads for gates and planning: bounded, and the same for a tick, `why` and a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from rota.core.breaker import HALF_OPEN, BreakerStates, HalfOpenState, OpenState, ProbingState, breaker_keys
from rota.core.control import Holds, Pause, PauseState, scopes_of
from rota.core.edges import Edge, EdgeState, UnmetEdge
from rota.core.gates import Candidate
from rota.core.lock import Lock, LockFront
from rota.core.pool import PoolDemand, PoolSizes
from rota.core.queue import Rank
from rota.core.reservation import ReservationCandidate
from rota.core.snapshot import Lane, Snapshot
from rota.core.status import Status, parse_status
from rota.ids import JobId, LaneId, ReservationId
from rota.naming import GLOBAL
from rota.store.artifact import ArtifactRecords
from rota.store.database import Row
from rota.store.decoding import RecordDecoder, parse_lock_mode
from rota.store.timestamp import from_micros, optional_from_micros

MAX_LANES = 32
"""Default number of lanes in a snapshot."""
MAX_LANE_HEADS = 64
"""Default maximum of ready jobs of a lane in a snapshot. The plan reports if it needs more."""


@lru_cache(maxsize=4096)
def decode_demand(text: str | None) -> PoolDemand | None:
    """Return the demand, or None if it is unreadable."""
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return None


class UnreadableJob(msgspec.Struct, frozen=True, kw_only=True):
    """Dirty job whose record cannot be decoded."""

    job: JobId
    chain: JobId
    error: str
    has_unknown_status: bool
    """Whether its status is unknown. Such a job is left as it is."""


class PoolUsage(msgspec.Struct, frozen=True, kw_only=True):
    used: dict[str, int]
    """Capacity in use, by pool."""
    workers: frozenset[int]
    """Numbers of the busy workers."""
    has_waiting_reservations: bool


class SnapshotRecords(ArtifactRecords):
    def dirty_jobs(self, limit: int) -> tuple[list[Candidate], list[UnreadableJob]]:
        """Return the dirty jobs in queue order, and separately those whose record is unreadable."""
        return self._candidates(self._db.rows("dirty_jobs", limit=limit))

    def candidates(self, jobs: Sequence[JobId]) -> list[Candidate]:
        """Return the jobs as the gates see them, without those that are unreadable."""
        return self._candidates(self._db.rows("candidates", ids=list(jobs)))[0]

    def _candidates(self, rows: Sequence[Row]) -> tuple[list[Candidate], list[UnreadableJob]]:
        ids = [row[3] for row in rows]
        edges = self._blocking_edges([row[3] for row in rows if row[11] > 0])
        locks: dict[int, list[Lock]] = {}
        chains = [row[12] for row in rows if row[15]]
        needs, pins = (self.needs_of(chains), self.pins_of(chains)) if chains else ({}, {})
        contending: set[int] = set()
        for job, key, mode, state in self._db.rows("locks_of", ids=ids) if ids else ():
            locks.setdefault(job, []).append(Lock(key=key, mode=parse_lock_mode(mode)))
            if state == "contending":
                contending.add(job)
        candidates, unreadable = [], []
        for row in rows:
            job, decoder = row[3], RecordDecoder()
            candidate = _candidate_from_row(
                row, decoder, tuple(locks.get(job, ())), edges.get(job, ()), job in contending
            )
            if decoder.error is not None:
                is_unknown = candidate.status is Status.UNREADABLE
                unreadable.append(
                    UnreadableJob(
                        job=JobId(job), chain=JobId(row[12]), error=decoder.error, has_unknown_status=is_unknown
                    )
                )
                continue
            if row[15]:
                chain = row[12]
                candidate = msgspec.structs.replace(candidate, needs=needs.get(chain, ()), pin=pins.get(chain))
            candidates.append(candidate)
        return candidates, unreadable

    def _blocking_edges(self, jobs: Sequence[int]) -> Mapping[int, tuple[UnmetEdge, ...]]:
        if not jobs:
            return {}
        edges: dict[int, tuple[UnmetEdge, ...]] = {}
        for job, predecessor, chain, policy, state, last, status in self._db.rows("blocking_edges", ids=list(jobs)):
            decoder = RecordDecoder()
            edge = Edge(predecessor=JobId(predecessor), chain=JobId(chain), policy=decoder.dependency_policy(policy))
            parsed = None if status is None else parse_status(status)
            if parsed is Status.UNREADABLE:
                decoder.errors.append(f"unknown status {status!r}")
            edges[job] = (
                *edges.get(job, ()),
                UnmetEdge(
                    edge=edge,
                    last_job=None if last is None else JobId(last),
                    status=parsed,
                    is_skipped_by_group=state == EdgeState.UNMEETABLE,
                    error=decoder.error,
                ),
            )
        return edges

    def fronts(self, keys: Iterable[str]) -> dict[str, LockFront]:
        """Return the front of the queue of each key and how the key is held. This takes three index probes a key,
        however long its queue is."""
        fronts = {}
        for key in set(keys):
            held = self._db.rows("front_held", key=key)[0][0]
            first = self._db.rows("front_first", key=key)
            exclusive = self._db.rows("front_first_exclusive", key=key)
            fronts[key] = LockFront(
                held=None if held is None else parse_lock_mode(held),
                first=Rank(*first[0]) if first else None,
                first_exclusive=Rank(*exclusive[0]) if exclusive else None,
            )
        return fronts

    def fronts_of(self, jobs: Sequence[JobId]) -> dict[str, LockFront]:
        """Return the lock fronts of all keys of these jobs, in one statement. This is faster than `fronts` for many
        jobs."""
        return {
            key: LockFront(
                held=None if held is None else parse_lock_mode(held),
                first=Rank(*ranks[:4]) if ranks[3] is not None else None,
                first_exclusive=Rank(*ranks[4:]) if ranks[7] is not None else None,
            )
            for key, held, *ranks in self._db.rows("fronts_of", ids=list(jobs))
        }

    def pauses(self, *, holds: Holds) -> PauseState:
        scopes, states = dict(holds.clearing), {}
        for scope, by, at, state, probe in self._db.rows("pauses"):
            if state is None:
                scopes[scope] = Pause(actor=by, at=from_micros(at))
            else:
                states[scope] = breaker_state(state, at, probe)
        return PauseState(scopes, BreakerStates(states), holds.hold_text)

    def pool_usage(self) -> tuple[dict[str, int], frozenset[int]]:
        """Return the capacity that running jobs and reservations use in each pool, and the numbers of their workers."""
        usage = self._read_pool_usage()
        return usage.used, usage.workers

    def _read_pool_usage(self) -> PoolUsage:
        used: dict[str, int] = {}
        workers = set()
        has_waiting_reservations = False
        for _lane, text, worker in self._db.rows("pool_usage"):
            if worker is None:
                has_waiting_reservations = True
                continue
            workers.add(int(worker.rpartition("/")[2]))
            for name, weight in (decode_demand(text) or {GLOBAL: 1}).items():
                used[name] = used.get(name, 0) + weight
        return PoolUsage(used=used, workers=frozenset(workers), has_waiting_reservations=has_waiting_reservations)

    def waiting_reservations(self) -> list[ReservationCandidate]:
        """Return the waiting reservations in order of arrival."""
        rows = self._db.rows("waiting_reservations")
        locks: dict[int, list[Lock]] = {}
        contending = set()
        for owner, key, mode, state in self._db.rows("locks_of", ids=[-row[0] for row in rows]) if rows else ():
            locks.setdefault(-owner, []).append(Lock(key=key, mode=parse_lock_mode(mode)))
            if state == "contending":
                contending.add(-owner)
        return [
            ReservationCandidate(
                id=ReservationId(reservation),
                demand=decode_demand(demand) or {GLOBAL: 1},
                scopes=scopes_of(decode_demand(demand) or {}, type_, flow, target),
                locks=tuple(locks.get(reservation, ())),
                is_contending=reservation in contending or reservation not in locks,
            )
            for reservation, demand, type_, flow, target in rows
        ]

    def snapshot(
        self,
        limits: PoolSizes,
        batch_size: int | None,
        max_lanes: int = MAX_LANES,
        *,
        holds: Holds,
        has_dirty: bool = True,
        max_heads: int = MAX_LANE_HEADS,
    ) -> Snapshot:
        """Return a snapshot for planning. `has_dirty` may be false if the caller knows that no job is dirty; the
        snapshot then has no horizon."""
        usage = self._read_pool_usage()
        used, reservations = usage.used, self.waiting_reservations() if usage.has_waiting_reservations else ()
        pauses = self.pauses(holds=holds)
        is_full = pauses.is_paused_globally or _is_full(limits, used, GLOBAL)
        horizon = self._db.rows("first_dirty") if has_dirty else ()
        rows = self._db.rows("lanes", limit=1 if is_full else max_lanes + 1)
        return Snapshot(
            lanes=() if is_full else tuple(self._lanes(rows[:max_lanes], limits, used, pauses, max_heads)),
            reservations=tuple(_with_client_state(reservations, holds.absent_clients))
            if holds.absent_clients
            else tuple(reservations),
            lock_fronts=self.fronts(lock.key for reservation in reservations for lock in reservation.locks)
            if reservations
            else {},
            pool_usage=used,
            busy_workers=usage.workers,
            pool_sizes=limits,
            pauses=pauses,
            batch_size=batch_size,
            has_ready=bool(rows),
            frontier=Rank(*rows[max_lanes][7:]) if len(rows) > max_lanes else None,
            horizon=Rank(*horizon[0]) if horizon else None,
        )

    def _lanes(
        self, rows: Sequence[Row], limits: PoolSizes, used: Mapping[str, int], pauses: PauseState, max_heads: int
    ) -> Iterator[Lane]:
        """Return the lanes with ready jobs. A lane that a full pool closes has only its first job, because that job may
        close other pools to the jobs behind it. A lane with unreadable demand is skipped."""
        for lane, text, type_, flow, target, needs_facts, ready, *_ in rows:
            demand, keys = decode_demand(text), breaker_keys(type_, target)
            scopes = scopes_of(demand or {}, type_, flow, target)
            if demand is None or pauses.is_paused(scopes, keys):
                continue
            heads = self._db.rows("heads", lane=lane, limit=_max_startable(limits, used, demand, max_heads))
            if heads:
                ranks = tuple(Rank(*head) for head in heads)
                has_more = ready > len(heads)
                yield Lane(
                    id=LaneId(lane),
                    demand=demand,
                    scopes=scopes,
                    breaker_keys=keys,
                    heads=ranks,
                    has_more=has_more,
                    needs_facts=bool(needs_facts),
                )


def _with_client_state(
    candidates: Iterable[ReservationCandidate], absent_clients: frozenset[ReservationId]
) -> Iterator[ReservationCandidate]:
    """Return the reservations, marked with whether their clients are absent."""
    return (
        msgspec.structs.replace(candidate, is_client_absent=candidate.id in absent_clients) for candidate in candidates
    )


def breaker_state(state: str, until: int, probe: int | None) -> OpenState | HalfOpenState | ProbingState:
    if state == "open":
        return OpenState(from_micros(until))
    return HALF_OPEN if probe is None else ProbingState(JobId(probe))


def _candidate_from_row(
    row: Row, decoder: RecordDecoder, locks: tuple[Lock, ...], edges: tuple[UnmetEdge, ...], is_contending: bool
) -> Candidate:
    demand = decode_demand(row[10])
    if demand is None:
        decoder.errors.append(f"its pool demand cannot be read: {row[10]!r}")
        demand = {}
    return Candidate(
        rank=Rank(*row[:4]),
        chain=JobId(row[12]),
        status=decoder.status(row[4]),
        wait_kind=decoder.wait_kind(row[5]),
        waited_on=decoder.waited_on(row[6]),
        is_ready=bool(row[7]),
        is_contending=is_contending,
        not_before=optional_from_micros(row[8]),
        lane=LaneId(row[9]),
        demand=demand,
        scopes=scopes_of(demand, row[13] or "", row[16] or "", row[14] or ""),
        breaker_keys=breaker_keys(row[13], row[14]),
        locks=locks,
        edges=edges,
    )


def _is_full(limits: PoolSizes, used: Mapping[str, int], name: str) -> bool:
    size = limits.size(name)
    return size is not None and used.get(name, 0) >= size


def _max_startable(limits: PoolSizes, used: Mapping[str, int], demand: PoolDemand, limit: int) -> int:
    """Return how many jobs of a lane could start at most, plus one for the job that closes the lane."""
    room = limit
    for name, weight in demand.items():
        size = limits.size(name)
        if size is not None and weight > 0:
            room = min(room, max(0, size - used.get(name, 0)) // weight)
    return min(limit, room + 1)
