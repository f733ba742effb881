"""Stores schedules and what became of their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rota.core.event import Event
from rota.core.schedule import Active, CatchUp, Fire, FireState, Missed, Overlap, Schedule
from rota.core.status import Status
from rota.ids import JobId, ScheduleId, show_schedule
from rota.store.database import Database, Row
from rota.store.event import Emitting
from rota.store.moment import from_stored, maybe_from_stored, maybe_to_stored, to_stored

CAUSE = "schedule"
_MOST_ACTIVE = 1000
TOP = 2**62


class ScheduleRecords:
    _db: Database

    def schedule(self, schedule: ScheduleId) -> Schedule | None:
        return next(map(_schedule, self._db.rows("schedule", schedule=schedule)), None)

    def schedule_named(self, name: str) -> Schedule | None:
        return next(map(_schedule, self._db.rows("schedule_named", name=name)), None)

    def schedules(self, *, after: int, limit: int) -> list[Schedule]:
        return [_schedule(row) for row in self._db.rows("schedules", schedule=after, limit=limit)]

    def due_schedules(self, now: datetime, limit: int) -> list[Schedule]:
        """The longest due first."""
        return [_schedule(row) for row in self._db.rows("due_schedules", now=to_stored(now), limit=limit)]

    def first_due_schedule(self) -> tuple[ScheduleId, str, datetime] | None:
        rows = self._db.rows("first_due_schedule")
        return (ScheduleId(rows[0][0]), rows[0][1], from_stored(rows[0][2])) if rows else None

    def count_schedules(self) -> tuple[int, int]:
        """All, and those that are enabled."""
        ((total, enabled),) = self._db.rows("count_schedules")
        return int(total), int(enabled)

    def fires_of(self, schedule: ScheduleId, limit: int, *, below: int = TOP) -> list[Fire]:
        """The newest first."""
        return [_fire(row) for row in self._db.rows("fires_of", schedule=schedule, below=below, limit=limit)]

    def ends_of(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """The statuses that the chains of these jobs have come to; what has been collected is not in the answer."""
        rows = self._db.rows("chains", ids=list(jobs)) if jobs else ()
        return {JobId(row[0]): Status(row[3]).shown.value for row in rows}

    def count_fires(self, since: datetime) -> dict[FireState, int]:
        return {FireState(state): int(count) for state, count in self._db.rows("count_fires", since=to_stored(since))}

    def old_fires(self, until: datetime, limit: int) -> list[tuple[int, int]]:
        """Each by its schedule and time."""
        return [(row[0], row[1]) for row in self._db.rows("old_fires", until=to_stored(until), limit=limit)]


class Firing(Emitting, ScheduleRecords):
    def add_schedule(self, schedule: Schedule, *, actor: str | None) -> None:
        self._db.run("add_schedule", created_at=to_stored(schedule.created_at), **_row(schedule))
        self._tell_schedule(schedule, "created", schedule.created_at, actor=actor, data={"name": schedule.name})

    def change_schedule(
        self, schedule: Schedule, kind: str, *, actor: str | None, data: Mapping[str, object] = {}
    ) -> None:
        """`kind` is what it is told as: changed, enabled, disabled."""
        self._db.run("change_schedule", **_row(schedule))
        self._tell_schedule(schedule, kind, schedule.changed_at, actor=actor, data={"name": schedule.name, **data})

    def remove_schedule(self, schedule: Schedule, *, now: datetime, actor: str | None) -> None:
        """Its jobs stay, and what became of its times goes with age."""
        self.spend("schedule", schedule.id)
        self._db.run("remove_schedule", schedule=schedule.id)
        self._tell_schedule(schedule, "removed", now, actor=actor, data={"name": schedule.name})

    def set_next_fire(self, schedule: ScheduleId, at: datetime | None) -> None:
        self._db.run("set_next_fire", id=schedule, next_at=maybe_to_stored(at))

    def active_of_schedule(self, schedule: ScheduleId) -> list[Active]:
        """Jobs that it has made and that have not ended, the oldest first."""
        rows = self._db.rows("active_of_schedule", schedule=schedule, limit=_MOST_ACTIVE)
        return [Active(job=JobId(job), is_waiting=bool(is_waiting)) for job, is_waiting in rows]

    def has_fire(self, schedule: ScheduleId, at: datetime) -> bool:
        return bool(self._db.rows("has_fire", schedule=schedule, at=to_stored(at)))

    def book_fire(self, schedule: Schedule, fire: Fire, *, actor: str | None = None) -> None:
        self._add_fire(fire)
        late = max(0.0, (fire.booked_at - fire.at).total_seconds())
        data: dict[str, object] = {"name": schedule.name, "at": fire.at.isoformat(), "late": round(late, 3)}
        if fire.reason is not None:
            data["reason"] = fire.reason
        if fire.is_trigger:
            data["trigger"] = True
        self._tell_schedule(schedule, fire.state.value, fire.booked_at, actor=actor, data=data, job=fire.job)

    def book_missed(self, schedule: Schedule, missed: Missed, *, now: datetime, reason: str) -> None:
        """All of them as one: a schedule of every minute that nobody was there for in a year has missed half a
        million."""
        self._add_fire(
            Fire(
                schedule=schedule.id, at=missed.last, state=FireState.MISSED, booked_at=now, reason=reason,
                count=missed.count,
            )
        )  # fmt: skip
        data = {
            "name": schedule.name,
            "count": missed.count,
            "first": missed.first.isoformat(),
            "at": missed.last.isoformat(),
            "late": round((now - missed.last).total_seconds(), 3),
            "reason": reason,
        }
        self._tell_schedule(schedule, FireState.MISSED.value, now, actor=None, data=data)

    def _add_fire(self, fire: Fire) -> None:
        self._db.run(
            "add_fire",
            schedule=fire.schedule,
            at=to_stored(fire.at),
            state=fire.state.value,
            job=fire.job,
            booked_at=to_stored(fire.booked_at),
            reason=fire.reason,
            count=fire.count,
            is_trigger=int(fire.is_trigger),
        )

    def _tell_schedule(
        self, schedule: Schedule, kind: str, at: datetime, *, actor: str | None, data: Mapping[str, object],
        job: JobId | None = None,
    ) -> None:  # fmt: skip
        said = {"schedule": show_schedule(schedule.id), **data}
        self.emit(Event(kind=f"schedule.{kind}", at=to_stored(at), cause=CAUSE, actor=actor, job=job, data=said))

    def remove_fires(self, fires: Sequence[tuple[int, int]]) -> int:
        return self._db.run_many("remove_fire", [{"schedule": schedule, "at": at} for schedule, at in fires])


def _row(schedule: Schedule) -> dict[str, object]:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "catch_up": schedule.catch_up.value,
        "overlap": schedule.overlap.value,
        "body": schedule.body,
        "surroundings": schedule.surroundings,
        "is_enabled": int(schedule.is_enabled),
        "since": to_stored(schedule.since),
        "next_at": maybe_to_stored(schedule.next_at),
        "changed_at": to_stored(schedule.changed_at),
    }


def _schedule(row: Row) -> Schedule:
    id_, name, cron, zone, catch_up, overlap, body, surroundings, is_enabled, since, next_at, created, changed = row
    return Schedule(
        id=ScheduleId(id_),
        name=name,
        cron=cron,
        zone=zone,
        catch_up=CatchUp(catch_up),
        overlap=Overlap(overlap),
        body=body,
        surroundings=surroundings,
        is_enabled=bool(is_enabled),
        since=from_stored(since),
        next_at=maybe_from_stored(next_at),
        created_at=from_stored(created),
        changed_at=from_stored(changed),
    )


def _fire(row: Row) -> Fire:
    schedule, at, state, job, booked_at, reason, count, is_trigger = row
    return Fire(
        schedule=ScheduleId(schedule),
        at=from_stored(at),
        state=FireState(state),
        job=None if job is None else JobId(job),
        booked_at=from_stored(booked_at),
        reason=reason,
        count=int(count),
        is_trigger=bool(is_trigger),
    )
