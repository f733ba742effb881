"""Webhooks: who is told of what, and what becomes of a message that cannot be brought (DEC-009).

A message is one delivery to one receiver. It is PENDING until a receiver has taken it or its tries are spent, and from
then on only a person sends it again. A message that fails does not try for ever, and an endpoint that takes nothing is
let be for a while and then asked with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.core.address import Network
from rota.ids import DeliveryId, GroupId, JobId, RunId, WebhookId

COMPLETED, FAILED, SKIPPED = "job.run.completed", "job.run.failed", "job.run.skipped"
CANCELLED, BLOCKED, GROUP = "job.run.cancelled", "job.blocked", "group.finished"
TEST = "webhook.test"

MESSAGES: Mapping[str, str] = {
    "job.completed": COMPLETED,
    "job.failed": FAILED,
    "job.skipped": SKIPPED,
    "job.cancelled": CANCELLED,
    "job.blocked_by_dependency": BLOCKED,
    "group.finished": GROUP,
}
"""The events that somebody can be told of, and what the message is called."""
OF_JOBS = tuple(kind for kind in MESSAGES.values() if kind != GROUP)
USUAL_OF_JOBS = (COMPLETED, FAILED, SKIPPED)
USUAL = (*USUAL_OF_JOBS, GROUP)
"""What is told to who does not say."""

HOLD_AFTER = 10
"""Deliveries in a row that fail until an endpoint is held."""
HOLD = timedelta(minutes=10)
KEEP_OLD_SECRET = timedelta(hours=24)
GONE = 410
_MULTIPLIER = 2
_JITTER = 0.1
_LONGEST = timedelta(days=1)


class JobHook(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for itself, beyond the endpoints that are told of everything."""

    urls: tuple[str, ...]
    events: tuple[str, ...] = ()
    """None named: the usual ones."""

    def wants(self, kind: str) -> bool:
        return kind in (self.events or USUAL_OF_JOBS)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: told of all that it asked for, whichever job it is of."""

    id: WebhookId
    url: str
    events: tuple[str, ...]
    secret: str
    old_secret: str | None = None
    """Still signs, beside the other, until then."""
    old_secret_until: datetime | None = None
    created_at: datetime
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    failures: int = 0
    """Deliveries that failed in a row."""
    held_until: datetime | None = None
    """Nothing is sent to it before; then one, and the rest when that is taken."""

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def secrets(self, now: datetime) -> tuple[str, ...]:
        """All that a message is signed with."""
        is_kept = self.old_secret_until is not None and now < self.old_secret_until
        return (self.secret, self.old_secret) if is_kept and self.old_secret is not None else (self.secret,)


class DeliveryState(StrEnum):
    """What became of a message."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one receiver."""

    id: DeliveryId
    message: str
    """What the receiver knows it by: the same at each try."""
    webhook: WebhookId | None
    """None where a job named the URL."""
    receiver: str
    """Who shares what may be sent at once: the endpoint, or the host of a job's URL."""
    url: str
    kind: str
    job: JobId | None = None
    run: RunId | None = None
    group: GroupId | None = None
    state: DeliveryState = DeliveryState.PENDING
    tries: int = 0
    tried: int = 0
    """Those made since somebody had it sent again, if somebody has."""
    created_at: datetime
    next_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    """Why it is not delivered, as far as is known."""


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange with a receiver."""

    at: datetime
    duration: timedelta
    status: int | None = None
    """What it answered; none: it did not."""
    error: str | None = None
    """What was wrong; none: it has taken the message."""

    @property
    def is_success(self) -> bool:
        return self.error is None


class HookPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`[webhooks]`."""

    retries: int = 3
    base: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=30)
    """For a whole exchange."""
    allow: tuple[Network, ...] = ()
    """Networks that are let through though they would be refused."""

    def again_after(self, tried: int, chance: float) -> timedelta | None:
        """How long to wait after so many tries that failed; none when it is enough. `chance` is between 0 and 1."""
        if tried > self.retries:
            return None
        try:
            delay = self.base * float(_MULTIPLIER ** (tried - 1)) * (1 + _JITTER * (2 * chance - 1))
        except OverflowError:
            return _LONGEST
        return min(delay, _LONGEST)
