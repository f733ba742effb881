"""The job: what was asked for (`Spec`, frozen) and what has become of it (`Job`).

What never changes is kept apart from what changes: a status change rewrites a narrow row, however
long the prompt in the command, and the jobs of a retry chain share one spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.after import Edge
from rota.core.lock import Lock
from rota.core.pinned_head import PinnedHead
from rota.core.retry import RetryPolicy
from rota.core.run import Run
from rota.core.status import STARTED, WAITING, Status
from rota.core.template import Recipe
from rota.core.trace import Trace
from rota.core.wait import WaitKind
from rota.core.webhook import JobHook
from rota.core.workspace import Workspace
from rota.errors import Conflict
from rota.ids import GroupId, JobId, RunId, ScheduleId, TemplateId


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. It never changes after dispatch (INV-001), and a chain's jobs share it."""

    command: tuple[str, ...]
    """The argument vector; no shell is involved unless it names one."""
    cwd: str
    surroundings: int
    """The stored set of environment variables the child gets."""
    trace: Trace = {}
    """What it gets beyond them: the trace that it belongs to."""
    name: str | None = None
    type: str | None = None
    params: Mapping[str, Any] = {}
    flow: str | None = None
    phase: str | None = None
    target: str | None = None
    pools: Mapping[str, int] = {}
    """Weights asked for by name; what the job draws also follows from type, flow and target."""
    locks: tuple[Lock, ...] = ()
    timeout: timedelta | None = None
    idle_timeout: timedelta | None = None
    skip_if: str | None = None
    retry: RetryPolicy | None = None
    """As it was at submit; none for a job that is not tried again by itself."""
    repository: str | None = None
    """The git common directory around its cwd, where something of the job belongs to it."""
    needs: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    pinned_head: PinnedHead | None = None
    workspace: Workspace | None = None
    template: TemplateId | None = None
    """What it was made from, and what made it: for the record, never looked up (INV-005)."""
    schedule: ScheduleId | None = None
    recipe: Recipe | None = None
    """What an edit of its params needs of the template as it was."""
    webhook: JobHook | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One intent to run something once, with what has become of it."""

    id: JobId
    spec: Spec
    status: Status
    chain: JobId
    """The first job of its retry chain; edges point at chains."""
    retry_of: JobId | None
    attempt: int
    """Which one of its chain it is, counted from 1."""
    retries: int
    """Automatic retries that led to it; a retry by hand begins at 0 again."""
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
    """Why a running job is being ended: by cancel or by a shutdown."""
    pid: int | None
    group: GroupId | None = None
    sequence: int | None = None
    """Its place in its group."""
    unique: str | None = None
    """A key that its chain has to itself as long as it is active."""
    draws: Mapping[str, int] = {}
    """What it takes from which pool while it runs."""
    after: tuple[Edge, ...] = ()
    run: Run | None = None
    """Its latest run."""
    rewound_run: RunId | None = None
    """Its latest run when it was last rewound: what that one left was set aside."""

    @property
    def current_run(self) -> Run | None:
        """Its run since it was last rewound."""
        is_past = self.run is not None and self.rewound_run is not None and self.run.id <= self.rewound_run
        return None if is_past else self.run

    @property
    def has_own_logs(self) -> bool:
        """What is in its directory is its own: it was never rewound, or its child has been started since."""
        return self.rewound_run is None or (self.current_run is not None and self.status is not Status.DISPATCHED)

    @property
    def was_dispatched(self) -> bool:
        """It was given to a worker, now or, before a rewind, earlier."""
        return self.status in STARTED or self.run is not None


EDITABLE = frozenset({"command", "params", "name", "timeout", "idle_timeout", "retry", "priority", "not_before"})
FROZEN = ("command", "params")
_WITH_THEM = frozenset({"recipe"})
"""What follows from the others, and nobody asks for by itself."""
_OF_THE_SPEC = (EDITABLE | _WITH_THEM) & frozenset(Spec.__struct_fields__)


def edit(job: Job, changes: Mapping[str, Any]) -> Job:
    """The one door through which what was asked for changes: the job with these fields, if it may still have others
    (INV-001). One that was rewound waits again, but what it is asked to do stays what it was."""
    if strange := changes.keys() - EDITABLE - _WITH_THEM:
        raise Conflict(f"Cannot modify immutable fields: {', '.join(sorted(strange))}")
    frozen = sorted(changes) if job.status not in WAITING else [name for name in FROZEN if name in changes]
    if frozen and job.was_dispatched:
        raise Conflict(f"Cannot modify {', '.join(frozen)} after dispatch").under(f".{frozen[0]}")
    if frozen and job.status not in WAITING:
        raise Conflict(f"Cannot modify {', '.join(frozen)} after its end").under(f".{frozen[0]}")
    asked = {name: value for name, value in changes.items() if name in _OF_THE_SPEC}
    own = {name: value for name, value in changes.items() if name not in _OF_THE_SPEC}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **asked), **own)


def changed(job: Job, edited: Job) -> list[str]:
    """The names of what an edit has changed."""
    pairs = ((name, (job.spec, edited.spec) if name in _OF_THE_SPEC else (job, edited)) for name in sorted(EDITABLE))
    return [name for name, (was, now) in pairs if getattr(was, name) != getattr(now, name)]
