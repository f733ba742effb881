"""Schedules as people and programs see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.core.cron import Cron, cron_of, zone_of
from rota.core.schedule import Fire, FireState, Schedule
from rota.errors import RotaError
from rota.ids import show_job, show_schedule
from rota.store.session import Looking
from rota.wire.schedule import FireForm, ScheduleForm, SchedulesForm, TimeForm
from rota.wire.scheduler import NextFireForm, ScheduleSummaryForm

_DAY = timedelta(days=1)
_PREVIEW = 3


def listing(look: Looking, *, after: int, limit: int) -> SchedulesForm:
    """By number."""
    found = look.schedules(after=after, limit=limit + 1)
    forms = [form(look, each, most=1) for each in found[:limit]]
    return SchedulesForm(schedules=forms, next=forms[-1].id if len(found) > limit else None)


def form(look: Looking, schedule: Schedule, *, most: int = 10, is_alone: bool = False) -> ScheduleForm:
    body: dict[str, Any] = msgspec.json.decode(schedule.body)
    fires = _fires(look, look.fires_of(schedule.id, most))
    job = {name: value for name, value in body.items() if name not in ("env", "inherit_env", "env_given")}
    return ScheduleForm(
        id=show_schedule(schedule.id),
        name=schedule.name,
        cron=schedule.cron,
        tz=schedule.zone,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        enabled=schedule.is_enabled,
        next_at=schedule.next_at,
        since=schedule.since,
        created_at=schedule.created_at,
        changed_at=schedule.changed_at,
        template=body.get("template"),
        command=body.get("command", []),
        params=body.get("params", {}),
        priority=body.get("priority", 0),
        job=job,
        last_fire=fires[0] if fires else None,
        next=_next(schedule) if is_alone else [],
        fires=fires if is_alone else [],
    )


def _next(schedule: Schedule) -> list[TimeForm]:
    """What is due now is due, though its time has passed."""
    if schedule.next_at is None:
        return []
    try:
        return preview(schedule, schedule.next_at - timedelta(microseconds=1), _PREVIEW)
    except RotaError:
        return []


def preview(schedule: Schedule, start: datetime, count: int) -> list[TimeForm]:
    """Its times after that, whether it is enabled or not."""
    zone = zone_of(schedule.zone)
    times = _following(cron_of(schedule.cron, schedule.zone), start, count)
    return [TimeForm(utc=at, local=at.astimezone(zone)) for at in times]


def _following(cron: Cron, start: datetime, count: int) -> Iterable[datetime]:
    at: datetime | None = start.astimezone(UTC)
    for _ in range(count):
        at = cron.next_after(at) if at is not None else None
        if at is None:
            return
        yield at


def _fires(look: Looking, fires: list[Fire]) -> list[FireForm]:
    chains = look.ends_of([fire.job for fire in fires if fire.job is not None])
    return [
        FireForm(
            at=fire.at,
            state=fire.state,
            job=None if fire.job is None else show_job(fire.job),
            status=None if fire.job is None else chains.get(fire.job),
            late=round(max(0.0, (fire.booked_at - fire.at).total_seconds()), 3),
            reason=fire.reason,
            count=fire.count,
            trigger=fire.is_trigger,
        )
        for fire in fires
    ]


def summary(look: Looking, now: datetime) -> ScheduleSummaryForm:
    """For `status`: how many there are, what is due next, and what went wrong within a day."""
    total, enabled = look.count_schedules()
    first = look.first_due_schedule() if enabled else None
    counts = look.count_fires(now - _DAY) if total else {}
    return ScheduleSummaryForm(
        total=total,
        enabled=enabled,
        next=None if first is None else NextFireForm(id=show_schedule(first[0]), name=first[1], at=first[2]),
        missed=counts.get(FireState.MISSED, 0),
        failed=counts.get(FireState.FAILED, 0),
    )
