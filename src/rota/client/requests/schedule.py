"""Requests for schedules."""

from __future__ import annotations

from collections.abc import Mapping

from rota.client.requests import Request, build_query, quote
from rota.client.requests.arguments import as_idempotency_key, as_mapping
from rota.client.requests.job import job_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Unpack

    from rota.client.requests.options import NewJobOptions, ScheduleChangeOptions, ScheduleOptions


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
