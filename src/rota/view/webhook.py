"""Endpoints and deliveries as people and programs see them. Secrets are in neither."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.core.webhook import Delivery, DeliveryState, Try, Webhook
from rota.ids import DeliveryId, JobId, WebhookId, show_delivery, show_group, show_job, show_run, show_webhook
from rota.store.session import Looking
from rota.wire.scheduler import WebhookSummaryForm

TOP = 2**62


class WebhookForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    url: str
    events: Sequence[str]
    state: str
    """`enabled`, `held` or `disabled`."""
    created_at: datetime
    disabled_at: datetime | None
    disabled_reason: str | None
    failures: int
    """Deliveries that failed in a row."""
    held_until: datetime | None
    old_secret_until: datetime | None
    """While an earlier secret signs too."""
    pending: int


class TryForm(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    seconds: float
    status: int | None
    error: str | None


class DeliveryForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    message: str
    """The `webhook-id` that the receiver sees."""
    webhook: str | None
    url: str
    type: str
    job: str | None
    run: str | None
    group: str | None
    state: str
    created_at: datetime
    next_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    tries: Sequence[TryForm]


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


def webhooks(reader: Looking, now: datetime) -> list[WebhookForm]:
    pending = reader.count_pending()
    return [webhook_form(each, pending.get(show_webhook(each.id), 0), now) for each in reader.webhooks()]


def find(reader: Looking, webhook: WebhookId) -> Webhook:
    found = reader.webhook(webhook)
    if found is None:
        raise reader.no_such_webhook(webhook)
    return found


def show_one(reader: Looking, webhook: WebhookId, now: datetime) -> WebhookForm:
    found = find(reader, webhook)
    return webhook_form(found, reader.count_pending().get(show_webhook(webhook), 0), now)


def deliveries(
    reader: Looking, *, job: JobId | None, webhook: WebhookId | None, state: DeliveryState | None, below: int,
    limit: int,
) -> list[DeliveryForm]:  # fmt: skip
    found = reader.deliveries(job=job, webhook=webhook, state=state, below=below, limit=limit)
    tries = reader.tries_of([each.id for each in found])
    return [_form(each, tries.get(each.id, ())) for each in found]


def delivery(reader: Looking, number: DeliveryId) -> dict[str, Any]:
    """With what is sent."""
    found = reader.delivery(number)
    if found is None:
        raise reader.no_such_delivery(number)
    form = _form(found, reader.tries_of([number]).get(number, ()))
    return {**msgspec.structs.asdict(form), "payload": msgspec.Raw(reader.payload(number).encode())}


def _form(delivery: Delivery, tries: Sequence[Try]) -> DeliveryForm:
    return DeliveryForm(
        id=show_delivery(delivery.id),
        message=delivery.message,
        webhook=None if delivery.webhook is None else show_webhook(delivery.webhook),
        url=delivery.url,
        type=delivery.kind,
        job=None if delivery.job is None else show_job(delivery.job),
        run=None if delivery.run is None else show_run(delivery.run),
        group=None if delivery.group is None else show_group(delivery.group),
        state=delivery.state.value,
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


def summary(reader: Looking) -> WebhookSummaryForm:
    """For `status`."""
    endpoints = reader.webhooks()
    enabled = [each for each in endpoints if each.is_enabled]
    return WebhookSummaryForm(
        held=[show_webhook(each.id) for each in enabled if each.held_until is not None],
        disabled=[show_webhook(each.id) for each in endpoints if not each.is_enabled],
        pending=sum(reader.count_pending().values()),
    )
