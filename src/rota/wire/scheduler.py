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
    size: int
    """-1 where there is no limit."""
    used: int


class PoolsForm(msgspec.Struct, frozen=True, kw_only=True):
    pools: Mapping[str, PoolForm]
    """Every pool that is configured or in use."""
    each: Mapping[str, int]
    """By kind, the size of every pool that has no line of its own: `{"flow": 1}` is `"flow/*" = 1`."""


class PausedForm(msgspec.Struct, frozen=True, kw_only=True):
    """A scope that is paused."""

    scope: str
    by: str
    at: datetime


class SlotCountsForm(msgspec.Struct, frozen=True, kw_only=True):
    """Direct executions."""

    waiting: int
    running: int


class WebhookSummaryForm(msgspec.Struct, frozen=True, kw_only=True):
    held: list[str]
    """Those that nothing is sent to for a while, because they did not take what they were sent."""
    disabled: list[str]
    pending: int
    """Messages that are to be sent."""


class NextFireForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    at: datetime


class ScheduleSummaryForm(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    enabled: int
    next: NextFireForm | None
    """The first that is due."""
    missed: int
    failed: int
    """Times within a day that made no job: because nobody was there, or because it could not be made."""


class StatusForm(msgspec.Struct, frozen=True, kw_only=True):
    mode: Literal["direct", "deferred"]
    """`direct` while `global` has no limit."""
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    """Of everything; `pauses` has the scopes too."""
    pauses: list[PausedForm]
    held: str | None
    """What the hold file says, while there is one."""
    depth: DepthForm
    queued: int
    ready: int
    """Those that only wait for room."""
    waiting: Mapping[str, int]
    """By what for."""
    breakers: list[BreakerForm]
    """Those that are not closed."""
    running: int
    slots: SlotCountsForm
    webhooks: WebhookSummaryForm
    finished: int
    pools: Mapping[str, PoolForm]
    last_dispatch_at: datetime | None
    last_gc: LastGcForm | None
    schedules: ScheduleSummaryForm
    idle_because: str | None
    """Why nothing runs while something waits."""


class RecoveryForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler found when it started."""

    running_jobs_adopted: int
    """Jobs that ran on while no scheduler was there."""
    running_jobs_recovered: int
    """Jobs whose processes were gone without a word: FAILED."""
    finished_while_away: int
    requeued: int
    """Jobs that had been chosen and not started."""
    slots_expired: int
    """Direct executions that nobody came back for."""
    retries_created: int
    groups_recovered: int
    errors: int


class TcpForm(msgspec.Struct, frozen=True, kw_only=True):
    """Where the scheduler is reached over TCP, or why it is not."""

    url: str | None
    """`http://127.0.0.1:7682`, or with TLS `https://…`; null while it is off."""
    off: str | None
    """Why it is off; null while it is not."""


class AboutForm(msgspec.Struct, frozen=True, kw_only=True):
    """The process itself: all there is to say while the store cannot be read."""

    home: str
    socket: str
    tcp: TcpForm
    """Where it is reached beside its socket, or why it is not."""
    pid: int
    version: str
    store: str
    started_at: datetime
    supervisor_pid: int | None
    stopping: bool
    trouble: list[str]
    """What is wrong, for people."""
    recovery: RecoveryForm


class SchedulerForm(StatusForm, frozen=True, kw_only=True):
    home: str
    socket: str
    tcp: TcpForm
    """Where it is reached beside its socket, or why it is not."""
    pid: int
    version: str
    store: str
    started_at: datetime
    supervisor_pid: int | None
    stopping: bool
    trouble: list[str]
    """What is wrong, for people."""
    recovery: RecoveryForm


class NothingForm(msgspec.Struct, frozen=True):
    """It is done, and there is nothing to say."""
