"""The runs of jobs: their current ones, and those that a rewind has left behind."""

from __future__ import annotations

from collections.abc import Collection

from rota.core.job import Job
from rota.core.run import Run
from rota.core.status import Status
from rota.errors import NotFound
from rota.ids import JobId, RunId, show_job, show_run
from rota.leftover import place_of
from rota.store.run import OVER
from rota.store.session import Looking
from rota.view.job import Sight, find
from rota.wire.job import RunForm, run_form

STATUSES = (Status.RUNNING, *OVER)
"""Of runs."""
NEWEST = 2**62


def listing(
    reader: Looking, sight: Sight, *, statuses: Collection[Status] = STATUSES, below: int = NEWEST, limit: int,
    job: JobId | None = None, worker: str | None = None,
) -> tuple[list[RunForm], str | None]:  # fmt: skip
    """The newest first, and the last of them where there are more."""
    if job is not None:
        find(reader, job)
    found = reader.list_runs(statuses=statuses, below=below, limit=limit + 1, job=job, worker=worker)
    forms = [
        _form(each.run, each.rewound_run, sight, superseded=each.is_superseded) for each in found[:limit]
    ]  # fmt: skip
    return forms, forms[-1].id if len(found) > limit else None


def show(reader: Looking, run: RunId, sight: Sight) -> RunForm:
    job, name = reader.job_of_run(run), show_run(run)
    if job is None:
        raise NotFound(f"no such run: {name}; `rota list --all` shows the jobs, `rota show JOB` a job's runs")
    forms, _ = listing(reader, sight, job=job, below=run + 1, limit=1)
    return forms[0]


def _form(run: Run, rewound: RunId | None, sight: Sight, *, superseded: bool) -> RunForm:
    return run_form(run, _directory(rewound, run.id, f"{sight.jobs}/{run.job}"), superseded=superseded)


def directory_of(job: Job, run: RunId | None, directory: str) -> str:
    """Where the logs of this run are, or of the current one."""
    return _directory(job.rewound_run, run, directory)


def _directory(rewound: RunId | None, run: RunId | None, directory: str) -> str:
    is_past = run is not None and rewound is not None and run <= rewound
    return place_of(directory, run) if run is not None and is_past else directory


def refuse_foreign(reader: Looking, job: JobId, run: RunId) -> None:
    if reader.job_of_run(run) != job:
        name = show_job(job)
        raise NotFound(f"{show_run(run)} is no run of {name}; `rota show {name}` names those it has")
