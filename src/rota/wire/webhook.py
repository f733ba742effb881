"""Endpoints as JSON, and what was sent to whom."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.core.webhook import Delivery, DeliveryState, Try, Webhook
from rota.ids import show_delivery, show_group, show_job, show_run, show_webhook


class WebhookForm(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: who is told how jobs end."""

    id: str
    url: str
    """Where messages are sent to."""
    events: Sequence[str]
    """What it is told of."""
    state: Literal["enabled", "held", "disabled"]
    """`held`: it has failed, and is tried again at `held_until`."""
    created_at: datetime
    disabled_at: datetime | None
    """Since when nothing is sent to it."""
    disabled_reason: str | None
    """Who disabled it, or why it was."""
    failures: int
    """Deliveries that failed in a row."""
    held_until: datetime | None
    """When it is tried again."""
    old_secret_until: datetime | None
    """While an earlier secret signs too."""
    pending: int
    """How many messages are to be sent to it."""
    secret: str | msgspec.UnsetType = msgspec.UNSET
    """What its messages are signed with: where it is asked for, and of a new or rotated one."""


class WebhooksForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of endpoints."""

    webhooks: list[WebhookForm]
    """The oldest first."""
    next: str | None


class WebhookAddedForm(WebhookForm, frozen=True, kw_only=True):
    """An endpoint that was added, with its secret."""

    warning: str | None
    """That its name has no address now."""


class WebhookTestForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a test message."""

    webhook: str
    """The endpoint that was tested."""
    delivered: bool
    """Whether the receiver took it."""
    at: datetime
    """When it was sent."""
    seconds: float
    """How long the exchange took."""
    status: int | None
    """What the receiver answered; null where it did not."""
    error: str | None
    """Why it was not delivered."""


class SecretForm(msgspec.Struct, frozen=True, kw_only=True):
    """The secret of the URLs that jobs name."""

    secret: str
    """What messages to them are signed with."""


class TryForm(msgspec.Struct, frozen=True, kw_only=True):
    """One try to bring a message."""

    at: datetime
    """When it was made."""
    seconds: float
    """How long the exchange took."""
    status: int | None
    """What the receiver answered; null where it did not."""
    error: str | None
    """Why it was not delivered."""


class DeliveryForm(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one receiver."""

    id: str
    message: str
    """The `webhook-id` that the receiver sees."""
    webhook: str | None
    """The endpoint; null where the job itself names the URL."""
    url: str
    """Where it is sent to."""
    type: str
    """What it tells of."""
    job: str | None
    """The job that it tells of."""
    run: str | None
    """The run that it tells of."""
    group: str | None
    """The group that it tells of."""
    state: DeliveryState
    """`PENDING` until the receiver has taken it or no try is left."""
    created_at: datetime
    next_at: datetime | None
    """When it is tried next; null when it is over."""
    finished_at: datetime | None
    """When it was delivered, or given up."""
    reason: str | None
    """Why it has failed, or is put off."""
    tries: Sequence[TryForm]
    """In the order that they were made."""


class DeliveriesForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of deliveries."""

    deliveries: list[DeliveryForm]
    """The newest first."""
    next: str | None


class MessageForm(DeliveryForm, frozen=True, kw_only=True):
    """A delivery with what is sent."""

    payload: Any
    """The body of the message, byte for byte."""


def webhook_form(webhook: Webhook, pending: int, now: datetime) -> WebhookForm:
    until = webhook.old_secret_until
    return WebhookForm(
        id=show_webhook(webhook.id),
        url=webhook.url,
        events=webhook.events,
        state="disabled" if not webhook.is_enabled else "enabled" if webhook.held_until is None else "held",
        created_at=webhook.created_at,
        disabled_at=webhook.disabled_at,
        disabled_reason=webhook.disabled_reason,
        failures=webhook.failures,
        held_until=webhook.held_until,
        old_secret_until=until if until is not None and until > now else None,
        pending=pending,
    )


def delivery_form(delivery: Delivery, tries: Sequence[Try]) -> DeliveryForm:
    return DeliveryForm(
        id=show_delivery(delivery.id),
        message=delivery.message,
        webhook=None if delivery.webhook is None else show_webhook(delivery.webhook),
        url=delivery.url,
        type=delivery.kind,
        job=None if delivery.job is None else show_job(delivery.job),
        run=None if delivery.run is None else show_run(delivery.run),
        group=None if delivery.group is None else show_group(delivery.group),
        state=delivery.state,
        created_at=delivery.created_at,
        next_at=delivery.next_at,
        finished_at=delivery.finished_at,
        reason=delivery.reason,
        tries=[try_form(each) for each in tries],
    )


def try_form(done: Try) -> TryForm:
    return TryForm(
        at=done.at, seconds=round(done.duration.total_seconds(), 3), status=done.status, error=done.error
    )  # fmt: skip
