"""Firing: a time of a schedule, the job it makes and the next time are one transaction (INV-005, DEC-003).

    fired      its job is stored
    skipped    overlap says no, or another chain has the job's unique key
    failed     there is no job to be made: its template is gone, or the submit is refused
    missed     nobody was there in time, and it is not caught up

What has become of a time stays so: (schedule, time) is unique. What has to be looked at outside is looked at before;
if the schedule has been changed meanwhile nothing happens, and it is looked at again.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import msgspec

from rota.command.backpressure import Deferred
from rota.command.schedule import find
from rota.command.scheduled import expanded, job_of
from rota.command.submission import LockWanted, Origin, Submission, Surroundings
from rota.command.submit import AlreadyActive, Answer, submit
from rota.command.survey import NOTHING, Survey
from rota.core.cron import TICK, cron_of
from rota.core.schedule import Fire, FireState, Overlap, Schedule, Step, crowded_by, line_of, step
from rota.core.workspace import Workspace
from rota.engine.work import Work
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import ScheduleId, show_job
from rota.store.session import Reader

log = logging.getLogger("rota.schedule")


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is due, as it was when looked at."""

    schedule: Schedule
    step: Step
    job: Submission | None = None
    origin: Origin = Origin()
    refusal: str | None = None
    """Why there is no job to be made."""


def due(reader: Reader, *, now: datetime, noticed: datetime, limit: int) -> list[Due]:
    """The longest due first, each with what is to be done."""
    return [_look(reader, schedule, now, noticed) for schedule in reader.due_schedules(now, limit)]


def _look(reader: Reader, schedule: Schedule, now: datetime, noticed: datetime) -> Due:
    """One whose own record cannot be used fails alone, and says so once."""
    try:
        cron = cron_of(schedule.cron, schedule.zone)
        first = schedule.next_at or now
        todo = step(cron, first, schedule.catch_up, now=now, noticed=noticed)
    except RotaError as error:
        return Due(schedule=schedule, step=Step(at=schedule.next_at, next_at=None), refusal=_data_error(error))
    if todo.at is None:
        return Due(schedule=schedule, step=todo)
    try:
        job, origin = expanded(reader, job_of(schedule, reader), schedule.id)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        return Due(schedule=schedule, step=todo, refusal=error.message)
    except Exception as error:  # noqa: BLE001 - a damaged record: its own trouble
        return Due(schedule=schedule, step=todo, refusal=_data_error(error))
    return Due(schedule=schedule, step=todo, job=job, origin=origin)


def _data_error(error: Exception) -> str:
    return f"scheduler data error: {error}"


def fire(
    work: Work, due: Due, around: Surroundings, *, survey: Survey = NOTHING, workspace: Workspace | None = None
) -> Answer | None:
    """Take the step; what the submit was answered, if there was one."""
    schedule, todo = due.schedule, due.step
    if work.session.schedule(schedule.id) != schedule:
        return None
    if todo.missed is not None:
        why = "the scheduler was not there in time"
        work.session.book_missed(schedule, todo.missed, now=work.now, reason=why)
    answer: Answer | None = None
    if todo.at is not None and not work.session.has_fire(schedule.id, todo.at):
        booked, answer = _fired(work, due, todo.at, around, survey, workspace)
        work.session.book_fire(schedule, booked)
    work.session.set_next_fire(schedule.id, todo.next_at)
    return answer


def _fired(
    work: Work, due: Due, at: datetime, around: Surroundings, survey: Survey, workspace: Workspace | None
) -> tuple[Fire, Answer | None]:
    fired = Fire(schedule=due.schedule.id, at=at, state=FireState.FIRED, booked_at=work.now)
    if due.job is None:
        return msgspec.structs.replace(fired, state=FireState.FAILED, reason=due.refusal), None
    crowd = _crowd(work, due.schedule)
    if crowd is not None:
        return msgspec.structs.replace(fired, state=FireState.SKIPPED, reason=crowd), None
    try:
        with work.session.savepoint():
            answer = _submit(work, _in_line(due.job, due.schedule), due.origin, around, survey, workspace)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        return msgspec.structs.replace(fired, state=FireState.FAILED, reason=error.message), None
    except Exception as error:
        log.exception("a defect: schedule %s made no job", due.schedule.name)
        return msgspec.structs.replace(fired, state=FireState.FAILED, reason=_data_error(error)), None
    if isinstance(answer, AlreadyActive):
        reason = f"{show_job(answer.jobs[0])} has its unique key {due.job.unique}"
        return msgspec.structs.replace(fired, state=FireState.SKIPPED, reason=reason), answer
    return msgspec.structs.replace(fired, job=_first(answer)), answer


def _first(answer: Answer) -> Any:
    return None if isinstance(answer, Deferred) else answer.jobs[0]


def _crowd(work: Work, schedule: Schedule) -> str | None:
    """Who lets them overlap does not ask what there is."""
    if schedule.overlap is Overlap.ALLOW:
        return None
    return crowded_by(schedule.overlap, work.session.active_of_schedule(schedule.id))


def _in_line(job: Submission, schedule: Schedule) -> Submission:
    """An edge would tie the jobs of a schedule to each other for good: a rewind would take all later ones along, and gc
    could remove none of them."""
    if schedule.overlap is not Overlap.QUEUE_ONE:
        return job
    return msgspec.structs.replace(job, locks=[*job.locks, LockWanted(key=line_of(schedule.id))])


def _submit(
    work: Work, job: Submission, origin: Origin, around: Surroundings, survey: Survey, workspace: Workspace | None,
    *, actor: str | None = None,
) -> Answer:  # fmt: skip
    workspaces = () if workspace is None else (workspace,)
    return submit(work, [job], around, actor=actor, survey=survey, workspaces=workspaces, origins=[origin])


def triggered(reader: Reader, name: str, params: dict[str, Any]) -> tuple[Schedule, Submission, Origin]:
    """The job that it makes, now, with these params over its own."""
    schedule = find(reader, name)
    job = job_of(schedule, reader)
    job = msgspec.structs.replace(job, params={**job.params, **params})
    return schedule, *expanded(reader, job, schedule.id)


def trigger(
    work: Work, schedule: ScheduleId, job: Submission, origin: Origin, around: Surroundings, *, survey: Survey,
    workspace: Workspace | None, actor: str | None,
) -> Answer:  # fmt: skip
    """Who asks for it wants it now: overlap does not skip it, nor that it is disabled; its times stay as they are."""
    found = find(work.session, f"schedule-{schedule}")
    answer = _submit(work, _in_line(job, found), origin, around, survey, workspace, actor=actor)
    if isinstance(answer, AlreadyActive):
        return answer
    at = work.now
    while work.session.has_fire(schedule, at):
        at += TICK
    fired = Fire(
        schedule=schedule, at=at, state=FireState.FIRED, job=_first(answer), booked_at=work.now, is_trigger=True
    )
    work.session.book_fire(found, fired, actor=actor)
    return answer


def is_ahead(schedule: Schedule, now: datetime) -> datetime | None:
    """When a schedule is due, if that is sooner than it stands there: its next time was found when the clock was ahead
    of what it is now, or not at all, because its zone could not be read."""
    if not schedule.is_enabled or (schedule.next_at is not None and schedule.next_at <= now):
        return None
    try:
        expected = cron_of(schedule.cron, schedule.zone).next_after(now)
    except RotaError:
        return None
    if expected is None or (schedule.next_at is not None and expected >= schedule.next_at):
        return None
    return expected


def ahead(reader: Reader, *, now: datetime, after: int, limit: int) -> tuple[list[Schedule], int | None]:
    """Of the schedules from there on, those that stand too far ahead; the number of the last one looked at."""
    page = reader.schedules(after=after, limit=limit)
    return [each for each in page if is_ahead(each, now) is not None], page[-1].id if page else None


def set_right(work: Work, schedule: Schedule) -> None:
    """What has fired in the time that comes again does not fire again: what became of it is booked."""
    found = work.session.schedule(schedule.id)
    if found is not None and (expected := is_ahead(found, work.now)) is not None:
        work.session.set_next_fire(found.id, expected)
