"""Stores what the executor may start by itself: on disk before it is told, and claimed when it says what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rota.core.snapshot import Claim
from rota.core.tick import free_workers
from rota.ids import JobId, LaneId, RunId
from rota.store.claim import Claiming
from rota.store.moment import from_stored, to_stored


class Foreseeing(Claiming):
    def has_disturbances(self) -> bool:
        """Something else than room decides over who starts: slots, pauses, breakers, jobs marked for a look."""
        return bool(self._db.rows("disturbances")[0][0])

    def open_places(self) -> Mapping[JobId, LaneId]:
        """The jobs that run."""
        return {JobId(job): LaneId(lane) for job, lane in self._db.rows("open_places")}

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

    def take_ahead(self, run: RunId, node: str, *, at: datetime | None, now: datetime) -> JobId | None:
        """The executor has begun to start it: it is claimed. None where it does not stand in the queue any more."""
        found = self._db.rows("ahead_as", run=run)
        self._db.run("take_ahead", run=run)
        if not found:
            return None
        ((job, lane, given_at),) = found
        self._db.run("unstir", ids=[job])  # at a start every one that waits is marked
        claim = Claim(job=JobId(job), lane=LaneId(lane), worker=next(free_workers(self.used()[1])))
        begun = from_stored(given_at) if at is None else at
        self._claim([claim], {claim.job: run}, node, at=begun, now=now, cause="ahead")
        return claim.job

    def drop_ahead(self) -> None:
        """None of what is left of it was started, nor will be."""
        self._db.run("drop_ahead")
