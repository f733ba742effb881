"""Reads runs: those of a job, and the latest of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from rota.core.run import Run
from rota.core.status import Status
from rota.ids import JobId, RunId
from rota.store.database import Database, Row
from rota.store.moment import from_stored, maybe_from_stored
from rota.store.readable import readable

OVER = (Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED)
"""What a run may have come to."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    run: Run
    rewound_run: RunId | None
    """The latest run of its job when that was last rewound."""
    is_superseded: bool
    """Its job has a later one."""


class RunRecords:
    _db: Database

    def runs_of(self, job: JobId) -> list[Run]:
        """The newest first."""
        return [run_of(row) for row in self._db.rows("runs_of", job=job)]

    def job_of_run(self, run: RunId) -> JobId | None:
        rows = self._db.rows("job_of_run", run=run)
        return JobId(rows[0][0]) if rows else None

    def list_runs(
        self,
        *,
        statuses: Collection[Status],
        below: int,
        limit: int,
        job: JobId | None = None,
        worker: str | None = None,
    ) -> list[ListedRun]:
        """Of these statuses (RUNNING are those that are not over), older than `below`, the newest first."""
        asked: dict[str, object] = {"below": below, "limit": limit, "worker": worker}
        if job is not None:
            rows = self._db.rows("list_runs_of", job=job, statuses=[each.value for each in statuses], **asked)
        elif {Status.RUNNING, *OVER} <= {*statuses}:
            rows = self._db.rows("list_runs", **asked)
        else:
            found = [row for status in {*statuses} for row in self._of_status(status, asked)]
            rows = sorted(found, reverse=True)[:limit]
        return [_listed(row) for row in rows]

    def _of_status(self, status: Status, asked: Mapping[str, object]) -> Sequence[Row]:
        if status is Status.RUNNING:
            return self._db.rows("list_open_runs", **asked)
        return self._db.rows("list_ended_runs", status=status.value, **asked)


def _listed(row: Row) -> ListedRun:
    return ListedRun(
        run=run_of(row), rewound_run=None if row[9] is None else RunId(row[9]), is_superseded=bool(row[10])
    )  # fmt: skip


def run_of(row: Row) -> Run:
    return Run(
        id=RunId(row[0]),
        job=JobId(row[1]),
        worker=row[2],
        status=None if row[3] is None else Status(row[3]),
        started_at=from_stored(row[4]),
        finished_at=maybe_from_stored(row[5]),
        exit_code=row[6],
        error=row[7],
        artifacts=() if row[8] is None else readable(row[8], tuple[str, ...], ()),
    )
