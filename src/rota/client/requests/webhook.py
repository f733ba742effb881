"""Requests for webhook endpoints and deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.requests import Request, build_query, quote
from rota.client.requests.arguments import as_duration, as_idempotency_key, as_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests.options import Duration


def list_webhooks(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List endpoints, oldest first."""
    return Request("GET", f"/api/webhooks{build_query(('limit', limit), ('cursor', cursor))}")


def add_webhook(url: str, *, events: Sequence[str] = (), secret: str | None = None, key: str | None = None) -> Request:
    """Add an endpoint that receives these events, or the default events. The response has its signing secret."""
    body = {"url": url, "events": as_list("events", events), "secret": secret}
    return Request("POST", "/api/webhooks", body=body, key=as_idempotency_key(key))


def get_webhook(webhook: str, *, secret: bool = False) -> Request:
    """Return an endpoint. With `secret`, include its signing secret."""
    return Request("GET", f"/api/webhooks/{quote(webhook)}{build_query(('secret', secret or None))}")


def get_webhook_secret() -> Request:
    """Return the signing secret of messages to URLs that jobs name."""
    return Request("GET", "/api/webhooks/secret")


def remove_webhook(webhook: str) -> Request:
    """Remove an endpoint."""
    return Request("DELETE", f"/api/webhooks/{quote(webhook)}")


def enable_webhook(webhook: str) -> Request:
    """Enable an endpoint."""
    return Request("POST", f"/api/webhooks/{quote(webhook)}/enable")


def disable_webhook(webhook: str) -> Request:
    """Disable an endpoint. It receives no messages until it is enabled."""
    return Request("POST", f"/api/webhooks/{quote(webhook)}/disable")


def rotate_webhook(
    webhook: str, *, secret: str | None = None, keep_old_for: Duration | None = None, key: str | None = None
) -> Request:
    """Replace the signing secret. The previous secret also signs messages for `keep_old_for`."""
    body = {"secret": secret, "keep_old_for": as_duration(keep_old_for)}
    return Request("POST", f"/api/webhooks/{quote(webhook)}/rotate", body=body, key=as_idempotency_key(key))


def send_test_webhook(webhook: str, *, key: str | None = None) -> Request:
    """Send a test message now. Returns when the receiver has responded."""
    return Request("POST", f"/api/webhooks/{quote(webhook)}/test", key=as_idempotency_key(key), timeout=None)


def list_deliveries(
    *,
    job: str | None = None,
    webhook: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Request:
    """List deliveries, newest first."""
    query = build_query(("job", job), ("webhook", webhook), ("state", state), ("limit", limit), ("cursor", cursor))
    return Request("GET", f"/api/webhook-deliveries{query}")


def get_delivery(delivery: str) -> Request:
    """Return a delivery with its attempts."""
    return Request("GET", f"/api/webhook-deliveries/{quote(delivery)}")


def redeliver(delivery: str, *, key: str | None = None) -> Request:
    """Send a delivery again."""
    return Request("POST", f"/api/webhook-deliveries/{quote(delivery)}/redeliver", key=as_idempotency_key(key))
