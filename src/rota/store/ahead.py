"""Stores what the executor may start by itself: on disk before it is told, and claimed when it says what it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.core.breaker import keys_of
from rota.core.status import Status
from rota.ids import JobId, LaneId, RunId
from rota.store.claim import Claiming, Dispatch, OpenRun
from rota.store.database import Row
from rota.store.moment import maybe_from_stored, to_stored
from rota.store.record import decode_policy


class Place(NamedTuple):
    """Something runs there."""

    run: RunId
    job: JobId
    lane: LaneId


class Foreseen(NamedTuple):
    """A plain job that stands in the queue, as it will be when it is claimed."""

    run: OpenRun
    dispatch: Dispatch


class Foreseeing(Claiming):
    def has_disturbances(self) -> bool:
        """Something else than room decides over who starts: slots, pauses, breakers, jobs marked for a look."""
        return bool(self._db.rows("disturbances")[0][0])

    def open_places(self) -> list[Place]:
        return [Place(RunId(run), JobId(job), LaneId(lane)) for run, job, lane in self._db.rows("open_places")]

    def ready_lanes(self, limit: int) -> list[tuple[LaneId, bool]]:
        """The first lanes with ready jobs, and whether those have to be looked at outside before they start."""
        return [(LaneId(row[0]), bool(row[5])) for row in self._db.rows("lanes", limit=limit)]

    def heads(self, lane: LaneId, limit: int) -> list[JobId]:
        return [JobId(row[3]) for row in self._db.rows("heads", lane=lane, limit=limit)]

    def plain(self, jobs: Sequence[JobId]) -> frozenset[JobId]:
        """Of these, those whose success makes room and changes nothing else."""
        return frozenset(JobId(job) for (job,) in self._db.rows("plain", ids=list(jobs)))

    def give_ahead(self, runs: Mapping[JobId, RunId], now: datetime) -> None:
        self._db.run_many(
            "add_ahead", [{"run": run, "job": job, "given_at": to_stored(now)} for job, run in runs.items()]
        )

    def given_ahead(self) -> list[RunId]:
        return [RunId(run) for (run,) in self._db.rows("ahead")]

    def take_ahead(self, run: RunId, worker: str, *, at: datetime | None, now: datetime) -> bool:
        """The executor has begun to start it: it is claimed. False where it does not stand in the queue any more."""
        for job, given_at in self._db.rows("take_ahead", run=run):
            begun = given_at if at is None else to_stored(at)
            for (lane,) in self._db.rows("claim_ahead", job=job, now=begun):
                self._add_runs([{"job": job, "run": run, "worker": worker, "now": begun}], now, "ahead")
                self._db.run("count_ready", lane=lane, change=-1)
                return True
        return False

    def foreseen(self, dispatches: Sequence[Dispatch], now: datetime) -> Iterator[Foreseen]:
        """These, of which it is known that they are plain, in their order, up to one whose record cannot be used."""
        rows = {row[0]: row for row in self._db.rows("foreseen", ids=[dispatch.job for dispatch in dispatches])}
        for dispatch in dispatches:
            yield Foreseen(_open_run(rows[dispatch.job], dispatch, now), dispatch)

    def forget_ahead(self, run: RunId) -> None:
        """It is not to be claimed under this number any more."""
        self._db.rows("take_ahead", run=run)

    def drop_ahead(self) -> None:
        """None of what is left of it was started, nor will be."""
        self._db.run("drop_ahead")


def _open_run(row: Row, dispatch: Dispatch, now: datetime) -> OpenRun:
    return OpenRun(
        run=dispatch.run,
        job=dispatch.job,
        chain=JobId(row[1]),
        status=Status.DISPATCHED,
        dispatch_failures=row[2],
        stop_requested=None,
        timeout=dispatch.timeout,
        idle_timeout=dispatch.idle_timeout,
        has_locks=False,
        retries=row[3],
        policy=decode_policy(row[4]),
        keys=keys_of(dispatch.type, row[5]),
        type=dispatch.type,
        is_plain=True,
        started_at=now,
        ready_at=maybe_from_stored(row[6]),
    )
