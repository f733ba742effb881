"""Stores claims, and what the executor says of them before they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.breaker import keys_of
from rota.core.event import Event
from rota.core.retry import RetryPolicy
from rota.core.snapshot import Claim
from rota.core.status import Status, advance
from rota.core.trace import Trace
from rota.errors import StoreError
from rota.ids import GroupId, JobId, RunId
from rota.store.database import Row
from rota.store.moment import duration_from_stored, from_stored, maybe_from_stored, maybe_to_stored, to_stored
from rota.store.place import Placing
from rota.store.record import decode_policy, decode_trace


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job, with what is needed to start it; the fields are as stored, not yet read, and none where the
    record is gone."""

    run: RunId
    job: JobId
    command: str | None
    cwd: str | None
    surroundings: int | None
    params: str | None
    timeout: timedelta | None
    idle_timeout: timedelta | None
    skip_if: str | None
    maker: JobId | None = None
    """Its chain, where it makes artifacts."""
    workspace: str | None = None
    rewound_run: RunId | None = None
    """The run whose files are to be aside when it starts."""
    trace: str | None = None
    type: str | None = None
    queued_at: int | None = None

    def waited(self, now: datetime) -> float:
        """Seconds since it came into the queue."""
        return 0.0 if self.queued_at is None else max(0.0, (to_stored(now) - self.queued_at) / 1_000_000)

    @property
    def variables(self) -> Trace:
        """Those of its trace."""
        return decode_trace(self.trace)


class OpenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has not ended."""

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
    """Automatic retries that led to it."""
    policy: RetryPolicy | None
    keys: tuple[str, ...] = ()
    """The breakers its job stands under."""
    is_probe: bool = False
    """A breaker waits for how it ends."""
    makes: bool = False
    """Its chain makes artifacts."""
    group: GroupId | None = None
    type: str | None = None
    started_at: datetime
    """When it was claimed."""
    worker: str = ""
    is_plain: bool = False
    """It is known that nobody waits for its chain, that it makes nothing, and that it is in no group."""
    ready_at: datetime | None = None
    """When nothing but room was wanting to its job."""


class Claiming(Placing):
    def claim(self, claims: Sequence[Claim], node: str, now: datetime, cause: str) -> list[Dispatch]:
        """Claim all of them, with their locks and a run row each. The spawn comes after the commit, never before."""
        if not claims:
            return []
        first = self.take("run", len(claims))
        runs = {claim.job: RunId(first + n) for n, claim in enumerate(claims)}
        rows = [
            {"job": claim.job, "run": runs[claim.job], "worker": f"{node}/{claim.worker}", "now": to_stored(now)}
            for claim in claims
        ]
        if self._db.run_many("claim", rows) != len(rows):
            raise StoreError("a job was claimed by somebody else; is a second scheduler writing to this store?")
        self._add_runs(rows, now, cause)
        self._leave_lanes(claims)
        orders = self._db.rows("orders", ids=list(runs))
        self._db.run_many("hold_locks", [{"job": row[0]} for row in orders if row[8]])
        return [_dispatch(row, runs) for row in orders]

    def dispatches(self, runs: Mapping[JobId, RunId]) -> list[Dispatch]:
        """What is needed to start these, in their order; none of it is claimed by this."""
        rows = {row[0]: row for row in self._db.rows("orders", ids=list(runs))}
        return [_dispatch(rows[job], runs) for job in runs]

    def _add_runs(self, rows: Sequence[Mapping[str, Any]], now: datetime, cause: str) -> None:
        self._db.run_many("add_run", rows)
        for row in rows:
            data = {"from": "QUEUED", "worker": row["worker"]}
            event = Event(
                kind="job.dispatched", at=to_stored(now), cause=cause, job=row["job"], run=row["run"], data=data
            )
            self.emit(event)

    def _leave_lanes(self, claims: Sequence[Claim]) -> None:
        left: dict[int, int] = {}
        for claim in claims:
            left[claim.lane] = left.get(claim.lane, 0) + 1
        self._db.run_many("count_ready", [{"lane": lane, "change": -count} for lane, count in left.items()])

    def open_runs(self) -> list[OpenRun]:
        return sorted((_open_run(row) for row in self._db.rows("open_runs")), key=lambda run: run.run)

    def open_run(self, run: RunId) -> OpenRun | None:
        rows = self._db.rows("open_run", run=run)
        return _open_run(rows[0]) if rows else None

    def open_run_of(self, job: JobId) -> OpenRun | None:
        rows = self._db.rows("open_run_of", job=job)
        return _open_run(rows[0]) if rows else None

    def confirm(self, run: OpenRun, pid: int, pid_started: int, now: datetime, cause: str) -> None:
        """The child exists."""
        if self._db.run("confirm", job=run.job, pid=pid, pid_started=pid_started) and run.status is Status.DISPATCHED:
            data = {"from": "DISPATCHED", "pid": pid}
            self.emit(Event(kind="job.running", at=to_stored(now), cause=cause, job=run.job, run=run.run, data=data))

    def _forget_run(self, run: RunId) -> None:
        """A claim that came to nothing is no run; the executor may still speak of its number."""
        self.spend("run", run)
        self._db.run("forget_run", run=run)

    def requeue(
        self, run: OpenRun, *, failures: int, error: str | None, not_before: datetime | None, now: datetime, cause: str
    ) -> None:
        """A claim that came to nothing: the job stands at its old place again, and there was no run."""
        touched = self._db.run(
            "requeue",
            status=advance(run.status, Status.QUEUED).value,
            job=run.job,
            dispatch_failures=failures,
            last_failure=error,
            not_before=maybe_to_stored(not_before),
        )
        if touched:
            self._forget_run(run.run)
            self.leave_locks(run.job)
            self.follow_anew([run.job])  # while it counted as started, a chain before it may have gone on
            data = {"from": "DISPATCHED", "error": error} if error else {"from": "DISPATCHED"}
            self.emit(Event(kind="job.queued", at=to_stored(now), cause=cause, job=run.job, data=data))


def _dispatch(row: Row, runs: Mapping[JobId, RunId]) -> Dispatch:
    return Dispatch(
        run=runs[row[0]],
        job=row[0],
        command=row[1],
        cwd=row[2],
        surroundings=row[3],
        params=row[4],
        timeout=duration_from_stored(row[5]),
        idle_timeout=duration_from_stored(row[6]),
        skip_if=row[7],
        maker=row[9],
        workspace=row[10],
        rewound_run=row[11],
        trace=row[12],
        type=row[13],
        queued_at=row[14],
    )


def _open_run(row: Row) -> OpenRun:
    return OpenRun(
        run=RunId(row[0]),
        job=JobId(row[1]),
        chain=JobId(row[2]),
        status=Status(row[3]),
        dispatch_failures=row[4],
        stop_requested=row[5],
        timeout=duration_from_stored(row[6]),
        idle_timeout=duration_from_stored(row[7]),
        has_locks=bool(row[8]),
        retries=row[9],
        policy=decode_policy(row[10]),
        keys=keys_of(row[11], row[12]),
        is_probe=bool(row[13]),
        makes=bool(row[14]),
        group=None if row[15] is None else GroupId(row[15]),
        type=row[11],
        started_at=from_stored(row[16]),
        ready_at=maybe_from_stored(row[17]),
        worker=row[18],
    )
