"""JSON representations of webhooks and deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.ids import format_delivery_id, format_group_id, format_job_id, format_run_id, format_webhook_id
from rota.mask import mask_query
from rota.webhooks.model import Delivery, DeliveryAttempt, DeliveryState, Webhook


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook: a URL that receives messages when jobs and groups end."""

    id: str
    """Id of the webhook."""
    url: str
    """URL that receives the messages. The query is masked unless `secret` is included."""
    events: Sequence[str]
    """Events that the webhook subscribes to."""
    state: Literal["enabled", "held", "disabled"]
    """State of the webhook. `held`: deliveries failed, and messages are held until `held_until`."""
    created_at: datetime
    disabled_at: datetime | None
    """Time at which the webhook was disabled; `null` if it is not."""
    disabled_reason: str | None
    """Actor that disabled the webhook, or the reason why it was disabled; `null` if it is not."""
    failures: int
    """Number of consecutive failed deliveries."""
    held_until: datetime | None
    """Time of the next delivery to a held webhook; `null` if it is not held."""
    old_secret_until: datetime | None
    """Time until which the previous secret also signs messages; `null` if it does not."""
    unreadable: str | None
    """Error in the stored record; `null` if the record is valid. An unreadable webhook receives no messages."""
    pending: int
    """Number of messages to deliver to the webhook."""
    secret: str | msgspec.UnsetType = msgspec.UNSET
    """Signing secret. Present if it was requested, and after the webhook was added or its secret was rotated."""


class WebhookPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of webhooks, oldest first."""

    webhooks: list[WebhookView]
    """Webhooks, oldest first."""
    next: str | None


class WebhookTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending a test message."""

    webhook: str
    """Id of the webhook."""
    delivered: bool
    """Whether the receiver accepted the message."""
    at: datetime
    """Time at which the message was sent."""
    seconds: float
    """Duration of the exchange in seconds."""
    status: int | None
    """HTTP status of the response; `null` if there was none."""
    error: str | None
    """Reason that the message was not delivered; `null` if it was."""


class WebhookSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The signing secret of messages to URLs that jobs name."""

    secret: str
    """Signing secret."""


class DeliveryAttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to deliver a message."""

    at: datetime
    """Time of the attempt."""
    seconds: float
    """Duration of the exchange in seconds."""
    status: int | None
    """HTTP status of the response; `null` if there was none."""
    error: str | None
    """Reason that the message was not delivered; `null` if it was."""


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A message to one receiver."""

    id: str
    """Id of the delivery."""
    message: str
    """Id of the message, sent to the receiver as `webhook-id`."""
    webhook: str | None
    """Id of the webhook; `null` if the URL comes from a job."""
    url: str
    """URL of the receiver, with a masked query."""
    type: str
    """Type of the message."""
    job: str | None
    """Id of the job that the message is about; `null` if there is none."""
    run: str | None
    """Id of the run that the message is about; `null` if there is none."""
    group: str | None
    """Id of the group that the message is about; `null` if there is none."""
    state: DeliveryState
    """State of the delivery. It is `PENDING` until the receiver accepts the message or the last attempt fails."""
    created_at: datetime
    """Time at which the message was created."""
    next_at: datetime | None
    """Time of the next attempt; `null` if there is none."""
    finished_at: datetime | None
    """Time at which the message was delivered or abandoned; `null` until then."""
    reason: str | None
    """Reason that the message is delayed or was not delivered; `null` if there is none."""
    attempts: Sequence[DeliveryAttemptView]
    """Attempts, in chronological order."""


class DeliveryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of deliveries, newest first."""

    deliveries: list[DeliveryView]
    """Deliveries, newest first."""
    next: str | None


class DeliveryDetail(DeliveryView, frozen=True, kw_only=True):
    """A delivery with its payload."""

    payload: Any
    """Body of the message, byte for byte."""


def render_webhook(webhook: Webhook, pending: int, now: datetime) -> WebhookView:
    until = webhook.old_secret_until
    return WebhookView(
        id=format_webhook_id(webhook.id),
        url=mask_query(webhook.url),
        events=webhook.events,
        state="disabled" if not webhook.is_enabled else "enabled" if webhook.held_until is None else "held",
        created_at=webhook.created_at,
        disabled_at=webhook.disabled_at,
        disabled_reason=webhook.disabled_reason,
        failures=webhook.failures,
        held_until=webhook.held_until,
        unreadable=webhook.unreadable,
        old_secret_until=until if until is not None and until > now else None,
        pending=pending,
    )


def render_delivery(delivery: Delivery, attempts: Sequence[DeliveryAttempt]) -> DeliveryView:
    return DeliveryView(
        id=format_delivery_id(delivery.id),
        message=delivery.message_id,
        webhook=None if delivery.webhook is None else format_webhook_id(delivery.webhook),
        url=mask_query(delivery.url),
        type=delivery.kind,
        job=None if delivery.job is None else format_job_id(delivery.job),
        run=None if delivery.run is None else format_run_id(delivery.run),
        group=None if delivery.group is None else format_group_id(delivery.group),
        state=delivery.state,
        created_at=delivery.created_at,
        next_at=delivery.next_at,
        finished_at=delivery.finished_at,
        reason=delivery.reason,
        attempts=[render_attempt(attempt) for attempt in attempts],
    )


def render_attempt(attempt: DeliveryAttempt) -> DeliveryAttemptView:
    return DeliveryAttemptView(
        at=attempt.at, seconds=round(attempt.duration.total_seconds(), 3), status=attempt.status, error=attempt.error
    )
