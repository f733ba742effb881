"""Storage of prefetched runs. An offer is committed before the executor gets it, and the job is claimed when the
executor reports that it started the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.db.database import Database, Row
from rota.db.decoding import decode_retry_policy, optional_from_micros, to_micros
from rota.db.queue import Dispatch
from rota.db.runs import OpenRun, Runs
from rota.ids import JobId, LaneId, RunId
from rota.kernel.breaker import breaker_keys
from rota.kernel.status import Status


class RunningLane(NamedTuple):
    """Lane of a running job."""

    run: RunId
    job: JobId
    lane: LaneId


class PrefetchedJob(NamedTuple):
    """Queued standalone job, as it will be when it is claimed."""

    run: OpenRun
    dispatch: Dispatch


class Prefetch:
    def __init__(self, database: Database, runs: Runs) -> None:
        self._db = database
        self._runs = runs

    def has_start_constraints(self) -> bool:
        """Return whether anything besides room decides which job starts next: reservations, pauses, breakers or dirty
        jobs."""
        return bool(self._db.rows("count_start_constraints")[0][0])

    def running_lanes(self) -> list[RunningLane]:
        return [RunningLane(RunId(run), JobId(job), LaneId(lane)) for run, job, lane in self._db.rows("running_lanes")]

    def standalone_jobs(self, jobs: Sequence[JobId]) -> frozenset[JobId]:
        """Return the jobs among these whose success frees room and changes nothing else."""
        return frozenset(JobId(job) for (job,) in self._db.rows("standalone_jobs", ids=list(jobs)))

    def offer(self, runs: Mapping[JobId, RunId], now: datetime) -> None:
        self._db.run_many(
            "add_prefetch", [{"run": run, "job": job, "offered_at": to_micros(now)} for job, run in runs.items()]
        )

    def offered_runs(self) -> list[RunId]:
        return [RunId(run) for (run,) in self._db.rows("prefetched_runs")]

    def accept(self, run: RunId, worker: str, *, started_at: datetime | None, now: datetime) -> bool:
        """Claim a prefetched job that the executor has started. Return false if the job is no longer in the queue."""
        for job, offered_at in self._db.rows("take_prefetch", run=run):
            started = offered_at if started_at is None else to_micros(started_at)
            for (lane,) in self._db.rows("claim_prefetched", job=job, now=started):
                self._runs.add([{"job": job, "run": run, "worker": worker, "now": started}], now, "prefetch")
                self._db.run("update_ready_count", lane=lane, delta=-1)
                return True
        return False

    def jobs(self, dispatches: Sequence[Dispatch], now: datetime) -> Iterator[PrefetchedJob]:
        """Yield these standalone jobs in order, up to the first one whose record is unreadable."""
        rows = {row[0]: row for row in self._db.rows("prefetched_jobs", ids=[dispatch.job for dispatch in dispatches])}
        for dispatch in dispatches:
            yield PrefetchedJob(_open_run_from_row(rows[dispatch.job], dispatch, now), dispatch)

    def withdraw(self, run: RunId) -> None:
        """Delete the offer of a run, so that its job cannot be claimed with this run id."""
        self._db.rows("take_prefetch", run=run)

    def clear(self) -> None:
        """Delete all offers. The caller knows that none of them started or will start."""
        self._db.run("clear_prefetch")


def _open_run_from_row(row: Row, dispatch: Dispatch, now: datetime) -> OpenRun:
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
        retry_policy=decode_retry_policy(row[4]),
        breaker_keys=breaker_keys(dispatch.type, row[5]),
        type=dispatch.type,
        is_standalone=True,
        started_at=now,
        ready_at=optional_from_micros(row[6]),
    )
