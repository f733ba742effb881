"""Storage of queue positions. The rank of a job is copied to its locks, and a lane has the rank of its first job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.event import Event
from rota.core.queue import POSITION_GAP, Rank, initial_position
from rota.core.status import Status, parse_status
from rota.ids import JobId
from rota.store.database import Database
from rota.store.job_record import FIRST_RANK, LAST_RANK
from rota.store.placement import PlacementWriter
from rota.store.timestamp import to_micros


class QueuedJobRank(msgspec.Struct, frozen=True, kw_only=True):
    """Job with its rank in the queue."""

    rank: Rank
    status: Status
    chain: JobId

    @property
    def job(self) -> JobId:
        return self.rank.job


class QueueRecords:
    _db: Database

    def queued_ranks(self, jobs: Sequence[JobId]) -> dict[JobId, QueuedJobRank]:
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


def priority_bounds(precedence: int) -> tuple[Rank, Rank]:
    """Return a rank before and a rank behind all jobs of a priority."""
    (_, *first), (_, *last) = FIRST_RANK, LAST_RANK
    return Rank._make((precedence, *first)), Rank._make((precedence, *last))


class QueueWriter(PlacementWriter, QueueRecords):
    def peek_job_id(self) -> JobId:
        """Return the id that the next job gets."""
        return JobId(self.allocate_ids("job", 0))

    def set_ranks(self, ranks: Sequence[Rank]) -> bool:
        """Give waiting jobs new ranks. Return false if a job no longer waits.

        A job in the queues of its locks leaves them and joins again with its next evaluation, so that the new front is
        evaluated too.
        """
        jobs = [rank.job for rank in ranks]
        contending = {job for job, _, _, state in self._db.rows("locks_of", ids=jobs) if state == "contending"}
        for job in contending:
            self.release_locks(JobId(job))
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
            self.emit(Event(kind="job.moved", at=to_micros(now), cause="move", actor=actor, job=rank.job, data=data))
        return True

    def has_duplicate_positions(self, precedence: int, positions: Sequence[int]) -> bool:
        """Return whether several waiting jobs of this priority share one of these positions."""
        counts = (self._db.rows("count_waiting_at", precedence=precedence, position=position) for position in positions)
        return any(rows[0][0] > 1 for rows in counts)

    def respace(self, precedence: int, *, now: datetime) -> None:
        """Spread the positions of a priority evenly again. The order does not change, so no job is evaluated."""
        upper = initial_position(self.peek_job_id())
        count = self._db.run("respace", precedence=precedence, upper=upper, gap=POSITION_GAP)
        self._db.run("respace_locks", precedence=precedence)
        self._db.run("respace_lanes", precedence=precedence)
        data = {"priority": -precedence, "jobs": count}
        self.emit(Event(kind="queue.renumbered", at=to_micros(now), cause="move", data=data))
