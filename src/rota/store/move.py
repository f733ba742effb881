"""Stores places in the queue. A job's rank is copied to its locks, and a lane has that of its first: they follow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.event import Event
from rota.core.queue import POSITION_GAP, Rank, position_of
from rota.core.status import Status
from rota.ids import JobId
from rota.store.database import Database
from rota.store.moment import to_stored
from rota.store.place import Placing
from rota.store.record import FIRST_RANK, LAST_RANK


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the queue sees it."""

    rank: Rank
    status: Status
    chain: JobId

    @property
    def job(self) -> JobId:
        return self.rank.job


class QueueRecords:
    _db: Database

    def queued(self, jobs: Sequence[JobId]) -> dict[JobId, Queued]:
        """Those of them that there are."""
        return {
            JobId(row[3]): Queued(rank=Rank(*row[:4]), status=Status(row[4]), chain=JobId(row[5]))
            for row in self._db.rows("queued", ids=list(jobs))
        }

    def waits_behind(self, rank: Rank, *, but: JobId, skipped: int = 0) -> Rank | None:
        """Who waits next behind this one, of its priority; `but` the job that is about to move."""
        rows = self._db.rows("line_behind", but=but, skipped=skipped, **rank._asdict())
        return Rank(*rows[0]) if rows else None

    def waits_before(self, rank: Rank, *, but: JobId) -> Rank | None:
        rows = self._db.rows("line_before", but=but, **rank._asdict())
        return Rank(*rows[0]) if rows else None

    def place_of(self, rank: Rank) -> int:
        """Which one it is of those of its priority that wait, counted from 1."""
        return int(self._db.rows("count_before", **rank._asdict())[0][0]) + 1

    def waiting_line(self, behind: Rank, limit: int) -> list[Rank]:
        """All that wait, in queue order, behind this one."""
        return [Rank(*row) for row in self._db.rows("waiting_line", limit=limit, **behind._asdict())]


def ends_of(precedence: int) -> tuple[Rank, Rank]:
    """Before everybody of this priority, and behind everybody."""
    (_, *first), (_, *last) = FIRST_RANK, LAST_RANK
    return Rank._make((precedence, *first)), Rank._make((precedence, *last))


class Moving(Placing, QueueRecords):
    def upcoming(self) -> JobId:
        """The number that the next job is going to have."""
        return JobId(self.take("job", 0))

    def set_ranks(self, ranks: Sequence[Rank]) -> bool:
        """Give waiting jobs other ranks; false when one no longer waits. What stands in the queues of its locks
        leaves them and joins again with its next look, so that whoever is first then looks again too."""
        jobs = [rank.job for rank in ranks]
        contending = {job for job, _, _, state in self._db.rows("locks_of", ids=jobs) if state == "contending"}
        for job in contending:
            self.leave_locks(JobId(job))
        rows = [{"job": rank.job, "precedence": rank.precedence, "position": rank.position} for rank in ranks]
        if self._db.run_many("set_rank", rows) != len(rows):
            return False
        self._db.run_many("set_lock_rank", rows)
        lanes = {lane for *_, is_ready, lane in self._db.rows("queued", ids=jobs) if is_ready}
        self._db.run_many("count_ready", [{"lane": lane, "change": 0} for lane in sorted(lanes)])
        for job in contending:
            self.stir(JobId(job))
        return True

    def move(self, ranks: Sequence[Rank], was: Sequence[int], *, now: datetime, actor: str | None) -> bool:
        """The same, told: `was` has the positions they had."""
        if not self.set_ranks(ranks):
            return False
        for rank, position in zip(ranks, was, strict=True):
            data = {"from": position, "position": rank.position}
            self.emit(Event(kind="job.moved", at=to_stored(now), cause="move", actor=actor, job=rank.job, data=data))
        return True

    def is_crowded(self, precedence: int, positions: Sequence[int]) -> bool:
        """More than one job of the priority that waits is at one of these."""
        counts = (self._db.rows("waiting_at", precedence=precedence, position=each) for each in positions)
        return any(rows[0][0] > 1 for rows in counts)

    def respace(self, precedence: int, *, now: datetime) -> None:
        """Make the gaps of a priority anew. Nobody's turn changes, so nobody looks again."""
        upper = position_of(self.upcoming())
        count = self._db.run("respace", precedence=precedence, upper=upper, gap=POSITION_GAP)
        self._db.run("respace_locks", precedence=precedence)
        self._db.run("respace_lanes", precedence=precedence)
        data = {"priority": -precedence, "jobs": count}
        self.emit(Event(kind="queue.respaced", at=to_stored(now), cause="move", data=data))
