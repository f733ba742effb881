"""Requests for templates, schedules, webhooks and deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.client.requests import Request, build_query, quote
from rota.client.requests.arguments import as_duration, as_idempotency_key, as_list, as_mapping, encode_fields
from rota.client.requests.jobs import job_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Unpack

    from rota.client.requests import Json
    from rota.client.requests.options import (
        Duration,
        NewJobOptions,
        NewTemplateOptions,
        ScheduleChangeOptions,
        ScheduleOptions,
        TemplateChangeOptions,
    )


def add_template(template: NewTemplateOptions | Json, *, key: str | None = None) -> Request:
    """Add a template: its name, its command and the other fields of its jobs."""
    return Request(
        "POST", "/api/job-templates", body=encode_fields(as_mapping("template", template)), key=as_idempotency_key(key)
    )


def list_templates(*, all: bool = False, limit: int | None = None, cursor: str | None = None) -> Request:  # noqa: A002
    """List templates in use. With `all`, include archived ones."""
    return Request(
        "GET", f"/api/job-templates{build_query(('all', all or None), ('limit', limit), ('cursor', cursor))}"
    )


def get_template(template: str) -> Request:
    """Return a template by name or id."""
    return Request("GET", f"/api/job-templates/{quote(template)}")


def change_template(template: str, /, **changes: Unpack[TemplateChangeOptions]) -> Request:
    """Change fields of a template. Existing jobs keep their values."""
    return Request("PATCH", f"/api/job-templates/{quote(template)}", body=encode_fields(changes))


def replace_template(template: str, document: TemplateChangeOptions | Json) -> Request:
    """Replace all fields of a template. Omitted fields get their defaults."""
    return Request("PUT", f"/api/job-templates/{quote(template)}", body=encode_fields(as_mapping("template", document)))


def archive_template(template: str) -> Request:
    """Archive a template. It creates no further jobs."""
    return Request("POST", f"/api/job-templates/{quote(template)}/archive")


def unarchive_template(template: str) -> Request:
    """Take an archived template back into use."""
    return Request("POST", f"/api/job-templates/{quote(template)}/unarchive")


def list_schedules(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List schedules."""
    return Request("GET", f"/api/schedules{build_query(('limit', limit), ('cursor', cursor))}")


def add_schedule(
    name: str, cron: str, job: NewJobOptions, *, key: str | None = None, **options: Unpack[ScheduleOptions]
) -> Request:
    """Add a schedule that submits a job at each time of a cron expression."""
    body = {"name": name, "cron": cron, "job": job_body(job), **options}
    return Request("POST", "/api/schedules", body=body, key=as_idempotency_key(key))


def get_schedule(schedule: str) -> Request:
    """Return a schedule by name or id, with its next and latest times."""
    return Request("GET", f"/api/schedules/{quote(schedule)}")


def change_schedule(schedule: str, /, **changes: Unpack[ScheduleChangeOptions]) -> Request:
    """Change fields of a schedule."""
    body = {**changes, "job": job_body(changes["job"])} if "job" in changes else changes
    return Request("PATCH", f"/api/schedules/{quote(schedule)}", body=body)


def remove_schedule(schedule: str) -> Request:
    """Remove a schedule. Its jobs stay."""
    return Request("DELETE", f"/api/schedules/{quote(schedule)}")


def enable_schedule(schedule: str) -> Request:
    """Enable a schedule."""
    return Request("POST", f"/api/schedules/{quote(schedule)}/enable")


def disable_schedule(schedule: str) -> Request:
    """Disable a schedule. It does not fire until it is enabled."""
    return Request("POST", f"/api/schedules/{quote(schedule)}/disable")


def trigger_schedule(schedule: str, *, params: Mapping[str, Any] | None = None, key: str | None = None) -> Request:
    """Submit the job of a schedule now. `params` override the schedule's parameters."""
    target = f"/api/schedules/{quote(schedule)}/trigger"
    return Request("POST", target, body={"params": as_mapping("params", params or {})}, key=as_idempotency_key(key))


def next_fires(schedule: str, *, start: str | None = None, count: int | None = None) -> Request:
    """Return the times of a schedule from now, or from `start`."""
    return Request("GET", f"/api/schedules/{quote(schedule)}/next{build_query(('from', start), ('count', count))}")


def list_webhooks(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List webhooks, oldest first."""
    return Request("GET", f"/api/webhooks{build_query(('limit', limit), ('cursor', cursor))}")


def add_webhook(url: str, *, events: Sequence[str] = (), secret: str | None = None, key: str | None = None) -> Request:
    """Add a webhook that receives these events, or the default events. The response has its signing secret."""
    body = {"url": url, "events": as_list("events", events), "secret": secret}
    return Request("POST", "/api/webhooks", body=body, key=as_idempotency_key(key))


def get_webhook(webhook: str, *, secret: bool = False) -> Request:
    """Return a webhook. With `secret`, include its signing secret."""
    return Request("GET", f"/api/webhooks/{quote(webhook)}{build_query(('secret', secret or None))}")


def get_webhook_secret() -> Request:
    """Return the signing secret of messages to URLs that jobs name."""
    return Request("GET", "/api/webhooks/secret")


def remove_webhook(webhook: str) -> Request:
    """Remove a webhook."""
    return Request("DELETE", f"/api/webhooks/{quote(webhook)}")


def enable_webhook(webhook: str) -> Request:
    """Enable a webhook."""
    return Request("POST", f"/api/webhooks/{quote(webhook)}/enable")


def disable_webhook(webhook: str) -> Request:
    """Disable a webhook. It receives no messages until it is enabled."""
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
