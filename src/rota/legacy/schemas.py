"""JSON representations of the legacy endpoints (CON-004).

Jobs and runs have all fields of the current API and the old field names as well, so that a client can migrate field by
field before it changes the endpoint. Statuses use the old vocabulary of six words:

    QUEUED      includes jobs that wait for dependencies or locks
    FAILED      includes jobs that are blocked by a dependency

The `trigger` and `batch` endpoints are older; they use lowercase statuses, with `succeeded` for COMPLETED.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.groups.schemas import GroupView
from rota.jobs.schemas import JobView, RunView
from rota.kernel.groups import GroupStatus
from rota.kernel.status import WAITING, Status

LEGACY_STATUSES: Mapping[Status, str] = {
    **{status: status.public.value for status in Status},
    **dict.fromkeys(WAITING, Status.QUEUED.value),
    Status.BLOCKED_BY_DEPENDENCY: Status.FAILED.value,
    Status.UNREADABLE: Status.FAILED.value,
}
"""Legacy name of each status."""
LOWERCASE_STATUSES: Mapping[Status, str] = {
    status: "succeeded" if status is Status.COMPLETED else name.lower() for status, name in LEGACY_STATUSES.items()
}
"""Name of each status in the `trigger` and `batch` endpoints."""
STATUS_ALIASES: Mapping[str, Status] = {
    **{status.value.lower(): status for status in Status if status is status.public},
    "succeeded": Status.COMPLETED,
    "error": Status.FAILED,
    "canceled": Status.CANCELLED,
    "dispatched": Status.RUNNING,
}
"""Accepted names of statuses, in lower case."""

LegacyStatusText = Annotated[str, Meta(extra_json_schema={"enum": list(dict.fromkeys(LEGACY_STATUSES.values()))})]
LowercaseStatusText = Annotated[str, Meta(extra_json_schema={"enum": list(dict.fromkeys(LOWERCASE_STATUSES.values()))})]

LegacyBatchStatus = Literal["queued", "running", "succeeded", "failed", "partial"]


def parse_legacy_status(name: str) -> list[Status] | None:
    """Return all statuses with this legacy name, or `None` for an unknown name."""
    status = STATUS_ALIASES.get(name.lower())
    if status is None:
        return None
    # A legacy name selects every status that it covers; a status without a legacy name selects itself.
    return [current for current, legacy_name in LEGACY_STATUSES.items() if legacy_name == status.value] or [status]


class LegacyJob(JobView, frozen=True, kw_only=True):
    """A job with the current and the legacy field names."""

    status: LegacyStatusText
    """Legacy status: QUEUED for every waiting job, FAILED for a job that is blocked by a dependency."""
    job_id: str
    """Same as `id`."""
    job_type: str | None
    """Same as `type`."""
    template_id: str | None
    """Same as `template`."""
    group_id: str | None
    """Same as `group`."""
    log_path: str | None
    """Same as `run.log_paths.stdout`; `null` without a run."""
    artifacts: list[str]
    """Same as `run.artifacts`; empty without a run."""
    error: str | None
    """Same as `run.error`, or as `reason` if the job failed without a run."""


class LegacySubmitResult(LegacyJob, frozen=True, kw_only=True):
    """The result of a submit."""

    result: Literal["submitted", "already_active"]
    """`submitted`, or `already_active` if another active job has the unique key. That job is returned and nothing is
    stored."""
    warning: str | None
    """Warning about the submitted job; `null` if there is none."""


class LegacyEditResult(LegacyJob, frozen=True, kw_only=True):
    """The result of an edit."""

    fields: list[str]
    """Names of the fields that changed."""
    warning: str | None
    """Warning about the edited job; `null` if there is none."""


class LegacyCancelResult(LegacyJob, frozen=True, kw_only=True):
    """The result of a cancel."""

    success: bool
    """Whether the job is CANCELLED. `false` if it ended before it could be cancelled."""
    message: str
    """Description of the result."""


class LegacyJobList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of the newest jobs."""

    jobs: list[LegacyJob]
    """Jobs, newest first."""
    total: int
    """Number of jobs with the requested statuses, including jobs that are not listed."""
    queued_count: int
    """Number of waiting jobs."""
    running_count: int
    """Number of running jobs."""


class LegacyRun(RunView, frozen=True, kw_only=True):
    """A run with the current and the legacy field names."""

    run_id: str
    """Same as `id`."""
    job_id: str
    """Same as `job`."""
    params_snapshot: Mapping[str, Any]
    """Parameters of the job, which never change after dispatch."""
    template_id: str | None
    """Same as `template` of the job."""
    log_path: str
    """Same as `log_paths.stdout`."""


class LegacyRunList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of the runs of a job."""

    runs: list[LegacyRun]
    """Runs, newest first. A job has more than one run only if it was rewound."""
    total: int
    """Number of runs."""


class LegacyTriggerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a trigger."""

    job_id: str
    """Id of the job."""
    type: str | None
    """Type of the job."""
    status: LowercaseStatusText
    """`queued`, or `running` if the job has already started."""
    message: str
    """Description of the result, including warnings."""


class LegacyBatchTriggerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch trigger."""

    batch_id: str
    """Id of the group that was created for the batch."""
    job_ids: list[str]
    """Ids of the jobs, in the order of the request."""
    job_count: int
    """Number of jobs."""
    status: Literal["queued"]
    """Initial status of the batch."""
    message: str
    """Description of the result, including warnings."""


class LegacyBatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a batch."""

    job_id: str
    """Id of the first job in the chain."""
    type: str | None
    """Type of the job."""
    status: LowercaseStatusText
    """Status of the last job in the chain."""
    error: str | None
    """Reason for the failure; `null` if the job has not failed."""


class LegacyBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a batch."""

    batch_id: str
    """Id of the group."""
    status: LegacyBatchStatus
    """Status of the batch. When all jobs have ended: `succeeded`; `failed` if jobs failed and none succeeded; `partial`
    if some failed and some succeeded."""
    total_jobs: int
    """Number of jobs in the batch."""
    completed_jobs: int
    """Number of jobs that have ended, with any outcome."""
    succeeded_jobs: int
    """Number of jobs that COMPLETED."""
    failed_jobs: int
    """Number of jobs that failed or were cancelled."""
    running_jobs: int
    """Number of running jobs."""
    queued_jobs: int
    """Number of waiting jobs."""
    jobs: list[LegacyBatchJob]
    """Jobs in the order of the request, without jobs that gc has removed."""
    created_at: datetime
    finished_at: datetime | None
    """Time at which the last job ended; `null` until then."""


class LegacyStats(msgspec.Struct, frozen=True, kw_only=True):
    """Number of ended jobs by outcome. Jobs that gc has removed are not counted."""

    total_executed: int
    """Number of jobs that succeeded, failed or were skipped."""
    succeeded: int
    """Number of COMPLETED jobs."""
    failed: int
    """Number of FAILED jobs. Each retry counts separately."""
    cancelled: int
    """Number of CANCELLED jobs."""
    skipped: int
    """Number of SKIPPED jobs."""


class LegacyScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the scheduler."""

    scheduler_running: bool
    """Whether jobs are started: `false` while everything is paused or held."""
    current_job_id: str | None
    """Id of the running job that was created first; `null` if none is running."""
    queue_length: int
    """Number of waiting jobs."""
    cumulative_stats: LegacyStats
    """Number of ended jobs by outcome."""
    has_active_reservation: bool
    """Whether a direct execution is waiting or running."""


class LegacyStopResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a stop."""

    success: bool
    """Whether the request succeeded."""
    message: str
    """Description of the result."""


class LegacyStartResult(LegacyStopResult, frozen=True, kw_only=True):
    """The result of a start."""

    recovery_stats: None = None
    """Always `null`: recovery happens when the scheduler process starts."""


def legacy_job_fields(job: JobView) -> dict[str, Any]:
    """Return all fields of a `LegacyJob`."""
    run, status = job.run, Status(job.status)
    return {
        **{name: getattr(job, name) for name in JobView.__struct_fields__},
        "status": LEGACY_STATUSES[status],
        "job_id": job.id,
        "job_type": job.type,
        "template_id": job.template,
        "group_id": job.group,
        "log_path": None if run is None else run.log_paths["stdout"],
        "artifacts": [] if run is None else run.artifacts,
        "error": job_error(job),
    }


def render_legacy_job(job: JobView) -> LegacyJob:
    return LegacyJob(**legacy_job_fields(job))


def render_legacy_run(run: RunView, job: JobView) -> LegacyRun:
    return LegacyRun(
        **{name: getattr(run, name) for name in RunView.__struct_fields__},
        run_id=run.id,
        job_id=run.job,
        params_snapshot=job.params,
        template_id=job.template,
        log_path=run.log_paths["stdout"],
    )


def job_error(job: JobView) -> str | None:
    run_error = None if job.run is None else job.run.error
    return run_error or (job.reason if LEGACY_STATUSES[Status(job.status)] == Status.FAILED else None)


def render_legacy_batch(group: GroupView, jobs: list[JobView]) -> LegacyBatch:
    counts = dict.fromkeys(LOWERCASE_STATUSES.values(), 0)
    for status, count in group.counts.items():
        counts[LOWERCASE_STATUSES[Status(status)]] += count
    failed = counts["failed"] + counts["cancelled"]
    return LegacyBatch(
        batch_id=group.id,
        status=_batch_status(group, succeeded=counts["succeeded"], failed=failed),
        total_jobs=group.total,
        completed_jobs=counts["succeeded"] + counts["skipped"] + failed,
        succeeded_jobs=counts["succeeded"],
        failed_jobs=failed,
        running_jobs=counts["running"],
        queued_jobs=counts["queued"],
        jobs=[
            LegacyBatchJob(
                job_id=job.chain, type=job.type, status=LOWERCASE_STATUSES[Status(job.status)], error=job_error(job)
            )
            for job in jobs
        ],
        created_at=group.created_at,
        finished_at=group.finished_at,
    )


def _batch_status(group: GroupView, *, succeeded: int, failed: int) -> LegacyBatchStatus:
    if not group.is_finished:
        return "queued" if group.status == GroupStatus.QUEUED else "running"
    if failed:
        return "partial" if succeeded else "failed"
    return "succeeded"
