"""Reads of the queue: what gates and planning need, ranks, and depth; `queue.py` has the changes.

A tick, `why` and a dry run use the same reads, so they agree. Each read is bounded, however long the queue is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.db.artifacts import ArtifactRecords
from rota.db.database import Database, Row
from rota.db.decoding import RecordDecoder, decode_demand, from_micros, optional_from_micros, parse_lock_mode
from rota.db.edges import EdgeRecords
from rota.db.lanes import PauseRecords
from rota.db.locks import LockRecords
from rota.db.reservations import ReservationRecords
from rota.ids import JobId, LaneId, ReservationId
from rota.kernel.backpressure import QueueDepth
from rota.kernel.breaker import breaker_keys
from rota.kernel.edges import UnmetEdge
from rota.kernel.gates import Candidate
from rota.kernel.holds import Holds, PauseState, scopes_of
from rota.kernel.lanes import Lane, Snapshot
from rota.kernel.locks import Lock
from rota.kernel.pools import PoolDemand, PoolSizes
from rota.kernel.queue import Rank
from rota.kernel.reservations import ReservationCandidate
from rota.kernel.status import Status, parse_status
from rota.naming import GLOBAL

MAX_LANES = 32
"""Default number of lanes in a snapshot."""
MAX_LANE_HEADS = 64
"""Default maximum of ready jobs of a lane in a snapshot. The plan reports if it needs more."""


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


class QueuedJobRank(msgspec.Struct, frozen=True, kw_only=True):
    """Job with its rank in the queue."""

    rank: Rank
    status: Status
    chain: JobId

    @property
    def job(self) -> JobId:
        return self.rank.job


class QueueRecords:
    def __init__(
        self,
        database: Database,
        artifacts: ArtifactRecords,
        edges: EdgeRecords,
        locks: LockRecords,
        pauses: PauseRecords,
        reservations: ReservationRecords,
    ) -> None:
        self._db = database
        self._artifacts = artifacts
        self._edges = edges
        self._locks = locks
        self._pauses = pauses
        self._reservations = reservations

    def dirty_jobs(self, limit: int) -> tuple[list[Candidate], list[UnreadableJob]]:
        """Return the dirty jobs in queue order, and separately those whose record is unreadable."""
        return self._candidates(self._db.rows("dirty_jobs", limit=limit))

    def candidates(self, jobs: Sequence[JobId]) -> list[Candidate]:
        """Return the jobs as the gates see them, without those that are unreadable."""
        return self._candidates(self._db.rows("candidates", ids=list(jobs)))[0]

    def _candidates(self, rows: Sequence[Row]) -> tuple[list[Candidate], list[UnreadableJob]]:
        ids = [row[3] for row in rows]
        edges = self._edges.blocking([row[3] for row in rows if row[11] > 0])
        locks: dict[int, list[Lock]] = {}
        chains = [row[12] for row in rows if row[15]]
        needs, pins = (self._artifacts.needs_of(chains), self._artifacts.pins_of(chains)) if chains else ({}, {})
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
        used, reservations = usage.used, self._reservations.waiting() if usage.has_waiting_reservations else ()
        pauses = self._pauses.state(holds=holds)
        is_full = pauses.is_paused_globally or _is_full(limits, used, GLOBAL)
        horizon = self._db.rows("first_dirty") if has_dirty else ()
        rows = self._db.rows("lanes", limit=1 if is_full else max_lanes + 1)
        return Snapshot(
            lanes=() if is_full else tuple(self._lanes(rows[:max_lanes], limits, used, pauses, max_heads)),
            reservations=tuple(_with_client_state(reservations, holds.reservations_without_client))
            if holds.reservations_without_client
            else tuple(reservations),
            lock_fronts=self._locks.fronts(lock.key for reservation in reservations for lock in reservation.locks)
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

    def next_due(self) -> datetime | None:
        """Return the time at which the next delayed job becomes due."""
        due = self._db.rows("next_due")
        return from_micros(due[0][0]) if due else None

    def ranks(self, jobs: Sequence[JobId]) -> dict[JobId, QueuedJobRank]:
        """Return the jobs that exist, by id."""
        return {
            JobId(row[3]): QueuedJobRank(rank=Rank(*row[:4]), status=parse_status(row[4]), chain=JobId(row[5]))
            for row in self._db.rows("queued_ranks", ids=list(jobs))
        }

    def next_waiting(self, rank: Rank, *, except_job: JobId, offset: int = 0) -> Rank | None:
        """Return the rank of the next waiting job of the same priority after `rank`, skipping `except_job`, which is
        about to move."""
        rows = self._db.rows("next_waiting", except_job=except_job, offset=offset, **rank._asdict())
        return Rank(*rows[0]) if rows else None

    def previous_waiting(self, rank: Rank, *, except_job: JobId) -> Rank | None:
        rows = self._db.rows("previous_waiting", except_job=except_job, **rank._asdict())
        return Rank(*rows[0]) if rows else None

    def place_of(self, rank: Rank) -> int:
        """Return the 1-based place of a rank among the waiting jobs of its priority."""
        return int(self._db.rows("count_before", **rank._asdict())[0][0]) + 1

    def waiting_ranks(self, after: Rank, limit: int) -> list[Rank]:
        """Return the ranks of the waiting jobs after `after`, in queue order."""
        return [Rank(*row) for row in self._db.rows("waiting_ranks", limit=limit, **after._asdict())]

    def depth(self) -> QueueDepth:
        """Count the ready jobs, from the lanes."""
        total, by_flow = 0, dict[str, int]()
        for flow, ready in self._db.rows("flow_depths"):
            total += ready
            if flow:
                by_flow[flow] = by_flow.get(flow, 0) + ready
        return QueueDepth(total=total, by_flow=dict(sorted(by_flow.items())))

    def next_to_start(self) -> JobId | None:
        """Return the waiting job that is closest to its start.

        This is the first job that no dependency, delay or lock blocks, else the job whose delay ends first, else the
        first job of the queue.
        """
        rows = self._db.rows("first_queued") or self._db.rows("first_due") or self._db.rows("first_waiting")
        return JobId(rows[0][0]) if rows else None


def _with_client_state(
    candidates: Iterable[ReservationCandidate], reservations_without_client: frozenset[ReservationId]
) -> Iterator[ReservationCandidate]:
    """Return the reservations, marked with whether their clients are absent."""
    return (
        msgspec.structs.replace(candidate, is_client_absent=candidate.id in reservations_without_client)
        for candidate in candidates
    )


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
