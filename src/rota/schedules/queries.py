"""Schedules as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.control.schemas import NextFire, ScheduleSummary
from rota.db.decoding import RecordDecoder
from rota.db.session import AnyReader
from rota.errors import RotaError
from rota.ids import format_job_id, format_schedule_id
from rota.mask import mask_query
from rota.schedules.cron import Cron, parse_cron, parse_zone
from rota.schedules.model import Fire, FireState, Schedule
from rota.schedules.schemas import FireView, ScheduledTime, SchedulePage, ScheduleView

_DAY = timedelta(days=1)
_PREVIEW_COUNT = 3


class _ScheduledJobFields(msgspec.Struct, frozen=True):
    """Fields of the job request that are shown separately or masked."""

    template: str | None = None
    command: list[str] = []
    params: dict[str, Any] = {}
    priority: int = 0
    webhooks: list[str] = []


def list_schedules(reader: AnyReader, *, after: int, limit: int) -> SchedulePage:
    """Return a page of schedules, sorted by id."""
    records = reader.schedules.list_all(after=after, limit=limit + 1)
    schedules = [render_schedule(reader, record, max_fires=1) for record in records[:limit]]
    return SchedulePage(schedules=schedules, next=schedules[-1].id if len(records) > limit else None)


def render_schedule(
    reader: AnyReader, schedule: Schedule, *, max_fires: int = 10, is_detailed: bool = False
) -> ScheduleView:
    decoder = RecordDecoder()
    body = decoder.json("job", schedule.body, _ScheduledJobFields, _ScheduledJobFields())
    text = "{}" if decoder.errors else schedule.body
    fires = _render_fires(reader, reader.schedules.fires_of(schedule.id, max_fires))
    job = {
        name: value
        for name, value in msgspec.json.decode(text).items()
        if name not in ("env", "inherit_env", "explicit_env")
    }
    if "webhooks" in job:
        job["webhooks"] = [mask_query(url) for url in job["webhooks"]]
    return ScheduleView(
        id=format_schedule_id(schedule.id),
        name=schedule.name,
        cron=schedule.cron,
        tz=schedule.zone,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        enabled=schedule.is_enabled,
        next_at=schedule.next_at,
        since=schedule.effective_from,
        created_at=schedule.created_at,
        changed_at=schedule.changed_at,
        template=body.template,
        command=body.command,
        params=body.params,
        priority=body.priority,
        job=job,
        last_fire=fires[0] if fires else None,
        unreadable=schedule.unreadable or decoder.error or _cron_error(schedule),
        next=_next_times(schedule) if is_detailed else [],
        fires=fires if is_detailed else [],
    )


def _cron_error(schedule: Schedule) -> str | None:
    try:
        parse_cron(schedule.cron, schedule.zone)
    except RotaError as error:
        return error.message
    return None


def _next_times(schedule: Schedule) -> list[ScheduledTime]:
    """Return the next times. A time that is due counts as the first, even if it has passed."""
    if schedule.next_at is None:
        return []
    try:
        return upcoming_times(schedule, schedule.next_at - timedelta(microseconds=1), _PREVIEW_COUNT)
    except RotaError:
        return []


def upcoming_times(schedule: Schedule, start: datetime, count: int) -> list[ScheduledTime]:
    """Return the times after `start`, whether the schedule is enabled or not."""
    zone = parse_zone(schedule.zone)
    times = _iterate_times(parse_cron(schedule.cron, schedule.zone), start, count)
    return [ScheduledTime(utc=at, local=at.astimezone(zone)) for at in times]


def _iterate_times(cron: Cron, start: datetime, count: int) -> Iterable[datetime]:
    at: datetime | None = start.astimezone(UTC)
    for _ in range(count):
        at = cron.next_after(at) if at is not None else None
        if at is None:
            return
        yield at


def _render_fires(reader: AnyReader, fires: list[Fire]) -> list[FireView]:
    chains = reader.chains.statuses([fire.job for fire in fires if fire.job is not None])
    return [
        FireView(
            at=fire.at,
            state=fire.state,
            job=None if fire.job is None else format_job_id(fire.job),
            status=None if fire.job is None else chains.get(fire.job),
            delay_seconds=round(max(0.0, (fire.recorded_at - fire.at).total_seconds()), 3),
            reason=fire.reason,
            count=fire.count,
            trigger=fire.is_manual,
        )
        for fire in fires
    ]


def summarize_schedules(reader: AnyReader, now: datetime) -> ScheduleSummary:
    """Return the summary for `status`: counts, the next time, and the failures of the last 24 hours."""
    total, enabled = reader.schedules.count()
    first = reader.schedules.first_due() if enabled else None
    counts = reader.schedules.count_fires(now - _DAY, now) if total else {}
    return ScheduleSummary(
        total=total,
        enabled=enabled,
        next=None if first is None else NextFire(id=format_schedule_id(first[0]), name=first[1], at=first[2]),
        missed=counts.get(FireState.MISSED, 0),
        failed=counts.get(FireState.FAILED, 0),
    )
