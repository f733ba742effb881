"""Storage of runs, and of the executor's reports on them until they end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.db.database import Database, Row
from rota.db.decoding import (
    decode_or_default,
    decode_retry_policy,
    delay_to_micros,
    duration_from_micros,
    from_micros,
    optional_from_micros,
    optional_to_micros,
    to_micros,
)
from rota.db.edges import Edges
from rota.db.events import Events
from rota.db.ids import Ids
from rota.db.locks import Locks
from rota.ids import GroupId, JobId, RunId
from rota.kernel.breaker import breaker_keys
from rota.kernel.events import Event
from rota.kernel.retry import RetryPolicy
from rota.kernel.run import Run
from rota.kernel.status import Status, advance, parse_status

ENDED_STATUSES = (Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED)
"""Statuses of an ended run."""


class OpenRun(msgspec.Struct, frozen=True, kw_only=True):
    """Run that has not ended."""

    run: RunId
    job: JobId
    chain: JobId
    status: Status
    dispatch_failures: int
    stop_requested: str | None
    timeout: timedelta | None
    idle_timeout: timedelta | None
    has_locks: bool
    retries: int
    """Number of automatic retries that led to this run."""
    retry_policy: RetryPolicy | None
    breaker_keys: tuple[str, ...] = ()
    """Keys of the breakers that count a failure of this run."""
    is_breaker_probe: bool = False
    """Whether a half-open breaker waits for the outcome of this run."""
    has_products: bool = False
    """Whether the chain produces artifacts."""
    group: GroupId | None = None
    type: str | None = None
    started_at: datetime
    """Time of the claim."""
    worker: str = ""
    is_standalone: bool = False
    """Whether the chain has no dependents, produces nothing and is in no group. False if unknown."""
    ready_at: datetime | None = None
    """Time at which the job became ready."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    run: Run
    rewound_run: RunId | None
    """Latest run of its job at the time of the last rewind."""
    is_superseded: bool
    """Whether its job has a later run."""


class RunRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of_job(self, job: JobId) -> list[Run]:
        """Return the runs of a job, newest first."""
        return [run_from_row(row) for row in self._db.rows("runs_of", job=job)]

    def job_of(self, run: RunId) -> JobId | None:
        rows = self._db.rows("job_of_run", run=run)
        return JobId(rows[0][0]) if rows else None

    def list_latest(
        self,
        *,
        statuses: Collection[Status],
        before_id: int,
        limit: int,
        job: JobId | None = None,
        worker: str | None = None,
    ) -> list[ListedRun]:
        """Return the runs with these statuses and ids less than `before_id`, newest first. `RUNNING` stands for every
        run that has not ended."""
        values: dict[str, object] = {"before_id": before_id, "limit": limit, "worker": worker}
        if job is not None:
            rows = self._db.rows("list_runs_of", job=job, statuses=[status.value for status in statuses], **values)
        elif {Status.RUNNING, *ENDED_STATUSES} <= {*statuses}:
            rows = self._db.rows("list_runs", **values)
        else:
            rows = [row for status in {*statuses} for row in self._with_status(status, values)]
            rows = sorted(rows, reverse=True)[:limit]
        return [_listed_run_from_row(row) for row in rows]

    def _with_status(self, status: Status, values: Mapping[str, object]) -> Sequence[Row]:
        if status is Status.RUNNING:
            return self._db.rows("list_open_runs", **values)
        return self._db.rows("list_ended_runs", status=status.value, **values)

    def list_open(self) -> list[OpenRun]:
        return sorted((_open_run_from_row(row) for row in self._db.rows("open_runs")), key=lambda run: run.run)

    def find_open(self, run: RunId) -> OpenRun | None:
        rows = self._db.rows("open_run", run=run)
        return _open_run_from_row(rows[0]) if rows else None

    def find_open_of(self, job: JobId) -> OpenRun | None:
        rows = self._db.rows("open_run_of", job=job)
        return _open_run_from_row(rows[0]) if rows else None


class Runs(RunRecords):
    def __init__(self, database: Database, ids: Ids, events: Events, edges: Edges, locks: Locks) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events
        self._edges = edges
        self._locks = locks

    def add(self, rows: Sequence[Mapping[str, Any]], now: datetime, cause: str) -> None:
        self._db.run_many("add_run", rows)
        for row in rows:
            data = {"from": "QUEUED", "worker": row["worker"]}
            event = Event(
                kind="job.dispatched", at=to_micros(now), cause=cause, job=row["job"], run=row["run"], data=data
            )
            self._events.emit(event)

    def confirm_start(self, run: OpenRun, pid: int, pid_started: int, now: datetime, cause: str) -> None:
        """Record that the child process exists."""
        if (
            self._db.run("confirm_start", job=run.job, pid=pid, pid_started=pid_started)
            and run.status is Status.DISPATCHED
        ):
            data = {"from": "DISPATCHED", "pid": pid}
            self._events.emit(
                Event(kind="job.running", at=to_micros(now), cause=cause, job=run.job, run=run.run, data=data)
            )

    def delete(self, run: RunId) -> None:
        """Delete the run of a claim that started nothing. Its id is retired, because the executor may still report on
        it."""
        self._ids.retire("run", run)
        self._db.run("delete_run", run=run)

    def requeue(
        self,
        run: OpenRun,
        *,
        dispatch_failures: int,
        error: str | None,
        not_before: datetime | None,
        now: datetime,
        cause: str,
    ) -> None:
        """Put the job of a claim that started nothing back at its position, and delete its run."""
        is_changed = self._db.run(
            "requeue",
            status=advance(run.status, Status.QUEUED).value,
            job=run.job,
            dispatch_failures=dispatch_failures,
            last_failure=error,
            not_before=optional_to_micros(not_before),
            delay=delay_to_micros(not_before, now),
        )
        if is_changed:
            self.delete(run.run)
            self._locks.release(run.job)
            # A predecessor's chain may have continued while the job counted as started.
            self._edges.reevaluate([run.job])
            data = {"from": "DISPATCHED", "error": error} if error else {"from": "DISPATCHED"}
            self._events.emit(Event(kind="job.queued", at=to_micros(now), cause=cause, job=run.job, data=data))


def _listed_run_from_row(row: Row) -> ListedRun:
    return ListedRun(
        run=run_from_row(row), rewound_run=None if row[9] is None else RunId(row[9]), is_superseded=bool(row[10])
    )


def _ended_status(text: str | None, *, is_open: bool) -> Status | None:
    """Return the status of a run, or None if it is open: the end of an open run replaces whatever is stored."""
    if is_open:
        return None
    status = Status.UNREADABLE if text is None else parse_status(text)
    return status if status in ENDED_STATUSES else Status.UNREADABLE


def run_from_row(row: Row) -> Run:
    return Run(
        id=RunId(row[0]),
        job=JobId(row[1]),
        worker=row[2],
        status=_ended_status(row[3], is_open=row[5] is None),
        started_at=from_micros(row[4]),
        finished_at=optional_from_micros(row[5]),
        exit_code=row[6],
        error=row[7],
        artifacts=() if row[8] is None else decode_or_default(row[8], tuple[str, ...], ()),
    )


def _open_run_from_row(row: Row) -> OpenRun:
    return OpenRun(
        run=RunId(row[0]),
        job=JobId(row[1]),
        chain=JobId(row[2]),
        status=parse_status(row[3]),
        dispatch_failures=row[4],
        stop_requested=row[5],
        timeout=duration_from_micros(row[6]),
        idle_timeout=duration_from_micros(row[7]),
        has_locks=bool(row[8]),
        retries=row[9],
        retry_policy=decode_retry_policy(row[10]),
        breaker_keys=breaker_keys(row[11], row[12]),
        is_breaker_probe=bool(row[13]),
        has_products=bool(row[14]),
        group=None if row[15] is None else GroupId(row[15]),
        type=row[11],
        started_at=from_micros(row[16]),
        ready_at=optional_from_micros(row[17]),
        worker=row[18],
    )
