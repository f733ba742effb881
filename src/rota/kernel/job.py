"""Job: its request (`Spec`, frozen) and its state (`Job`).

Immutable fields are stored apart from mutable fields: a status change rewrites a narrow row, however long the command
is, and the jobs of a retry chain share one spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.errors import Conflict
from rota.ids import GroupId, JobId, RunId, ScheduleId, TemplateId
from rota.kernel.artifacts import PinnedHead
from rota.kernel.edges import Edge
from rota.kernel.locks import Lock
from rota.kernel.retry import RetryPolicy
from rota.kernel.run import Run
from rota.kernel.status import STARTED, WAITING, Status
from rota.kernel.trace import Trace
from rota.kernel.verdict import WaitKind

MAX_URL_LENGTH = 2048
RUN_COMPLETED, RUN_FAILED, RUN_SKIPPED = "job.run.completed", "job.run.failed", "job.run.skipped"
DEFAULT_JOB_MESSAGES = (RUN_COMPLETED, RUN_FAILED, RUN_SKIPPED)


class WorkspaceSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workspace of a job: a worktree of its own, the patch that it produces, and the patch that it starts with.

    Names are resolved at submit: a branch name may refer to another commit when the job starts.
    """

    repository: str
    """Git common directory of the job's working directory."""
    subdirectory: str = ""
    """Working directory relative to the working tree."""
    base: str | None = None
    """Commit from which the worktree is created; `None` runs the job in its working directory."""
    patch: bool = False
    """Whether changes are kept as a patch; always true for a worktree."""
    input_patch: str | None = None
    """Digest of the patch with uncommitted changes at submit."""


class JobWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """Webhook of a single job, in addition to the endpoints."""

    urls: tuple[str, ...]
    events: tuple[str, ...] = ()
    """Message kinds; empty for the default kinds."""

    def is_subscribed_to(self, kind: str) -> bool:
        return kind in (self.events or DEFAULT_JOB_MESSAGES)


class TemplateSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts of a template that a job keeps for edits of its params."""

    declared: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    command: tuple[str, ...] | None = None
    """Command with placeholders; `None` after the command was edited."""
    name: str | None = None
    """Name with placeholders; `None` if the name was set explicitly."""
    fixed_params: dict[str, str] = {}
    """Params with a placeholder in a field that no edit changes, with that field."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a job. It never changes after dispatch (INV-001), and all jobs of a chain share it."""

    command: tuple[str, ...]
    """The argument vector. No shell is involved unless the command names one."""
    cwd: str
    environment: int
    """Stored set of environment variables of the child."""
    trace: Trace = {}
    """Additional environment variables: the trace that the job belongs to."""
    name: str | None = None
    type: str | None = None
    params: Mapping[str, Any] = {}
    flow: str | None = None
    phase: str | None = None
    target: str | None = None
    pools: Mapping[str, int] = {}
    """Weights requested by pool name; the demand also follows from type, flow and target."""
    locks: tuple[Lock, ...] = ()
    timeout: timedelta | None = None
    idle_timeout: timedelta | None = None
    skip_if: str | None = None
    retry: RetryPolicy | None = None
    """Retry policy as of submit; `None` disables automatic retries."""
    repository: str | None = None
    """Git common directory of the working directory, if a part of the job belongs to a repository."""
    needs: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    pinned_head: PinnedHead | None = None
    workspace: WorkspaceSpec | None = None
    template: TemplateId | None = None
    """Template of the job. It is a record only and never looked up (INV-005); the same applies to `schedule`."""
    schedule: ScheduleId | None = None
    template_snapshot: TemplateSnapshot | None = None
    """Parts of the template that an edit of the params needs."""
    webhook: JobWebhook | None = None
    sources: Mapping[str, str] = {}
    """Origin of each policy that the submit did not choose explicitly, by `retry`, `timeout`, `pools.NAME` …"""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run a command once, with its state."""

    id: JobId
    spec: Spec
    status: Status
    chain: JobId
    """First job of the retry chain; edges point at chains."""
    retry_of: JobId | None
    attempt: int
    """Position in the chain, from 1."""
    retries: int
    """Number of automatic retries that led to this job; a manual retry starts at 0 again."""
    priority: int
    position: int
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    not_before: datetime | None
    exit_code: int | None
    reason: str | None
    wait_kind: WaitKind | None
    waited_on: tuple[WaitKind, ...]
    permanently_failed: bool
    dispatch_failures: int
    last_failure: str | None
    stop_requested: str | None
    """Reason why a running job is being stopped: a cancel or a shutdown."""
    pid: int | None
    group: GroupId | None = None
    sequence: int | None = None
    """Position in the group."""
    unique: str | None = None
    """Key that the chain holds exclusively while it is active."""
    demand: Mapping[str, int] = {}
    """Weight drawn from each pool while the job runs."""
    after: tuple[Edge, ...] = ()
    run: Run | None = None
    """Latest run."""
    rewound_run: RunId | None = None
    """Latest run before the last rewind: its files were set aside."""
    unreadable: str | None = None
    """Parts of the stored record that cannot be read; `None` if all can."""
    missing_products: tuple[str, ...] = ()
    """Declared products that were missing after the job succeeded."""

    @property
    def current_run(self) -> Run | None:
        """Latest run since the last rewind."""
        is_stale = self.run is not None and self.rewound_run is not None and self.run.id <= self.rewound_run
        return None if is_stale else self.run

    @property
    def has_own_logs(self) -> bool:
        """Whether the files in the job's directory belong to its current state: the job was never rewound, or its child
        has started since."""
        return self.rewound_run is None or (self.current_run is not None and self.status is not Status.DISPATCHED)

    @property
    def was_dispatched(self) -> bool:
        """Whether the job was ever given to a worker, including before a rewind."""
        return self.status in STARTED or self.run is not None


EDITABLE_FIELDS = frozenset({"command", "params", "name", "timeout", "idle_timeout", "retry", "priority", "not_before"})
FROZEN_FIELDS = ("command", "params")
_DERIVED_FIELDS = frozenset({"template_snapshot", "sources"})
"""Fields that follow from other fields and cannot be requested."""
_SPEC_FIELDS = (EDITABLE_FIELDS | _DERIVED_FIELDS) & frozenset(Spec.__struct_fields__)


def edit(job: Job, changes: Mapping[str, Any]) -> Job:
    """Return the job with these fields changed, if they may still change (INV-001). Every edit goes through this
    function.

    A rewound job waits again, but its command and params stay frozen.
    """
    if unknown := changes.keys() - EDITABLE_FIELDS - _DERIVED_FIELDS:
        raise Conflict(f"Cannot modify immutable fields: {', '.join(sorted(unknown))}")
    frozen = (
        sorted(changes.keys() - _DERIVED_FIELDS)
        if job.status not in WAITING
        else [name for name in FROZEN_FIELDS if name in changes]
    )
    if frozen and job.was_dispatched:
        raise Conflict(f"Cannot modify {', '.join(frozen)} after dispatch").at_path(f".{frozen[0]}")
    if frozen and job.status not in WAITING:
        raise Conflict(f"Cannot modify {', '.join(frozen)} after its end").at_path(f".{frozen[0]}")
    spec_changes = {name: value for name, value in changes.items() if name in _SPEC_FIELDS}
    job_changes = {name: value for name, value in changes.items() if name not in _SPEC_FIELDS}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **spec_changes), **job_changes)


def changed_fields(job: Job, edited: Job) -> list[str]:
    """Return the names of the fields that an edit changed."""
    pairs = (
        (name, (job.spec, edited.spec) if name in _SPEC_FIELDS else (job, edited)) for name in sorted(EDITABLE_FIELDS)
    )
    return [name for name, (old, new) in pairs if getattr(old, name) != getattr(new, name)]
