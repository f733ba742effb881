"""Schedules."""

from __future__ import annotations

from collections.abc import Mapping

from rota.client.ask import Ask, query, quote
from rota.client.ask.given import key_of, mapped
from rota.client.ask.job import job_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Unpack

    from rota.client.ask.wanted import Job, Schedule, ScheduleChange


def list_schedules(*, limit: int | None = None, cursor: str | None = None) -> Ask:
    """All that there are."""
    return Ask("GET", f"/api/schedules{query(('limit', limit), ('cursor', cursor))}")


def add_schedule(name: str, cron: str, job: Job, *, key: str | None = None, **more: Unpack[Schedule]) -> Ask:
    """A job each time that the cron expression says."""
    body = {"name": name, "cron": cron, "job": job_body(job), **more}
    return Ask("POST", "/api/schedules", body=body, key=key_of(key))


def get_schedule(schedule: str) -> Ask:
    """One, by name or id, with its next times and what became of the last."""
    return Ask("GET", f"/api/schedules/{quote(schedule)}")


def change_schedule(schedule: str, /, **changes: Unpack[ScheduleChange]) -> Ask:
    """Change what is named."""
    body = {**changes, "job": job_body(changes["job"])} if "job" in changes else changes
    return Ask("PATCH", f"/api/schedules/{quote(schedule)}", body=body)


def remove_schedule(schedule: str) -> Ask:
    """It fires no more; its jobs stay."""
    return Ask("DELETE", f"/api/schedules/{quote(schedule)}")


def enable_schedule(schedule: str) -> Ask:
    """It fires."""
    return Ask("POST", f"/api/schedules/{quote(schedule)}/enable")


def disable_schedule(schedule: str) -> Ask:
    """It does not fire until it is enabled."""
    return Ask("POST", f"/api/schedules/{quote(schedule)}/disable")


def trigger_schedule(schedule: str, *, params: Mapping[str, Any] | None = None, key: str | None = None) -> Ask:
    """A job of it now, with these params over its own."""
    target = f"/api/schedules/{quote(schedule)}/trigger"
    return Ask("POST", target, body={"params": mapped("params", params or {})}, key=key_of(key))


def next_fires(schedule: str, *, start: str | None = None, count: int | None = None) -> Ask:
    """Its times from now on, or from `start`."""
    return Ask("GET", f"/api/schedules/{quote(schedule)}/next{query(('from', start), ('count', count))}")
