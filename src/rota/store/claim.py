"""Storage of claims, and of the executor's reports on them until they end. The statements are in `sql/claim.sql`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.breaker import breaker_keys
from rota.core.event import Event
from rota.core.retry import RetryPolicy
from rota.core.snapshot import Claim
from rota.core.status import Status, advance, parse_status
from rota.core.trace import Trace
from rota.errors import StoreError
from rota.ids import GroupId, JobId, RunId
from rota.store.database import Row
from rota.store.job_record import decode_retry_policy, decode_trace
from rota.store.placement import PlacementWriter
from rota.store.timestamp import (
    delay_to_micros,
    duration_from_micros,
    from_micros,
    optional_from_micros,
    optional_to_micros,
    to_micros,
)


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


class ClaimWriter(PlacementWriter):
    def claim(self, claims: Sequence[Claim], node: str, now: datetime, cause: str) -> list[Dispatch]:
        """Claim the jobs with their locks and add a run for each. Start them after the commit, never before."""
        if not claims:
            return []
        first = self.allocate_ids("run", len(claims))
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
        self._add_runs(rows, now, cause)
        self._remove_from_lanes(claims)
        if unreadable:
            self.remove_from_queue(unreadable)  # after the claims: a lane counts exactly its ready jobs
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

    def read_dispatches(self, runs: Mapping[JobId, RunId]) -> list[Dispatch]:
        """Return what the executor needs to start these jobs, in the given order. The jobs are not claimed."""
        rows = {row[0]: row for row in self._db.rows("dispatches", ids=list(runs))}
        return [_dispatch_from_row(rows[job], runs) for job in runs]

    def _add_runs(self, rows: Sequence[Mapping[str, Any]], now: datetime, cause: str) -> None:
        self._db.run_many("add_run", rows)
        for row in rows:
            data = {"from": "QUEUED", "worker": row["worker"]}
            event = Event(
                kind="job.dispatched", at=to_micros(now), cause=cause, job=row["job"], run=row["run"], data=data
            )
            self.emit(event)

    def _remove_from_lanes(self, claims: Sequence[Claim]) -> None:
        counts: dict[int, int] = {}
        for claim in claims:
            counts[claim.lane] = counts.get(claim.lane, 0) + 1
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": -count} for lane, count in counts.items()])

    def open_runs(self) -> list[OpenRun]:
        return sorted((_open_run_from_row(row) for row in self._db.rows("open_runs")), key=lambda run: run.run)

    def open_run(self, run: RunId) -> OpenRun | None:
        rows = self._db.rows("open_run", run=run)
        return _open_run_from_row(rows[0]) if rows else None

    def open_run_of(self, job: JobId) -> OpenRun | None:
        rows = self._db.rows("open_run_of", job=job)
        return _open_run_from_row(rows[0]) if rows else None

    def confirm_start(self, run: OpenRun, pid: int, pid_started: int, now: datetime, cause: str) -> None:
        """Record that the child process exists."""
        if (
            self._db.run("confirm_start", job=run.job, pid=pid, pid_started=pid_started)
            and run.status is Status.DISPATCHED
        ):
            data = {"from": "DISPATCHED", "pid": pid}
            self.emit(Event(kind="job.running", at=to_micros(now), cause=cause, job=run.job, run=run.run, data=data))

    def _delete_run(self, run: RunId) -> None:
        """Delete the run of a claim that started nothing. Its id is retired, because the executor may still report on
        it."""
        self.retire_ids("run", run)
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
            self._delete_run(run.run)
            self.release_locks(run.job)
            # A predecessor's chain may have continued while the job counted as started.
            self.reevaluate_edges([run.job])
            data = {"from": "DISPATCHED", "error": error} if error else {"from": "DISPATCHED"}
            self.emit(Event(kind="job.queued", at=to_micros(now), cause=cause, job=run.job, data=data))


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
