"""Storage of schedules and of their fires. A fire is the record; its time is the instant that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from rota.db.database import Database, Row
from rota.db.decoding import (
    RecordDecoder,
    from_micros,
    optional_from_micros,
    optional_to_micros,
    parse_fire_state,
    to_micros,
)
from rota.db.events import Events
from rota.db.ids import Ids
from rota.ids import JobId, ScheduleId, format_schedule_id
from rota.kernel.events import Event
from rota.schedules.model import ActiveScheduledJob, Fire, FireState, MissedTimes, Schedule

CAUSE = "schedule"
_MAX_ACTIVE = 1000


class ScheduleRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, schedule: ScheduleId) -> Schedule | None:
        return next(map(_schedule_from_row, self._db.rows("schedule", schedule=schedule)), None)

    def find_named(self, name: str) -> Schedule | None:
        return next(map(_schedule_from_row, self._db.rows("schedule_named", name=name)), None)

    def list_all(self, *, after: int, limit: int) -> list[Schedule]:
        return [_schedule_from_row(row) for row in self._db.rows("schedules", schedule=after, limit=limit)]

    def due(self, now: datetime, limit: int) -> list[Schedule]:
        """Return the due schedules, the longest overdue first."""
        return [_schedule_from_row(row) for row in self._db.rows("due_schedules", now=to_micros(now), limit=limit)]

    def first_due(self) -> tuple[ScheduleId, str, datetime] | None:
        rows = self._db.rows("first_due_schedule")
        return (ScheduleId(rows[0][0]), rows[0][1], from_micros(rows[0][2])) if rows else None

    def count(self) -> tuple[int, int]:
        """Return the number of schedules, and of the enabled ones."""
        ((total, enabled),) = self._db.rows("count_schedules")
        return int(total), int(enabled)

    def fires_of(self, schedule: ScheduleId, limit: int) -> list[Fire]:
        """Return the fires of a schedule, newest first."""
        return [_fire_from_row(row) for row in self._db.rows("fires_of", schedule=schedule, limit=limit)]

    def newest_fire(self, schedule: ScheduleId) -> datetime | None:
        """Return the time of the newest fire in the current epoch of the schedule.

        The first epoch begins when the schedule is added. `start_epoch` begins the next one, after a wrong
        clock was corrected."""
        ((newest,),) = self._db.rows("newest_fire", schedule=schedule)
        return optional_from_micros(newest)

    def count_fires(self, since: datetime, until: datetime) -> dict[FireState, int]:
        counts: dict[FireState, int] = {}
        for text, count in self._db.rows("count_fires", since=to_micros(since), until=to_micros(until)):
            state = parse_fire_state(text)
            counts[state] = counts.get(state, 0) + int(count)
        return counts

    def old_fires(self, until: datetime, limit: int) -> list[tuple[int, int, int]]:
        """Return the keys of fires recorded before `until`, without the last fire of each schedule."""
        return [(row[0], row[1], row[2]) for row in self._db.rows("old_fires", until=to_micros(until), limit=limit)]

    def active_jobs(self, schedule: ScheduleId) -> list[ActiveScheduledJob]:
        """Return the unfinished jobs of a schedule, oldest first."""
        rows = self._db.rows("active_of_schedule", schedule=schedule, limit=_MAX_ACTIVE)
        return [ActiveScheduledJob(job=JobId(job), is_waiting=bool(is_waiting)) for job, is_waiting in rows]

    def has_fire(self, schedule: ScheduleId, at: datetime) -> bool:
        return bool(self._db.rows("has_fire", schedule=schedule, at=to_micros(at)))


class Schedules(ScheduleRecords):
    def __init__(self, database: Database, ids: Ids, events: Events) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events

    def add(self, schedule: Schedule, *, actor: str | None) -> None:
        self._db.run("add_schedule", created_at=to_micros(schedule.created_at), **_schedule_row(schedule))
        self._emit(schedule, "created", schedule.created_at, actor=actor, data={"name": schedule.name})

    def change(
        self,
        schedule: Schedule,
        change: Literal["changed", "enabled", "disabled"],
        *,
        actor: str | None,
        data: Mapping[str, object] = {},
    ) -> None:
        """Store a schedule, and emit the event of the change."""
        self._db.run("change_schedule", **_schedule_row(schedule))
        self._emit(schedule, change, schedule.changed_at, actor=actor, data={"name": schedule.name, **data})

    def remove(self, schedule: Schedule, *, now: datetime, actor: str | None) -> None:
        """Remove a schedule. Its jobs stay, and retention removes its history later."""
        self._ids.retire("schedule", schedule.id)
        self._db.run("remove_schedule", schedule=schedule.id)
        self._emit(schedule, "removed", now, actor=actor, data={"name": schedule.name})

    def set_next_fire(self, schedule: ScheduleId, at: datetime | None) -> None:
        self._db.run("set_next_fire", id=schedule, next_at=optional_to_micros(at))

    def start_epoch(self, schedule: ScheduleId) -> None:
        """Start a new epoch, in which every time can fire again. The recorded fires stay."""
        self._db.run("start_schedule_epoch", id=schedule)

    def record_fire(self, schedule: Schedule, fire: Fire, *, actor: str | None = None) -> None:
        self._add_fire(fire)
        delay = max(0.0, (fire.recorded_at - fire.at).total_seconds())
        data: dict[str, object] = {"name": schedule.name, "at": fire.at.isoformat(), "delay_seconds": round(delay, 3)}
        if fire.reason is not None:
            data["reason"] = fire.reason
        if fire.is_manual:
            data["trigger"] = True
        self._emit(schedule, fire.state.value, fire.recorded_at, actor=actor, data=data, job=fire.job)

    def record_missed(self, schedule: Schedule, missed: MissedTimes, *, now: datetime, reason: str) -> None:
        """Record missed times as one fire: a schedule that fires every minute misses half a million times in a year."""
        self._add_fire(
            Fire(
                schedule=schedule.id,
                at=missed.last,
                state=FireState.MISSED,
                recorded_at=now,
                reason=reason,
                count=missed.count,
            )
        )
        data = {
            "name": schedule.name,
            "count": missed.count,
            "first": missed.first.isoformat(),
            "at": missed.last.isoformat(),
            "delay_seconds": round((now - missed.last).total_seconds(), 3),
            "reason": reason,
        }
        self._emit(schedule, FireState.MISSED.value, now, actor=None, data=data)

    def remove_fires(self, fires: Sequence[tuple[int, int, int]]) -> int:
        rows = [{"schedule": schedule, "epoch": epoch, "at": at} for schedule, epoch, at in fires]
        return self._db.run_many("remove_fire", rows)

    def _add_fire(self, fire: Fire) -> None:
        self._db.run(
            "add_fire",
            schedule=fire.schedule,
            at=to_micros(fire.at),
            state=fire.state.value,
            job=fire.job,
            recorded_at=to_micros(fire.recorded_at),
            reason=fire.reason,
            count=fire.count,
            is_manual=int(fire.is_manual),
        )

    def _emit(
        self,
        schedule: Schedule,
        kind: str,
        at: datetime,
        *,
        actor: str | None,
        data: Mapping[str, object],
        job: JobId | None = None,
    ) -> None:
        event_data = {"schedule": format_schedule_id(schedule.id), **data}
        self._events.emit(
            Event(kind=f"schedule.{kind}", at=to_micros(at), cause=CAUSE, actor=actor, job=job, data=event_data)
        )


def _schedule_row(schedule: Schedule) -> dict[str, object]:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "catch_up": schedule.catch_up.value,
        "overlap": schedule.overlap.value,
        "body": schedule.body,
        "environment": schedule.environment,
        "is_enabled": int(schedule.is_enabled),
        "since": to_micros(schedule.effective_from),
        "next_at": optional_to_micros(schedule.next_at),
        "changed_at": to_micros(schedule.changed_at),
    }


def _schedule_from_row(row: Row) -> Schedule:
    id_, name, cron, zone, catch_up, overlap, body, environment, is_enabled, since, next_at, created, changed = row
    decoder = RecordDecoder()
    return Schedule(
        id=ScheduleId(id_),
        name=name,
        cron=cron,
        zone=zone,
        catch_up=decoder.catch_up(catch_up),
        overlap=decoder.overlap(overlap),
        body=body,
        environment=environment,
        is_enabled=bool(is_enabled),
        effective_from=from_micros(since),
        next_at=optional_from_micros(next_at),
        created_at=from_micros(created),
        changed_at=from_micros(changed),
        unreadable=decoder.error,
    )


def _fire_from_row(row: Row) -> Fire:
    schedule, at, state, job, recorded_at, reason, count, is_manual = row
    decoder = RecordDecoder()
    parsed = decoder.fire_state(state)
    return Fire(
        schedule=ScheduleId(schedule),
        at=from_micros(at),
        state=parsed,
        job=None if job is None else JobId(job),
        recorded_at=from_micros(recorded_at),
        reason=decoder.error or reason,
        count=int(count),
        is_manual=bool(is_manual),
    )
