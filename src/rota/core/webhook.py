"""Webhooks: messages about events, and retries of failed deliveries (DEC-009).

A delivery is one message to one receiver. It is PENDING until the receiver accepts it or its attempts are exhausted;
after that, only a manual redelivery sends it again. A failing endpoint is held for a while and then probed with a
single message.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.core.address import IpNetwork
from rota.ids import DeliveryId, GroupId, JobId, RunId, WebhookId

RUN_COMPLETED, RUN_FAILED, RUN_SKIPPED = "job.run.completed", "job.run.failed", "job.run.skipped"
RUN_CANCELLED, JOB_BLOCKED, GROUP_FINISHED = "job.run.cancelled", "job.blocked", "group.finished"
TEST_MESSAGE = "webhook.test"

MESSAGES: Mapping[str, str] = {
    "job.completed": RUN_COMPLETED,
    "job.failed": RUN_FAILED,
    "job.skipped": RUN_SKIPPED,
    "job.cancelled": RUN_CANCELLED,
    "job.blocked_by_dependency": JOB_BLOCKED,
    "group.finished": GROUP_FINISHED,
}
"""Events that can trigger a message, with the message kind."""
JOB_MESSAGES = tuple(kind for kind in MESSAGES.values() if kind != GROUP_FINISHED)
DEFAULT_JOB_MESSAGES = (RUN_COMPLETED, RUN_FAILED, RUN_SKIPPED)
DEFAULT_MESSAGES = (*DEFAULT_JOB_MESSAGES, GROUP_FINISHED)
"""Default subscription of an endpoint."""

HOLD_AFTER_FAILURES = 10
"""Failed deliveries in a row after which an endpoint is held."""
HOLD_DURATION = timedelta(minutes=10)
OLD_SECRET_LIFETIME = timedelta(hours=24)
HTTP_GONE = 410
_MULTIPLIER = 2
_JITTER = 0.1
_MAX_RETRY_DELAY = timedelta(days=1)


class JobWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """Webhook of a single job, in addition to the endpoints."""

    urls: tuple[str, ...]
    events: tuple[str, ...] = ()
    """Message kinds; empty for the default kinds."""

    def is_subscribed_to(self, kind: str) -> bool:
        return kind in (self.events or DEFAULT_JOB_MESSAGES)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: receives the message kinds that it subscribes to, for all jobs."""

    id: WebhookId
    url: str
    events: tuple[str, ...]
    secret: str
    old_secret: str | None = None
    """Previous secret; it also signs messages until `old_secret_until`."""
    old_secret_until: datetime | None = None
    created_at: datetime
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    failures: int = 0
    """Failed deliveries in a row."""
    held_until: datetime | None = None
    """Time until which messages are held. After it, a single message is sent, and the rest when that one is
    accepted."""
    unreadable: str | None = None
    """Error that makes the stored record unusable, if any."""

    @property
    def is_enabled(self) -> bool:
        return self.disabled_at is None

    def secrets(self, now: datetime) -> tuple[str, ...]:
        """Return the secrets that sign a message."""
        is_kept = self.old_secret_until is not None and now < self.old_secret_until
        return (self.secret, self.old_secret) if is_kept and self.old_secret is not None else (self.secret,)


class DeliveryState(StrEnum):
    """State of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to one receiver."""

    id: DeliveryId
    message_id: str
    """Id that the receiver sees; the same in each attempt."""
    webhook: WebhookId | None
    """Endpoint; `None` if the URL comes from a job."""
    receiver: str
    """Unit of concurrency: the endpoint, or the host of a job's URL."""
    url: str
    kind: str
    job: JobId | None = None
    run: RunId | None = None
    group: GroupId | None = None
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    attempts_since_resend: int = 0
    """Attempts since the last manual redelivery."""
    created_at: datetime
    next_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    """Reason why the message is not delivered, if known."""


class DeliveryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange with a receiver."""

    at: datetime
    duration: timedelta
    status: int | None = None
    """HTTP status of the response; `None` without a response."""
    error: str | None = None
    """Reason of the failure; `None` if the receiver accepted the message."""

    @property
    def is_success(self) -> bool:
        return self.error is None


class WebhookPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The `[webhooks]` configuration."""

    retries: int = 3
    base: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(seconds=30)
    """Limit for a whole exchange."""
    allow: tuple[IpNetwork, ...] = ()
    """Networks that are allowed although their addresses would be refused."""

    def retry_delay(self, attempts: int, random_fraction: float) -> timedelta | None:
        """Return the delay after this number of failed attempts, or `None` if they are exhausted. `random_fraction` is
        between 0 and 1."""
        if attempts > self.retries:
            return None
        try:
            delay = self.base * float(_MULTIPLIER ** (attempts - 1)) * (1 + _JITTER * (2 * random_fraction - 1))
        except OverflowError:
            return _MAX_RETRY_DELAY
        return min(delay, _MAX_RETRY_DELAY)
