"""JSON representations of retention: the removal of old records and files."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.retention.model import KeptReason


class RetentionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of removed records of each kind, and the size of the removed files."""

    jobs: int = 0
    """Ended jobs."""
    runs: int = 0
    """Runs of these jobs."""
    events: int = 0
    """Events of these jobs, and old events without a job."""
    idempotency_keys: int = 0
    """Stored responses for idempotency keys."""
    environments: int = 0
    """Stored environments that no job uses."""
    lanes: int = 0
    """Lanes of the queue that no job is in."""
    reservations: int = 0
    """Ended direct executions."""
    groups: int = 0
    """Groups whose jobs are all removed."""
    templates: int = 0
    """Archived templates that no job refers to."""
    deliveries: int = 0
    """Finished webhook deliveries."""
    fires: int = 0
    """Schedule fires."""
    bytes: int = 0
    """Size of the files, in bytes."""


class KeptCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs that are old enough to be removed and are kept, by reason."""

    referenced: int
    """Number of jobs that a kept record refers to."""
    worktree: int
    """Number of jobs whose worktree still exists and may hold work that exists nowhere else."""
    files: int
    """Number of jobs whose files cannot be removed."""


class KeptJobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is kept for a reason that the user can resolve."""

    job: str
    """Id of the job."""
    reason: KeptReason
    """Reason why the job is kept."""
    detail: str
    """Description of the reason, with how to resolve it."""


class RetentionResultView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a collection: the records and files that were removed, or would be removed in a dry run."""

    dry_run: bool
    """Whether this is a dry run that removed nothing."""
    older_than: datetime
    """Time before which a job must have ended to be removed."""
    removed: RetentionCounts
    """Number of removed records of each kind."""
    abandoned: int
    """Number of undelivered webhook messages that were abandoned because of their age."""
    kept_counts: KeptCounts
    """Number of old jobs that are kept, by reason."""
    jobs: list[str]
    """Ids of removed jobs. The list is limited; `removed.jobs` has the full number."""
    kept: list[KeptJobView]
    """Jobs that are kept for a reason that the user can resolve."""
    remaining: list[str]
    """Files of removed jobs that could not be deleted, with the reasons."""


class RetentionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a running collection."""

    jobs: int
    """Number of jobs removed so far."""
    bytes: int
    """Size of the files removed so far, in bytes."""


class LastRetention(RetentionCounts, frozen=True, kw_only=True):
    """The last collection."""

    at: datetime
    """Time of the collection."""
    kept: int = 0
    """Number of jobs that were old enough and were kept."""
    abandoned: int = 0
    """Number of undelivered webhook messages that were abandoned."""


class RetentionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The running collection and the last one."""

    in_progress: RetentionProgress | None
    """Progress of the running collection; `null` if none is running."""
    last: LastRetention | None
    """The last collection; `null` before the first."""
