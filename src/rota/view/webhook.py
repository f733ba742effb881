"""Endpoints and deliveries as people and programs see them. Secrets only where they are asked for."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.webhook import DeliveryState, Webhook
from rota.ids import DeliveryId, JobId, WebhookId, show_webhook
from rota.store.session import Looking
from rota.store.webhook import ALL
from rota.wire.scheduler import WebhookSummaryForm
from rota.wire.webhook import (
    DeliveriesForm,
    MessageForm,
    WebhookForm,
    WebhooksForm,
    delivery_form,
    webhook_form,
)

TOP = 2**62


def webhooks(reader: Looking, now: datetime, *, after: int = 0, limit: int = ALL) -> WebhooksForm:
    pending, found = reader.count_pending(), reader.webhooks(after=after, limit=limit + 1)
    forms = [webhook_form(each, pending.get(show_webhook(each.id), 0), now) for each in found[:limit]]
    return WebhooksForm(webhooks=forms, next=forms[-1].id if len(found) > limit else None)


def find(reader: Looking, webhook: WebhookId) -> Webhook:
    found = reader.webhook(webhook)
    if found is None:
        raise reader.no_such_webhook(webhook)
    return found


def show_one(reader: Looking, webhook: Webhook, now: datetime, *, with_secret: bool = False) -> WebhookForm:
    form = webhook_form(webhook, reader.count_pending_of(show_webhook(webhook.id)), now)
    return msgspec.structs.replace(form, secret=webhook.secret) if with_secret else form


def deliveries(
    reader: Looking, *, job: JobId | None, webhook: WebhookId | None, state: DeliveryState | None, below: int,
    limit: int,
) -> DeliveriesForm:  # fmt: skip
    found = reader.deliveries(job=job, webhook=webhook, state=state, below=below, limit=limit + 1)
    tries = reader.tries_of([each.id for each in found[:limit]])
    forms = [delivery_form(each, tries.get(each.id, ())) for each in found[:limit]]
    return DeliveriesForm(deliveries=forms, next=forms[-1].id if len(found) > limit else None)


def delivery(reader: Looking, number: DeliveryId) -> MessageForm:
    """With what is sent."""
    found = reader.delivery(number)
    if found is None:
        raise reader.no_such_delivery(number)
    form = delivery_form(found, reader.tries_of([number]).get(number, ()))
    return MessageForm(**msgspec.structs.asdict(form), payload=msgspec.Raw(reader.payload(number).encode()))


def summary(reader: Looking) -> WebhookSummaryForm:
    """For `status`."""
    endpoints = reader.webhooks()
    enabled = [each for each in endpoints if each.is_enabled]
    return WebhookSummaryForm(
        held=[show_webhook(each.id) for each in enabled if each.held_until is not None],
        disabled=[show_webhook(each.id) for each in endpoints if not each.is_enabled],
        pending=sum(reader.count_pending().values()),
    )
