"""Runs of jobs: current runs, and runs that were superseded by a rewind."""

from __future__ import annotations

from collections.abc import Collection

from rota.core.job import Job
from rota.core.run import Run
from rota.core.status import Status
from rota.errors import NotFound
from rota.ids import JobId, RunId, format_job_id, format_run_id
from rota.job_files import run_directory
from rota.store.run import ENDED_STATUSES
from rota.store.session import AnyReader
from rota.view.job import ViewContext, find_job
from rota.wire.job import RunView, render_run

RUN_STATUSES = (Status.RUNNING, *ENDED_STATUSES, Status.UNREADABLE)
"""Statuses of runs."""
MAX_RUN_ID = 2**62


def list_runs(
    reader: AnyReader,
    context: ViewContext,
    *,
    statuses: Collection[Status] = RUN_STATUSES,
    before_id: int = MAX_RUN_ID,
    limit: int,
    job: JobId | None = None,
    worker: str | None = None,
) -> tuple[list[RunView], str | None]:
    """Return runs, newest first, and the last id if there are more."""
    if job is not None:
        find_job(reader, job)
    rows = reader.runs.list_latest(statuses=statuses, before_id=before_id, limit=limit + 1, job=job, worker=worker)
    runs = [_render_run(row.run, row.rewound_run, context, is_superseded=row.is_superseded) for row in rows[:limit]]
    return runs, runs[-1].id if len(rows) > limit else None


def show(reader: AnyReader, run: RunId, context: ViewContext) -> RunView:
    job, name = reader.runs.job_of(run), format_run_id(run)
    if job is None:
        raise NotFound(f"no such run: {name}; `rota list --all` shows the jobs, `rota show JOB` a job's runs")
    runs, _ = list_runs(reader, context, job=job, before_id=run + 1, limit=1)
    return runs[0]


def _render_run(run: Run, last_rewound_run: RunId | None, context: ViewContext, *, is_superseded: bool) -> RunView:
    return render_run(
        run,
        _run_directory(last_rewound_run, run.id, f"{context.jobs_directory}/{run.job}"),
        is_superseded=is_superseded,
    )


def find_run_directory(job: Job, run: RunId | None, directory: str) -> str:
    """Return the directory with the logs of a run, or of the current run for `None`."""
    return _run_directory(job.rewound_run, run, directory)


def _run_directory(last_rewound_run: RunId | None, run: RunId | None, directory: str) -> str:
    is_past = run is not None and last_rewound_run is not None and run <= last_rewound_run
    return run_directory(directory, run) if run is not None and is_past else directory


def check_run_of_job(reader: AnyReader, job: JobId, run: RunId) -> None:
    if reader.runs.job_of(run) != job:
        name = format_job_id(job)
        raise NotFound(f"{format_run_id(run)} is not a run of {name}; `rota show {name}` lists its runs")
