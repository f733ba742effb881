"""JSON representations of the scheduler and its parts: status, pools, breakers, locks, queue depth, results of control
requests, and health checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from rota.jobs.schemas import JobStatusText
from rota.kernel.backpressure import DepthLimits, QueueDepth
from rota.retention.schemas import LastRetention


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit breaker: holds the jobs of one type or target whose runs keep failing."""

    key: str
    """Key of the breaker: `type/NAME` or `target/NAME`."""
    state: Literal["open", "half-open", "closed"]
    """State of the breaker. `open`: no job with this key starts. `half-open`: one probe job may start. `closed`: jobs
    start normally."""
    failures: int
    """Number of failed runs within the window, up to the number that opens the breaker."""
    opened_at: datetime | None
    """Time at which the breaker opened; `null` while it is closed."""
    probe_at: datetime | None
    """Time at which the breaker lets a job probe; `null` unless it is open."""
    probe_job: str | None
    """Id of the probe job; `null` unless the breaker is half-open."""


class BreakerPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of breakers, sorted by key."""

    breakers: list[BreakerView]
    """Breakers, sorted by key."""
    next: str | None


class QueueDepthView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs that are ready and not running, with its limits."""

    total: int
    """Number of ready jobs."""
    soft: int | None
    """Depth at which a submit succeeds with a warning; `null` if there is no soft limit."""
    hard: int | None
    """Depth at which a submit is deferred; `null` if there is no hard limit."""
    by_flow: Mapping[str, int]
    """Number of ready jobs of each flow. Jobs without a flow are not included."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool: a named capacity that jobs take from."""

    size: int
    """Size of the pool; -1 if it is unlimited."""
    used: int
    """Capacity taken by running jobs and direct executions."""


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    """All pools."""

    pools: Mapping[str, Pool]
    """Pools that are configured or in use, by name."""
    defaults: Mapping[str, int]
    """Default sizes of pools by kind: `{"flow": 1}` is `"flow/*" = 1` in the configuration."""


class PausedScope(msgspec.Struct, frozen=True, kw_only=True):
    """A paused scope."""

    scope: str
    """Name of the scope: `global`, or the name of a pool such as `flow/review`."""
    by: str
    """Actor that paused the scope."""
    at: datetime
    """Time at which the scope was paused."""


class ReservationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of direct executions."""

    waiting: int
    """Number of waiting direct executions."""
    running: int
    """Number of running direct executions."""


class WebhookSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the webhook endpoints."""

    held: list[str]
    """Ids of endpoints to which messages are held after failures."""
    disabled: list[str]
    """Ids of disabled endpoints."""
    pending: int
    """Number of messages to deliver."""


class NextFire(msgspec.Struct, frozen=True, kw_only=True):
    """The next time of a schedule."""

    id: str
    """Id of the schedule."""
    name: str
    """Name of the schedule."""
    at: datetime
    """Time at which the schedule is due."""


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the schedules."""

    total: int
    """Number of schedules."""
    enabled: int
    """Number of enabled schedules."""
    next: NextFire | None
    """Schedule that is due first; `null` if none is due."""
    missed: int
    """Number of times in the last 24 hours that were missed."""
    failed: int
    """Number of times in the last 24 hours whose job could not be created."""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the queue."""

    mode: Literal["direct", "deferred"]
    """`direct` if the `global` pool is unlimited, otherwise `deferred`."""
    paused: bool
    """Whether everything is paused."""
    paused_by: str | None
    """Actor that paused everything; `null` if not everything is paused."""
    paused_at: datetime | None
    """Time at which everything was paused; `null` if not everything is paused."""
    pauses: list[PausedScope]
    """Paused scopes."""
    hold_reason: str | None
    """Content of the hold file; `null` if there is none."""
    depth: QueueDepthView
    """Number of ready jobs, and the limits."""
    queued: int
    """Number of jobs with the status QUEUED."""
    ready: int
    """Number of jobs that only wait for capacity."""
    waiting: Mapping[str, int]
    """Number of waiting jobs by reason."""
    breakers: list[BreakerView]
    """Breakers that are not closed."""
    running: int
    """Number of running jobs."""
    reservations: ReservationCounts
    """Number of waiting and running direct executions."""
    webhooks: WebhookSummary
    """State of the webhook endpoints."""
    finished: int
    """Number of ended jobs that gc has not removed."""
    pools: Mapping[str, Pool]
    """Pools that are configured or in use, by name."""
    last_dispatch_at: datetime | None
    """Time of the last start of a job; `null` if there is none."""
    last_gc: LastRetention | None
    """Last collection; `null` if there is none."""
    schedules: ScheduleSummary
    """State of the schedules."""
    idle_reason: str | None
    """Reason that nothing is running although jobs are waiting; `null` otherwise."""


class RecoverySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the recovery at the start of the scheduler."""

    running_jobs_adopted: int
    """Number of jobs that continued to run while the scheduler was down."""
    running_jobs_recovered: int
    """Number of running jobs whose end is unknown; failed with `Scheduler crash recovery`."""
    finished_while_down: int
    """Number of jobs that ended while the scheduler was down."""
    requeued: int
    """Number of jobs that were dispatched but had not started."""
    reservations_expired: int
    """Number of direct executions that ended because their client did not reconnect or their run was lost."""
    retries_created: int
    """Number of retries that were created for the ended jobs."""
    groups_recovered: int
    """Number of groups that were finished because of the ended jobs."""
    unknown_runs_ended: int
    """Number of active runs that the store has no record of, for example after lost records. They are stopped."""
    errors: int
    """Number of jobs that could not be recovered."""


class TcpStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the TCP listener."""

    url: str | None
    """URL of the listener; `null` if the scheduler does not listen on TCP."""
    disabled_reason: str | None
    """Reason that the scheduler does not listen on TCP; `null` if it does."""


class SchedulerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the scheduler process. This is all that is available while the store cannot be read."""

    home: str
    """Path of the home."""
    socket: str
    """Path of the socket."""
    tcp: TcpStatus
    """State of the TCP listener."""
    pid: int
    """Process id of the scheduler."""
    version: str
    """Version of Rota."""
    store: str
    """Database of the store, without its password."""
    started_at: datetime
    """Time at which the scheduler started."""
    supervisor_pid: int | None
    """Process id of the supervisor; `null` if there is none."""
    has_cgroups: bool
    """Whether each run has its own cgroup, so that all of its processes can be ended."""
    supervisor_silent_since: datetime | None
    """Time since which the supervisor has not answered; `null` if it answers. No jobs start while it is silent."""
    stopping: bool
    """Whether the scheduler is shutting down."""
    errors: list[str]
    """Descriptions of current problems."""
    recovery: RecoverySummary
    """Result of the recovery at the start."""


class SchedulerStatus(QueueStatus, frozen=True, kw_only=True):
    """The state of the scheduler and its queue."""

    home: str
    """Path of the home."""
    socket: str
    """Path of the socket."""
    tcp: TcpStatus
    """State of the TCP listener."""
    pid: int
    """Process id of the scheduler."""
    version: str
    """Version of Rota."""
    store: str
    """Database of the store, without its password."""
    started_at: datetime
    """Time at which the scheduler started."""
    supervisor_pid: int | None
    """Process id of the supervisor; `null` if there is none."""
    has_cgroups: bool
    """Whether each run has its own cgroup, so that all of its processes can be ended."""
    supervisor_silent_since: datetime | None
    """Time since which the supervisor has not answered; `null` if it answers. No jobs start while it is silent."""
    stopping: bool
    """Whether the scheduler is shutting down."""
    errors: list[str]
    """Descriptions of current problems."""
    recovery: RecoverySummary
    """Result of the recovery at the start."""


class EmptyResult(msgspec.Struct, frozen=True):
    """An empty result: the request succeeded."""


class ShutdownResult(msgspec.Struct, frozen=True):
    """The result of a shutdown request: the shutdown has begun."""

    grace: str
    """Time that running jobs have to finish, such as `30s`."""


class PauseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a pause."""

    has_changed: bool
    """Whether this request paused the scope; `false` if it was already paused."""
    scope: str
    """Scope of the pause: `global`, or the name of a pool such as `flow/review`."""
    paused_by: str
    """Actor that paused the scope first."""
    paused_at: datetime
    """Time at which the scope was paused."""
    warning: str | None
    """Warning about the pause; `null` if there is none."""


class ResumeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a resume."""

    has_changed: bool
    """Whether the scope was paused."""
    scope: str
    """Scope that was resumed: `global`, or the name of a pool such as `flow/review`."""
    paused_by: str | None
    """Actor that had paused the scope; `null` if it was not paused."""
    paused_at: datetime | None
    """Time at which the scope had been paused; `null` if it was not paused."""


class ClearResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of clearing the queue."""

    scope: str
    """Scope that was cleared: `global`, or the name of a pool such as `flow/review`."""
    cleared: int
    """Number of jobs that were cancelled."""


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tick, or of its dry run."""

    dispatched: list[str]
    """Ids of the jobs that the tick started."""
    would_dispatch: list[str]
    """Ids of the jobs that the tick chose but did not start. In a dry run these are all chosen jobs; otherwise a spawn
    delay or a fact that is being probed holds them."""
    skipped: int
    """Number of ready jobs that the tick did not choose."""
    reason: Literal["capacity", "batch", "ready", "none", "blocked"]
    """Limit that ended the tick: `capacity`, `batch` (the batch size), `ready` (no further jobs are ready), `none` (no
    jobs were ready), or `blocked` (no job starts at the moment)."""
    blocker: str | None
    """Reason that no job starts at the moment; `null` unless `reason` is `blocked`."""


class BreakerResetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of resetting a breaker."""

    key: str
    """Key of the breaker."""
    state: Literal["closed"]
    """State of the breaker after the reset."""
    failures_cleared: int
    """Number of failures that were cleared."""


class StartFailureResetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of clearing the failed starts of a job."""

    job: str
    """Id of the job."""
    status: JobStatusText
    """Status of the job."""
    failures_cleared: int
    """Number of failed starts that were cleared."""
    starts_immediately: bool
    """Whether the reset ended a delay after a failed start, so that the job can start immediately."""


class LockOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A job or direct execution that holds a lock or waits for it."""

    id: str
    """Id, such as `job-3` or `reservation-2`."""
    mode: str
    """Mode of the lock: `shared` or `exclusive`."""


class LockStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is held or requested."""

    key: str
    """Key of the lock."""
    mode: str | None
    """Mode in which the lock is held; `null` if it is free."""
    holders: list[LockOwner]
    """Holders of the lock; several if they share it."""
    waiters: list[LockOwner]
    """First waiters, in the order in which they get the lock."""
    waiting: int
    """Number of all waiters."""


class LockPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of locks, sorted by key."""

    locks: list[LockStatus]
    """Locks, sorted by key."""
    next: str | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a running scheduler."""

    status: Literal["ok"] = "ok"
    """Always `ok`. A scheduler that does not respond is not healthy."""
    pid: int | msgspec.UnsetType = msgspec.UNSET
    """Process id of the scheduler. Over TCP it is present only in authenticated responses."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a scheduler that can start jobs."""

    status: Literal["ready"] = "ready"
    """Always `ready`. A scheduler that is not ready responds with a problem and status 503."""


def render_depth(depth: QueueDepth, limits: DepthLimits) -> QueueDepthView:
    return QueueDepthView(total=depth.total, soft=limits.soft, hard=limits.hard, by_flow=depth.by_flow)
