"""Reads of runs: the runs of a job, and the latest runs of all jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from rota.core.run import Run
from rota.core.status import Status, parse_status
from rota.ids import JobId, RunId
from rota.store.database import Database, Row
from rota.store.decoding import decode_or_default
from rota.store.timestamp import from_micros, optional_from_micros

ENDED_STATUSES = (Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED)
"""Statuses of an ended run."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    run: Run
    rewound_run: RunId | None
    """Latest run of its job at the time of the last rewind."""
    is_superseded: bool
    """Whether its job has a later run."""


class RunRecords:
    _db: Database

    def runs_of(self, job: JobId) -> list[Run]:
        """Return the runs of a job, newest first."""
        return [run_from_row(row) for row in self._db.rows("runs_of", job=job)]

    def job_of_run(self, run: RunId) -> JobId | None:
        rows = self._db.rows("job_of_run", run=run)
        return JobId(rows[0][0]) if rows else None

    def list_runs(
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
            rows = [row for status in {*statuses} for row in self._runs_with_status(status, values)]
            rows = sorted(rows, reverse=True)[:limit]
        return [_listed_run_from_row(row) for row in rows]

    def _runs_with_status(self, status: Status, values: Mapping[str, object]) -> Sequence[Row]:
        if status is Status.RUNNING:
            return self._db.rows("list_open_runs", **values)
        return self._db.rows("list_ended_runs", status=status.value, **values)


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
