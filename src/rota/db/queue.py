"""Changes of the queue: evaluation results, claims, moves, and wake-ups for the jobs that an event affects.

The `dirty` mark of a job is a durable wake-up. The transaction of the event sets it, and the transaction of the
evaluation clears it, so a crash between the two loses nothing. An event marks only the jobs whose evaluation it can
change: the end of a job marks the jobs whose edges it decides, and a released lock marks the front of its queue.

The rank of a job is copied to its locks, and a lane has the rank of its first job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.db.artifacts import ArtifactRecords
from rota.db.database import Database, Row
from rota.db.decoding import decode_demand, decode_trace, duration_from_micros, to_micros
from rota.db.edges import EdgeRecords
from rota.db.events import Events
from rota.db.ids import Ids
from rota.db.lanes import PauseRecords
from rota.db.locks import Locks
from rota.db.queue_reads import QueueRecords
from rota.db.reservations import ReservationRecords
from rota.db.runs import Runs
from rota.errors import StoreError
from rota.ids import JobId, LaneId, RunId
from rota.kernel.events import Event
from rota.kernel.lanes import Claim
from rota.kernel.queue import POSITION_GAP, Rank, initial_position
from rota.kernel.status import TERMINAL, Status, parse_status
from rota.kernel.tick import Placement
from rota.kernel.trace import Trace


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """Claimed job with the columns that the executor needs to start it.

    The fields are as stored and not decoded yet. They are None if the spec is gone from the store.
    """

    run: RunId
    job: JobId
    command: str | None
    cwd: str | None
    environment: int | None
    params: str | None
    timeout: timedelta | None
    idle_timeout: timedelta | None
    skip_if: str | None
    producer_chain: JobId | None = None
    """Chain of the job, if it produces artifacts; None otherwise."""
    workspace: str | None = None
    rewound_run: RunId | None = None
    """Run whose files are moved aside before the start."""
    trace: str | None = None
    type: str | None = None
    queued_at: int | None = None

    def queued_seconds(self, now: datetime) -> float:
        """Return how many seconds ago the job was queued."""
        return 0.0 if self.queued_at is None else max(0.0, (to_micros(now) - self.queued_at) / 1_000_000)

    @property
    def trace_variables(self) -> Trace:
        """Environment variables of the trace context."""
        return decode_trace(self.trace)


class Queue(QueueRecords):
    def __init__(
        self,
        database: Database,
        ids: Ids,
        events: Events,
        artifacts: ArtifactRecords,
        edges: EdgeRecords,
        locks: Locks,
        pauses: PauseRecords,
        reservations: ReservationRecords,
        runs: Runs,
    ) -> None:
        super().__init__(database, artifacts, edges, locks, pauses, reservations)
        self._ids = ids
        self._events = events
        self._locks: Locks = locks
        self._runs = runs

    def claim(self, claims: Sequence[Claim], node: str, now: datetime, cause: str) -> list[Dispatch]:
        """Claim the jobs with their locks and add a run for each. Start them after the commit, never before."""
        if not claims:
            return []
        first = self._ids.allocate("run", len(claims))
        runs = {claim.job: RunId(first + n) for n, claim in enumerate(claims)}
        rows = [
            {"job": claim.job, "run": runs[claim.job], "worker": f"{node}/{claim.worker}", "now": to_micros(now)}
            for claim in claims
        ]
        unreadable: Sequence[JobId] = ()
        if (claimed := self._db.run_many("claim", rows)) != len(rows):
            unreadable = self._find_unreadable(claims, claimed)
            claims = [claim for claim in claims if claim.job not in unreadable]
            rows = [row for row in rows if row["job"] not in unreadable]
            runs = {claim.job: runs[claim.job] for claim in claims}
        self._runs.add(rows, now, cause)
        self._remove_from_lanes(claims)
        if unreadable:
            self.remove(unreadable)  # after the claims: a lane counts exactly its ready jobs
        orders = self._db.rows("dispatches", ids=list(runs)) if runs else []
        self._db.run_many("hold_locks", [{"job": row[0]} for row in orders if row[8]])
        return [_dispatch_from_row(row, runs) for row in orders]

    def _find_unreadable(self, claims: Sequence[Claim], claimed_count: int) -> list[JobId]:
        """Return the jobs of unknown status among the claims. `claimed_count` is the number of jobs that the claim
        changed."""
        statuses = {job: parse_status(status) for job, status in self._db.rows("statuses", ids=[c.job for c in claims])}
        unreadable = [JobId(job) for job, status in statuses.items() if status is Status.UNREADABLE]
        if claimed_count + len(unreadable) != len(claims):
            raise StoreError("a job was claimed by another writer; make sure that no second scheduler uses this store")
        return unreadable

    def dispatches(self, runs: Mapping[JobId, RunId]) -> list[Dispatch]:
        """Return what the executor needs to start these jobs, in the given order. The jobs are not claimed."""
        rows = {row[0]: row for row in self._db.rows("dispatches", ids=list(runs))}
        return [_dispatch_from_row(rows[job], runs) for job in runs]

    def _remove_from_lanes(self, claims: Sequence[Claim]) -> None:
        counts: dict[int, int] = {}
        for claim in claims:
            counts[claim.lane] = counts.get(claim.lane, 0) + 1
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": -count} for lane, count in counts.items()])

    def wake(self, job: JobId) -> None:
        self._db.run("wake_job", job=job)

    def wake_due(self, now: datetime) -> None:
        self._db.run("wake_due", now=to_micros(now))

    def wake_all(self) -> None:
        self._db.run("wake_all_waiting")

    def place(self, placements: Sequence[Placement], now: datetime, cause: str) -> None:
        """Store the result of an evaluation. For a job that does not change, only clear the dirty mark."""
        changed = [placement for placement in placements if placement.has_changed]
        self._db.run("clear_dirty", ids=[placement.job for placement in placements if not placement.has_changed])
        if any(placement.has_delay_ended for placement in placements):
            self._db.run("clear_delay", ids=[placement.job for placement in placements if placement.has_delay_ended])
        rows = [_placement_row(placement, to_micros(now)) for placement in changed]
        if rows and self._db.run_many("place_job", rows) != len(rows):
            raise StoreError("a job changed while it was evaluated; make sure that no second scheduler uses this store")
        self._update_ready_counts(changed)
        for placement in placements:
            if placement.joins_lock_queues:
                self._locks.join_queues(placement.job)
        for placement in placements:  # joins come first: the release below must find waiting jobs in the queue
            if placement.leaves_lock_queues:
                self._locks.release(placement.job)
        for placement in changed:
            if placement.new_status is not placement.old_status:
                self._events.emit(_placement_event(placement, to_micros(now), cause))

    def _update_ready_counts(self, changed: Iterable[Placement]) -> None:
        """Update the number of ready jobs of each lane. A delta of zero is stored too, because the first job may
        differ."""
        deltas: dict[LaneId, int] = {}
        for placement in changed:
            if placement.is_ready != placement.was_ready:
                deltas[placement.lane] = deltas.get(placement.lane, 0) + placement.is_ready - placement.was_ready
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": delta} for lane, delta in deltas.items()])

    def remove(self, jobs: Sequence[JobId]) -> None:
        """Remove jobs of unknown status from the queue: they do not start, and no job waits behind them.

        The jobs stay in the store with their status. The jobs that depend on them are evaluated again.
        """
        rows = {row[0]: row for row in self._db.rows("waiting_unreadable")}
        for job, chain, lane, ready in (rows[job] for job in jobs if job in rows):
            self._db.run("remove_from_queue", job=job)
            if ready:
                self._db.run("update_ready_count", lane=lane, delta=-1)
            self._locks.release(job)
            self._db.run("wake_open_successors", chain=chain)

    def remove_unreadable(self) -> None:
        """Remove all jobs of unknown status from the queue, and wake the jobs of lanes whose demand is unreadable, so
        that their evaluation fails them."""
        self.remove([JobId(row[0]) for row in self._db.rows("waiting_unreadable")])
        for lane, demand in self._db.rows("lane_demands"):
            if decode_demand(demand) is None:
                self._db.run("wake_lane", lane=lane)

    def set_ranks(self, ranks: Sequence[Rank]) -> bool:
        """Give waiting jobs new ranks. Return false if a job no longer waits.

        A job in the queues of its locks leaves them and joins again with its next evaluation, so that the new front is
        evaluated too.
        """
        jobs = [rank.job for rank in ranks]
        contending = {job for job, _, _, state in self._db.rows("locks_of", ids=jobs) if state == "contending"}
        for job in contending:
            self._locks.release(JobId(job))
        rows = [{"job": rank.job, "precedence": rank.precedence, "position": rank.position} for rank in ranks]
        if self._db.run_many("set_rank", rows) != len(rows):
            return False
        self._db.run_many("set_lock_rank", rows)
        lanes = {lane for *_, is_ready, lane in self._db.rows("queued_ranks", ids=jobs) if is_ready}
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": 0} for lane in sorted(lanes)])
        for job in contending:
            self.wake(JobId(job))
        return True

    def move(self, ranks: Sequence[Rank], old_positions: Sequence[int], *, now: datetime, actor: str | None) -> bool:
        """Give waiting jobs new ranks and emit an event for each. `old_positions` are their positions before."""
        if not self.set_ranks(ranks):
            return False
        for rank, position in zip(ranks, old_positions, strict=True):
            data = {"from": position, "position": rank.position}
            self._events.emit(
                Event(kind="job.moved", at=to_micros(now), cause="move", actor=actor, job=rank.job, data=data)
            )
        return True

    def has_duplicate_positions(self, precedence: int, positions: Sequence[int]) -> bool:
        """Return whether several waiting jobs of this priority share one of these positions."""
        counts = (self._db.rows("count_waiting_at", precedence=precedence, position=position) for position in positions)
        return any(rows[0][0] > 1 for rows in counts)

    def respace(self, precedence: int, *, now: datetime) -> None:
        """Spread the positions of a priority evenly again. The order does not change, so no job is evaluated."""
        upper = initial_position(self._ids.peek_job())
        count = self._db.run("respace", precedence=precedence, upper=upper, gap=POSITION_GAP)
        self._db.run("respace_locks", precedence=precedence)
        self._db.run("respace_lanes", precedence=precedence)
        data = {"priority": -precedence, "jobs": count}
        self._events.emit(Event(kind="queue.renumbered", at=to_micros(now), cause="move", data=data))

    def shorten_due_times(self, now: datetime) -> None:
        """Move every due time that is further away than its delay, after the wall clock was set back.

        A due time is wall time, so that time passes for it while the scheduler or the machine is off. The delay that it
        came from, or the time at which it was set, is stored with it. No due time may be further away than its delay:
        if the clock was set back, while the scheduler ran or before it started, the due time moves to now plus the
        delay.

            set at 10:00 for 10:05 ── clock set back to 9:00 ──▶ 9:05

        A delay that is over stays over. A finished job keeps its due time; a rewind, the only way back into the queue,
        adjusts it in the same way (`db/sql/rewind.sql`). Times of day (`schedules/repository.py`) follow the wall clock
        and are not adjusted.
        """
        for statement in (
            "end_delays",
            "shorten_delays",
            "shorten_cool_downs",
            "clamp_failure_times",
            "shorten_delivery_delays",
            "shorten_webhook_holds",
            "shorten_old_secrets",
        ):
            self._db.run(statement, now=to_micros(now))


def _placement_row(placement: Placement, now: int) -> dict[str, object]:
    return {
        "job": placement.job,
        "from_status": placement.old_status.value,
        "to_status": placement.new_status.value,
        "wait_kind": None if placement.wait_kind is None else placement.wait_kind.value,
        "waited_on": ",".join(placement.waited_on),
        "ready": int(placement.is_ready),
        "ready_at": now if placement.is_ready and not placement.was_ready else None,
        "reason": placement.reason,
        "finished_at": now if placement.new_status in TERMINAL else None,
    }


def _placement_event(placement: Placement, now: int, cause: str) -> Event:
    data = {"from": placement.old_status.value}
    if placement.reason is not None:
        data["reason"] = placement.reason
    return Event(kind=f"job.{placement.new_status.lower()}", at=now, cause=cause, job=placement.job, data=data)


def _dispatch_from_row(row: Row, runs: Mapping[JobId, RunId]) -> Dispatch:
    return Dispatch(
        run=runs[row[0]],
        job=row[0],
        command=row[1],
        cwd=row[2],
        environment=row[3],
        params=row[4],
        timeout=duration_from_micros(row[5]),
        idle_timeout=duration_from_micros(row[6]),
        skip_if=row[7],
        producer_chain=row[9],
        workspace=row[10],
        rewound_run=row[11],
        trace=row[12],
        type=row[13],
        queued_at=row[14],
    )
