"""Webhooks and deliveries as the API shows them. The secret and the unmasked URL are included only on request."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.control.schemas import WebhookSummary
from rota.db.session import AnyReader
from rota.ids import DeliveryId, JobId, WebhookId, format_webhook_id
from rota.webhooks.model import DeliveryState, Webhook
from rota.webhooks.repository import NO_LIMIT
from rota.webhooks.schemas import (
    DeliveryDetail,
    DeliveryPage,
    WebhookPage,
    WebhookView,
    render_delivery,
    render_webhook,
)

MAX_DELIVERY_ID = 2**62


def list_webhooks(reader: AnyReader, now: datetime, *, after: int = 0, limit: int = NO_LIMIT) -> WebhookPage:
    pending, webhooks = (
        reader.webhooks.count_pending_by_receiver(),
        reader.webhooks.list_all(after=after, limit=limit + 1),
    )
    views = [
        render_webhook(webhook, pending.get(format_webhook_id(webhook.id), 0), now) for webhook in webhooks[:limit]
    ]
    return WebhookPage(webhooks=views, next=views[-1].id if len(webhooks) > limit else None)


def find_webhook(reader: AnyReader, webhook: WebhookId) -> Webhook:
    record = reader.webhooks.find(webhook)
    if record is None:
        raise reader.webhooks.not_found(webhook)
    return record


def show_webhook(reader: AnyReader, webhook: Webhook, now: datetime, *, reveal: bool = False) -> WebhookView:
    """Return a webhook. With `reveal`, include its secret and its URL in full."""
    view = render_webhook(webhook, reader.webhooks.count_pending(format_webhook_id(webhook.id)), now)
    return msgspec.structs.replace(view, url=webhook.url, secret=webhook.secret) if reveal else view


def list_deliveries(
    reader: AnyReader,
    *,
    job: JobId | None,
    webhook: WebhookId | None,
    state: DeliveryState | None,
    before_id: int,
    limit: int,
) -> DeliveryPage:
    deliveries = reader.webhooks.list_deliveries(
        job=job, webhook=webhook, state=state, before_id=before_id, limit=limit + 1
    )
    attempts = reader.webhooks.attempts_of([delivery.id for delivery in deliveries[:limit]])
    views = [render_delivery(delivery, attempts.get(delivery.id, ())) for delivery in deliveries[:limit]]
    return DeliveryPage(deliveries=views, next=views[-1].id if len(deliveries) > limit else None)


def show_delivery(reader: AnyReader, delivery: DeliveryId) -> DeliveryDetail:
    """Return a delivery with its payload."""
    record = reader.webhooks.find_delivery(delivery)
    if record is None:
        raise reader.webhooks.delivery_not_found(delivery)
    view = render_delivery(record, reader.webhooks.attempts_of([delivery]).get(delivery, ()))
    return DeliveryDetail(
        **msgspec.structs.asdict(view), payload=msgspec.Raw(reader.webhooks.payload(delivery).encode())
    )


def summarize_webhooks(reader: AnyReader) -> WebhookSummary:
    """Return the summary for `status`."""
    webhooks = reader.webhooks.list_all()
    enabled = [webhook for webhook in webhooks if webhook.is_enabled]
    return WebhookSummary(
        held=[format_webhook_id(webhook.id) for webhook in enabled if webhook.held_until is not None],
        disabled=[format_webhook_id(webhook.id) for webhook in webhooks if not webhook.is_enabled],
        pending=sum(reader.webhooks.count_pending_by_receiver().values()),
    )
