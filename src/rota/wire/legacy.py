"""What legacy endpoints answer, as JSON (CON-004).

A job and a run are what they are everywhere, with the old names beside the new ones: a client can change over field by
field, and then ask the new endpoint. The words of statuses are the old ones, which know six:

    QUEUED      also what waits for others or for a lock
    FAILED      also what is blocked by a dependency

`trigger` and `batch` are older still, and say them in lower case, with `succeeded` for COMPLETED.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.core.group import GroupStatus
from rota.core.status import WAITING, Status
from rota.wire.group import GroupForm
from rota.wire.job import JobForm, RunForm

OLD: Mapping[Status, str] = {
    **{status: status.shown.value for status in Status},
    **dict.fromkeys(WAITING, Status.QUEUED.value),
    Status.BLOCKED_BY_DEPENDENCY: Status.FAILED.value,
}
"""What a status is called here."""
OLDER: Mapping[Status, str] = {
    status: "succeeded" if status is Status.COMPLETED else old.lower() for status, old in OLD.items()
}
"""And what `trigger` and `batch` call it."""
SPELLINGS: Mapping[str, Status] = {
    **{status.value.lower(): status for status in Status if status is status.shown},
    "succeeded": Status.COMPLETED,
    "error": Status.FAILED,
    "canceled": Status.CANCELLED,
    "dispatched": Status.RUNNING,
}
"""What is understood, in whatever case."""

LegacyStatus = Annotated[str, Meta(extra_json_schema={"enum": list(dict.fromkeys(OLD.values()))})]
LowerStatus = Annotated[str, Meta(extra_json_schema={"enum": list(dict.fromkeys(OLDER.values()))})]

BatchStatus = Literal["queued", "running", "succeeded", "failed", "partial"]


def statuses_called(name: str) -> list[Status] | None:
    """All that are called so here; none if nothing is."""
    status = SPELLINGS.get(name.lower())
    if status is None:
        return None
    # What was one word then is asked for as one; what is new is asked for by itself.
    return [each for each, old in OLD.items() if old == status.value] or [status]


class LegacyJob(JobForm, frozen=True, kw_only=True):
    """A job, with the old names beside the new ones."""

    status: LegacyStatus
    """In the old words: what waits is QUEUED, whatever for, and what is blocked has FAILED."""
    job_id: str
    """`id`."""
    job_type: str | None
    """`type`."""
    template_id: str | None
    """`template`."""
    group_id: str | None
    """`group`."""
    log_path: str | None
    """`run.log_paths.stdout`."""
    artifacts: list[str]
    """`run.artifacts`."""
    error: str | None
    """`run.error`, or `reason` where it failed without a run."""


class LegacyMade(LegacyJob, frozen=True, kw_only=True):
    """A job that was asked for."""

    result: Literal["submitted", "already_active"]
    """`already_active`: another job has its unique key, and is this one; nothing was stored."""
    warning: str | None


class LegacyChanged(LegacyJob, frozen=True, kw_only=True):
    """A job that was changed."""

    fields: list[str]
    """What is another than before."""
    warning: str | None


class LegacyEnded(LegacyJob, frozen=True, kw_only=True):
    """A job that was to be cancelled."""

    success: bool
    """Whether it is CANCELLED; it may have ended by itself meanwhile."""
    message: str
    """The same in words."""


class LegacyJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs."""

    jobs: list[LegacyJob]
    """The newest first."""
    total: int
    """How many there are of the statuses asked for, listed here or not."""
    queued_count: int
    """How many wait, whatever for."""
    running_count: int
    """How many run."""


class LegacyRun(RunForm, frozen=True, kw_only=True):
    """A run, with the old names beside the new ones."""

    run_id: str
    """`id`."""
    job_id: str
    """`job`."""
    params_snapshot: Mapping[str, Any]
    """The job's `params`, which never change after dispatch."""
    template_id: str | None
    """The job's `template`."""
    log_path: str
    """`log_paths.stdout`."""


class LegacyRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a job."""

    runs: list[LegacyRun]
    """The newest first; more than one where the job was rewound."""
    total: int
    """How many those are."""


class LegacyTriggered(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was triggered."""

    job_id: str
    """The job's id."""
    type: str | None
    """The job's type."""
    status: LowerStatus
    """`queued`, or `running` where it has been started already."""
    message: str
    """What was done, and what is worth a second look."""


class LegacyBatchMade(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was triggered."""

    batch_id: str
    """The id of the group that was made of them."""
    job_ids: list[str]
    """In the order given."""
    job_count: int
    """How many those are."""
    status: Literal["queued"]
    """How a batch begins."""
    message: str
    """What was done, and what is worth a second look."""


class LegacyMember(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a batch."""

    job_id: str
    """As it was made, whichever retry of it `status` is of."""
    type: str | None
    """The job's type."""
    status: LowerStatus
    """Of its last retry, where there is one."""
    error: str | None
    """Why it failed; null where it has not."""


class LegacyBatch(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch stands."""

    batch_id: str
    """The id of the group."""
    status: BatchStatus
    """When all have ended: `partial` where some failed and some succeeded, `failed` where none succeeded."""
    total_jobs: int
    """How many there are."""
    completed_jobs: int
    """How many have ended, in whichever way."""
    succeeded_jobs: int
    """How many completed."""
    failed_jobs: int
    """Failed or cancelled."""
    running_jobs: int
    """How many run."""
    queued_jobs: int
    """How many wait, whatever for."""
    jobs: list[LegacyMember]
    """Each of them, in the order given; without those that gc has removed."""
    created_at: datetime
    finished_at: datetime | None
    """When the last of them ended."""


class LegacyStats(msgspec.Struct, frozen=True, kw_only=True):
    """Of the jobs whose records are there: gc removes what is old."""

    total_executed: int
    """The three kinds that ran to an end of their own: succeeded, failed, skipped."""
    succeeded: int
    """COMPLETED."""
    failed: int
    """FAILED, each retry for itself."""
    cancelled: int
    """CANCELLED."""
    skipped: int
    """SKIPPED."""


class LegacyScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler is doing."""

    scheduler_running: bool
    """Whether jobs are started: false while everything is paused or held."""
    current_job_id: str | None
    """The one that runs; of several the one that was made first."""
    queue_length: int
    """How many wait, whatever for."""
    cumulative_stats: LegacyStats
    """How many ended in which way."""
    has_active_reservation: bool
    """Whether a direct execution waits or runs."""


class LegacyTold(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a stop."""

    success: bool
    """Whether it is as asked."""
    message: str
    """What was done."""


class LegacyStarted(LegacyTold, frozen=True, kw_only=True):
    """What came of a start."""

    recovery_stats: None = None
    """What a crash left behind is recovered when Rota itself starts."""


def fields_of(job: JobForm) -> dict[str, Any]:
    """All of a `LegacyJob`."""
    run, status = job.run, Status(job.status)
    return {
        **{name: getattr(job, name) for name in JobForm.__struct_fields__},
        "status": OLD[status],
        "job_id": job.id,
        "job_type": job.type,
        "template_id": job.template,
        "group_id": job.group,
        "log_path": None if run is None else run.log_paths["stdout"],
        "artifacts": [] if run is None else run.artifacts,
        "error": error_of(job),
    }


def legacy_job(job: JobForm) -> LegacyJob:
    return LegacyJob(**fields_of(job))


def legacy_run(run: RunForm, job: JobForm) -> LegacyRun:
    return LegacyRun(
        **{name: getattr(run, name) for name in RunForm.__struct_fields__},
        run_id=run.id,
        job_id=run.job,
        params_snapshot=job.params,
        template_id=job.template,
        log_path=run.log_paths["stdout"],
    )


def error_of(job: JobForm) -> str | None:
    said = None if job.run is None else job.run.error
    return said or (job.reason if OLD[Status(job.status)] == Status.FAILED else None)


def legacy_batch(group: GroupForm, jobs: list[JobForm]) -> LegacyBatch:
    counts = dict.fromkeys(OLDER.values(), 0)
    for status, count in group.counts.items():
        counts[OLDER[Status(status)]] += count
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
            LegacyMember(job_id=job.chain, type=job.type, status=OLDER[Status(job.status)], error=error_of(job))
            for job in jobs
        ],
        created_at=group.created_at,
        finished_at=group.finished_at,
    )


def _batch_status(group: GroupForm, *, succeeded: int, failed: int) -> BatchStatus:
    if not group.is_over:
        return "queued" if group.status == GroupStatus.QUEUED else "running"
    if failed:
        return "partial" if succeeded else "failed"
    return "succeeded"
