"""JSON representations of the results of operations on jobs: submit, edit, cancel, retry, rewind, move, and reading the
queue and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rota.control.schemas import QueueDepthView
from rota.jobs.schemas import EffectivePolicy, JobStatusText, JobView, WaitReason


class SubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of submitting a job."""

    result: Literal["submitted", "already_active", "dry_run"]
    """`submitted`; `already_active` if another active chain has the unique key: `job` is the job of that chain, and
    nothing is stored; `dry_run` if this is a dry run: nothing is stored."""
    job: JobView
    """The job that was stored, the active job with the unique key, or the job that would be stored."""
    warning: str | None = None
    """Warning about the submitted job; `null` if there is none."""
    depth: QueueDepthView | msgspec.UnsetType = msgspec.UNSET
    """Number of ready jobs. Present only at or above the soft limit."""


class BatchSubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of submitting a batch."""

    result: Literal["submitted", "already_active"]
    """`submitted`, or `already_active` if other active chains have unique keys of the batch: nothing is stored."""
    jobs: list[str]
    """Ids of the jobs in the order of the request, or of the active jobs that have the unique keys."""
    active: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Ids of the active jobs that have the unique keys, by key."""
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    """Id of the group that was created; absent if none was requested."""
    warning: str | None = None
    """Warning about the batch; `null` if there is none."""
    depth: QueueDepthView | msgspec.UnsetType = msgspec.UNSET
    """Number of ready jobs. Present only at or above the soft limit."""


class DryRunJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would be stored."""

    id: str
    """Id that the job would get if no other job is submitted first."""
    local: str | None
    """Name of the job within the batch."""
    policies: list[EffectivePolicy]
    """Policies in force for the job, with their sources."""


class BatchDryRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dry run of a batch."""

    result: Literal["dry_run", "already_active", "deferred"]
    """Result that a submit would have, or `dry_run` if it would succeed."""
    jobs: list[DryRunJob]
    """Jobs that would be stored, in the order of the request."""
    active: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Ids of the active jobs that have the unique keys, by key."""
    graph: Any
    """Dependency graph in the requested format, as in `GET /api/graph`; `null` if nothing would be stored."""
    warning: str | None
    """Warning about the batch; `null` if there is none."""


class EditResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of editing a job."""

    job: JobView
    """The job after the edit."""
    fields: list[str]
    """Names of the fields that changed."""
    warning: str | None
    """Warning about the edited job; `null` if there is none."""


class CancelTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would be cancelled."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job, or its command if it has no name."""
    status: str
    """Current status of the job."""


class CancelledDependent(CancelTarget, frozen=True, kw_only=True):
    """A waiting job that would end because a job it depends on is cancelled."""

    outcome: str
    """Status in which the job would end: `BLOCKED_BY_DEPENDENCY` or `SKIPPED`."""


class CancelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that would be cancelled. Nothing is changed."""

    dry_run: bool = True
    """Always `true`."""
    jobs: list[CancelTarget]
    """Jobs, in the order in which they would be cancelled."""
    dependents: list[CancelledDependent] = []
    """Other waiting jobs that would end as a consequence."""


class ClearPlan(CancelPlan, frozen=True, kw_only=True):
    """The jobs that would be cancelled by a clear. Nothing is changed. A clear of more than 10,000 jobs lists no
    dependents."""

    total: int
    """Number of jobs that would be cancelled, including jobs beyond `limit`."""
    up_to: str | None
    """Id of the latest of these jobs. A clear with this `up_to` does not cancel jobs submitted later. `null` if there
    are no jobs."""


class RetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a manual retry."""

    job: JobView
    """The new last job of the chain."""
    message: str
    """Description of the result."""
    blocked: list[str]
    """Ids of later jobs that the failure blocked. They stay blocked until they are rewound."""
    dropped: list[str]
    """Ids of group members that the policy ended because of a failure. They are not restored."""
    warning: str | None
    """Warning about the retry; `null` if there is none."""


class RewindResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rewind."""

    requested_job: str
    """Id of the requested job."""
    root: str
    """Id of the first job of the rewind set; the other jobs are downstream of it."""
    last_successful_point: list[str]
    """Ids of the successful jobs directly upstream, whose results are kept."""
    rewind_set: list[str]
    """Ids of the rewound job and all jobs downstream of it, nearest to the root first."""
    reset: list[str]
    """Ids of the jobs that were put back into the queue."""
    restarted: list[str]
    """Ids of the jobs that have already started again."""
    cancelled: list[str]
    """Ids of the jobs that had been cancelled."""
    dry_run: bool
    """Whether this is a dry run that changed nothing."""
    warning: str | None
    """Warning about the rewind; `null` if there is none."""


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job with its place in the queue."""

    id: str
    """Id of the job."""
    name: str | None
    """Name of the job; `null` if it has none."""
    status: JobStatusText
    """Status of the job."""
    priority: int
    """Priority of the job. Jobs with a higher priority start first."""
    position: int
    """Stored position of the job among the jobs of its priority."""
    place: int
    """Rank of the job among the waiting jobs of its priority, from 1. The `to` of a move takes this number."""
    wait: WaitReason | None
    """Reason that the job has not started; `null` if nothing holds it."""


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the queue."""

    jobs: list[QueuedJob]
    """Waiting jobs in the order in which they start if nothing else holds them."""
    next: str | None


class MoveResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move."""

    job: JobView
    """The job after the move."""
    place: int | None
    """Rank of the job among the waiting jobs of its priority, from 1; `null` if it is not waiting."""
    moved: bool
    """Whether the job changed its place; `false` if it was already there."""


class ReorderResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a reorder."""

    order: list[str]
    """Ids of the jobs in their new order."""
    moved: bool
    """Whether the order changed; `false` if the jobs were already in this order."""


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A log file of a job."""

    path: str
    """Path of the file on the scheduler's machine."""
    size: int
    """Size of the file in bytes."""


class JobWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace of a job."""

    worktree: str | None
    """Path of the worktree; `null` if it does not exist."""
    branch: str | None
    """Branch of the worktree; `null` if there is none."""
    kept_reason: str | None
    """Reason why the worktree still exists; `null` if there is none."""
    command_patch: str | None
    """Path of the patch with the changes made by the job; `null` if there is none."""
    input_patch: str | None
    """Path of the patch with the uncommitted changes at the submit; `null` if there is none."""


class JobLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The logs and the workspace of a job."""

    job: str
    """Id of the job."""
    stdout: LogFile
    """Log of stdout."""
    stderr: LogFile
    """Log of stderr."""
    warning: str | None
    """Warning that a log exceeds its maximum size; `null` if none does."""
    workspace: JobWorkspace | msgspec.UnsetType = msgspec.UNSET
    """Workspace of the job; absent if the job did not request one."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of a stream. Chunks never split a character; invalid UTF-8 is replaced by U+FFFD."""

    stream: str
    """Name of the stream: `stdout` or `stderr`."""
    offset: int
    """Offset of the first byte. An offset below an earlier one means that the file was truncated or replaced."""
    text: str
    """Text of the chunk."""


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the log: the job has ended."""

    job: str
    """Id of the last job in the chain."""
    status: JobStatusText
    """Status of the job."""
    exit_code: int | None
    """Exit code of its run; `null` if there is none."""
