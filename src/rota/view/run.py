"""The runs of a job: its current one, and those that a rewind has left behind."""

from __future__ import annotations

from rota.core.job import Job
from rota.errors import NotFound
from rota.ids import JobId, RunId, show_job, show_run
from rota.leftover import place_of
from rota.store.session import Looking
from rota.view.job import Sight, find
from rota.wire.job import RunForm, run_form


def runs(reader: Looking, job: JobId, sight: Sight) -> list[RunForm]:
    """The newest first; superseded are all that have a later one."""
    found = find(reader, job)
    return [
        run_form(run, directory_of(found, run.id, f"{sight.jobs}/{job}"), superseded=n > 0)
        for n, run in enumerate(reader.runs_of(job))
    ]


def show(reader: Looking, run: RunId, sight: Sight) -> RunForm:
    job, name = reader.job_of_run(run), show_run(run)
    if job is None:
        raise NotFound(f"no such run: {name}; `rota list --all` shows the jobs, `rota show JOB` a job's runs")
    return next(form for form in runs(reader, job, sight) if form.id == name)


def directory_of(job: Job, run: RunId | None, directory: str) -> str:
    """Where the logs of this run are, or of the current one."""
    is_past = run is not None and job.rewound_run is not None and run <= job.rewound_run
    return place_of(directory, run) if run is not None and is_past else directory


def refuse_foreign(reader: Looking, job: JobId, run: RunId) -> None:
    if reader.job_of_run(run) != job:
        name = show_job(job)
        raise NotFound(f"{show_run(run)} is no run of {name}; `rota show {name}` names those it has")
