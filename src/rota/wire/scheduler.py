"""The scheduler at a glance, as JSON (`rota status --json`), and its pools."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from rota.wire.breaker import BreakerForm
from rota.wire.depth import DepthForm
from rota.wire.gc import LastGcForm


class PoolForm(msgspec.Struct, frozen=True, kw_only=True):
    """A pool."""

    size: int
    """-1 where there is no limit."""
    used: int
    """What jobs that run take of it."""


class PoolsForm(msgspec.Struct, frozen=True, kw_only=True):
    """All pools."""

    pools: Mapping[str, PoolForm]
    """Every pool that is configured or in use."""
    each: Mapping[str, int]
    """By kind, the size of every pool that has no line of its own: `{"flow": 1}` is `"flow/*" = 1`."""


class PausedForm(msgspec.Struct, frozen=True, kw_only=True):
    """A scope that is paused."""

    scope: str
    """`global`, or a pool's name such as `flow/review`."""
    by: str
    """Who paused it."""
    at: datetime
    """Since when."""


class SlotCountsForm(msgspec.Struct, frozen=True, kw_only=True):
    """Direct executions."""

    waiting: int
    """Those whose turn has not come."""
    running: int
    """Those that run."""


class WebhookSummaryForm(msgspec.Struct, frozen=True, kw_only=True):
    """How webhooks stand."""

    held: list[str]
    """Those that nothing is sent to for a while, because they did not take what they were sent."""
    disabled: list[str]
    """Those that somebody has disabled."""
    pending: int
    """Messages that are to be sent."""


class NextFireForm(msgspec.Struct, frozen=True, kw_only=True):
    """The next time of a schedule."""

    id: str
    name: str
    """The schedule's name."""
    at: datetime
    """When that is."""


class ScheduleSummaryForm(msgspec.Struct, frozen=True, kw_only=True):
    """How schedules stand."""

    total: int
    """How many there are."""
    enabled: int
    """How many of them are enabled."""
    next: NextFireForm | None
    """The first that is due."""
    missed: int
    """Times within a day that made no job because nobody was there."""
    failed: int
    """Times within a day that made no job because it could not be made."""


class StatusForm(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue stands."""

    mode: Literal["direct", "deferred"]
    """`direct` while `global` has no limit."""
    paused: bool
    """Whether everything is paused."""
    paused_by: str | None
    """Who paused everything."""
    paused_at: datetime | None
    """Since when everything is paused."""
    pauses: list[PausedForm]
    """All that is paused, scope by scope."""
    held: str | None
    """What the hold file says, while there is one."""
    depth: DepthForm
    """How many jobs are ready, and the limits."""
    queued: int
    """How many jobs wait, whatever for."""
    ready: int
    """Those that only wait for room."""
    waiting: Mapping[str, int]
    """By what for."""
    breakers: list[BreakerForm]
    """Those that are not closed."""
    running: int
    """How many jobs run."""
    slots: SlotCountsForm
    """How many direct executions wait and run."""
    webhooks: WebhookSummaryForm
    """How webhooks stand."""
    finished: int
    """How many jobs have ended and not been collected."""
    pools: Mapping[str, PoolForm]
    """Every pool that is configured or in use."""
    last_dispatch_at: datetime | None
    """When a job was last started."""
    last_gc: LastGcForm | None
    """When something was last collected, and what came of it."""
    schedules: ScheduleSummaryForm
    """How schedules stand."""
    idle_because: str | None
    """Why nothing runs while something waits."""


class RecoveryForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler found when it started."""

    running_jobs_adopted: int
    """Jobs that ran on while no scheduler was there."""
    running_jobs_recovered: int
    """Jobs whose processes were gone without a word: FAILED."""
    finished_while_away: int
    """Jobs that ended while no scheduler was there."""
    requeued: int
    """Jobs that had been chosen and not started."""
    slots_expired: int
    """Direct executions that nobody came back for."""
    retries_created: int
    """Retries that these ends led to."""
    groups_recovered: int
    """Groups that these ends brought to their end."""
    errors: int
    """Jobs of which nothing could be found out."""


class TcpForm(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the scheduler also listens on TCP."""

    url: str | None
    """Where, if it does."""
    off: str | None
    """Why not, if it does not."""


class AboutForm(msgspec.Struct, frozen=True, kw_only=True):
    """The process itself: all there is to say while the store cannot be read."""

    home: str
    """The home's directory."""
    socket: str
    """The socket's path."""
    tcp: TcpForm
    """Where it is reached beside its socket, or why it is not."""
    pid: int
    """The scheduler's process."""
    version: str
    """The version of Rota that runs."""
    store: str
    """Which database it uses, without its password."""
    started_at: datetime
    supervisor_pid: int | None
    """The supervisor's process; null where there is none."""
    stopping: bool
    """Whether it has begun to stop."""
    trouble: list[str]
    """What is wrong, for people."""
    recovery: RecoveryForm
    """What it found when it started."""


class SchedulerForm(StatusForm, frozen=True, kw_only=True):
    """The scheduler at a glance."""

    home: str
    """The home's directory."""
    socket: str
    """The socket's path."""
    tcp: TcpForm
    """Where it is reached beside its socket, or why it is not."""
    pid: int
    """The scheduler's process."""
    version: str
    """The version of Rota that runs."""
    store: str
    """Which database it uses, without its password."""
    started_at: datetime
    supervisor_pid: int | None
    """The supervisor's process; null where there is none."""
    stopping: bool
    """Whether it has begun to stop."""
    trouble: list[str]
    """What is wrong, for people."""
    recovery: RecoveryForm
    """What it found when it started."""


class NothingForm(msgspec.Struct, frozen=True):
    """It is done, and there is nothing to say."""
