"""Webhooks: endpoints, and what was sent to whom."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.ask import Ask, query, quote
from rota.client.ask.given import duration, key_of, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask.wanted import Duration


def list_webhooks(*, limit: int | None = None, cursor: str | None = None) -> Ask:
    """The endpoints, the oldest first."""
    return Ask("GET", f"/api/webhooks{query(('limit', limit), ('cursor', cursor))}")


def add_webhook(url: str, *, events: Sequence[str] = (), secret: str | None = None, key: str | None = None) -> Ask:
    """Tell this URL of these events, or of the usual ones. The answer has the secret that messages are signed with."""
    body = {"url": url, "events": listed("events", events), "secret": secret}
    return Ask("POST", "/api/webhooks", body=body, key=key_of(key))


def get_webhook(webhook: str, *, secret: bool = False) -> Ask:
    """One; with its secret if that is asked for."""
    return Ask("GET", f"/api/webhooks/{quote(webhook)}{query(('secret', secret or None))}")


def get_webhook_secret() -> Ask:
    """What messages to the URLs of jobs are signed with."""
    return Ask("GET", "/api/webhooks/secret")


def remove_webhook(webhook: str) -> Ask:
    """Nothing more is sent to it."""
    return Ask("DELETE", f"/api/webhooks/{quote(webhook)}")


def enable_webhook(webhook: str) -> Ask:
    """Send to it."""
    return Ask("POST", f"/api/webhooks/{quote(webhook)}/enable")


def disable_webhook(webhook: str) -> Ask:
    """Send nothing to it until it is enabled."""
    return Ask("POST", f"/api/webhooks/{quote(webhook)}/disable")


def rotate_webhook(
    webhook: str, *, secret: str | None = None, keep: Duration | None = None, key: str | None = None
) -> Ask:
    """Another secret; the one until now goes on signing for as long as `keep` says."""
    body = {"secret": secret, "keep": duration(keep)}
    return Ask("POST", f"/api/webhooks/{quote(webhook)}/rotate", body=body, key=key_of(key))


def try_webhook(webhook: str, *, key: str | None = None) -> Ask:
    """Send it something now; this takes as long as the receiver may."""
    return Ask("POST", f"/api/webhooks/{quote(webhook)}/test", key=key_of(key), patience=None)


def list_deliveries(
    *, job: str | None = None, webhook: str | None = None, state: str | None = None, limit: int | None = None,
    cursor: str | None = None,
) -> Ask:  # fmt: skip
    """What was sent, or is to be; the newest first."""
    asked = query(("job", job), ("webhook", webhook), ("state", state), ("limit", limit), ("cursor", cursor))
    return Ask("GET", f"/api/webhook-deliveries{asked}")


def get_delivery(delivery: str) -> Ask:
    """One, with its tries."""
    return Ask("GET", f"/api/webhook-deliveries/{quote(delivery)}")


def redeliver(delivery: str, *, key: str | None = None) -> Ask:
    """Send it again."""
    return Ask("POST", f"/api/webhook-deliveries/{quote(delivery)}/redeliver", key=key_of(key))
