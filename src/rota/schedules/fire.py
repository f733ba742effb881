"""Firing of schedules: a time, its job and the next time are one transaction (INV-005, DEC-003).

    fired      the job is stored
    skipped    the overlap policy forbids the job, or another chain has its unique key
    failed     no job can be made: its template is gone, or the submit is refused
    missed     no scheduler was running at the time, and `catch_up` excludes it

The outcome of a time is final: (schedule, epoch, time) is unique; a new epoch begins when a wrong clock is corrected.
Git and files are probed before the transaction. If the schedule has changed since then, nothing happens and the
schedule is evaluated again.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.db.jobs import NewJob
from rota.db.session import Reader
from rota.engine.transaction import Settings, Transaction
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import JobId, ScheduleId, format_job_id
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight, ResolvedInputs, parse_inputs
from rota.jobs.submission import DefaultEnvironment, JobOrigin, LockRequest, Submission, parse_delay
from rota.jobs.submit import DeferredSubmit, DuplicateSubmit, SubmitOutcome, build_spec, submit
from rota.kernel.artifacts import ArtifactNeed
from rota.kernel.job import Job, WorkspaceSpec
from rota.schedules.commands import decode_job, expand_job, find_readable_schedule, find_schedule
from rota.schedules.cron import MICROSECOND, parse_cron
from rota.schedules.model import (
    Fire,
    FireState,
    Overlap,
    Schedule,
    ScheduleStep,
    overlap_reason,
    plan_step,
    schedule_lock_key,
    should_restart_times,
)

log = logging.getLogger("rota.schedule")


class DueSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A due schedule as of its evaluation."""

    schedule: Schedule
    step: ScheduleStep
    job: Submission | None = None
    origin: JobOrigin = JobOrigin()
    refusal: str | None = None
    """Reason why no job can be made."""


def find_due_schedules(reader: Reader, *, now: datetime, noticed_at: datetime, limit: int) -> list[DueSchedule]:
    """Return due schedules with their next step, the longest overdue first."""
    return [_evaluate(reader, schedule, now, noticed_at) for schedule in reader.schedules.due(now, limit)]


def _evaluate(reader: Reader, schedule: Schedule, now: datetime, noticed_at: datetime) -> DueSchedule:
    """Evaluate one schedule. A damaged record fails only its own schedule, and is reported once."""
    if schedule.unreadable is not None:
        refusal = _format_data_error(schedule.unreadable)
        return DueSchedule(schedule=schedule, step=ScheduleStep(at=schedule.next_at, next_at=None), refusal=refusal)
    try:
        cron = parse_cron(schedule.cron, schedule.zone)
        first = schedule.next_at or now
        step = plan_step(cron, first, schedule.catch_up, now=now, noticed_at=noticed_at)
    except RotaError as error:
        return DueSchedule(
            schedule=schedule, step=ScheduleStep(at=schedule.next_at, next_at=None), refusal=_format_data_error(error)
        )
    if step.at is None:
        return DueSchedule(schedule=schedule, step=step)
    try:
        job, origin = expand_job(reader, decode_job(schedule, reader), schedule.id)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        return DueSchedule(schedule=schedule, step=step, refusal=error.message)
    except Exception as error:  # noqa: BLE001 - a damaged record fails only its own schedule
        return DueSchedule(schedule=schedule, step=step, refusal=_format_data_error(error))
    return DueSchedule(schedule=schedule, step=step, job=job, origin=origin)


def _format_data_error(error: Exception | str) -> str:
    return f"scheduler data error: {error}"


def fire(
    tx: Transaction,
    due_schedule: DueSchedule,
    default_environment: DefaultEnvironment,
    *,
    preflight: Preflight = EMPTY_PREFLIGHT,
    workspace: WorkspaceSpec | None = None,
) -> SubmitOutcome | None:
    """Take the step of a due schedule; return the outcome of its submit, if there was one."""
    schedule, step = due_schedule.schedule, due_schedule.step
    if tx.schedules.find(schedule.id) != schedule:
        return None
    if step.missed is not None:
        reason = "the scheduler was not running at the time"
        tx.schedules.record_missed(schedule, step.missed, now=tx.now, reason=reason)
    outcome: SubmitOutcome | None = None
    if step.at is not None and not tx.schedules.has_fire(schedule.id, step.at):
        record, outcome = _make_fire(tx, due_schedule, step.at, default_environment, preflight, workspace)
        tx.schedules.record_fire(schedule, record)
    tx.schedules.set_next_fire(schedule.id, step.next_at)
    return outcome


def _make_fire(
    tx: Transaction,
    due_schedule: DueSchedule,
    at: datetime,
    default_environment: DefaultEnvironment,
    preflight: Preflight,
    workspace: WorkspaceSpec | None,
) -> tuple[Fire, SubmitOutcome | None]:
    record = Fire(schedule=due_schedule.schedule.id, at=at, state=FireState.FIRED, recorded_at=tx.now)
    if due_schedule.job is None:
        return msgspec.structs.replace(record, state=FireState.FAILED, reason=due_schedule.refusal), None
    skip_reason = _overlap_reason(tx, due_schedule.schedule)
    if skip_reason is not None:
        return msgspec.structs.replace(record, state=FireState.SKIPPED, reason=skip_reason), None
    try:
        with tx.savepoint():
            outcome = _submit(
                tx,
                _add_queue_lock(due_schedule.job, due_schedule.schedule),
                due_schedule.origin,
                default_environment,
                preflight,
                workspace,
            )
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        return msgspec.structs.replace(record, state=FireState.FAILED, reason=error.message), None
    except Exception as error:
        log.exception("internal error: schedule %s made no job", due_schedule.schedule.name)
        return msgspec.structs.replace(record, state=FireState.FAILED, reason=_format_data_error(error)), None
    if isinstance(outcome, DuplicateSubmit):
        reason = f"{format_job_id(outcome.jobs[0])} has its unique key {due_schedule.job.unique}"
        return msgspec.structs.replace(record, state=FireState.SKIPPED, reason=reason), outcome
    return msgspec.structs.replace(record, job=_first_job(outcome)), outcome


def _first_job(outcome: SubmitOutcome) -> Any:
    return None if isinstance(outcome, DeferredSubmit) else outcome.jobs[0]


def _overlap_reason(tx: Transaction, schedule: Schedule) -> str | None:
    """Return why the overlap policy skips the time, or None. With `allow` no active jobs are read."""
    if schedule.overlap is Overlap.ALLOW:
        return None
    return overlap_reason(schedule.overlap, tx.schedules.active_jobs(schedule.id))


def _add_queue_lock(job: Submission, schedule: Schedule) -> Submission:
    """Add the lock that makes the jobs of a `queue_one` schedule run one by one. Edges would link these jobs forever: a
    rewind would include all later ones, and gc could remove none of them."""
    if schedule.overlap is not Overlap.QUEUE_ONE:
        return job
    return msgspec.structs.replace(job, locks=[*job.locks, LockRequest(key=schedule_lock_key(schedule.id))])


def _submit(
    tx: Transaction,
    job: Submission,
    origin: JobOrigin,
    default_environment: DefaultEnvironment,
    preflight: Preflight,
    workspace: WorkspaceSpec | None,
    *,
    actor: str | None = None,
) -> SubmitOutcome:
    workspaces = () if workspace is None else (workspace,)
    return submit(
        tx, [job], default_environment, actor=actor, preflight=preflight, workspaces=workspaces, origins=[origin]
    )


def preview_job(
    reader: Reader, schedule: Schedule, settings: Settings, default_environment: DefaultEnvironment, now: datetime
) -> tuple[Job, list[ArtifactNeed]] | None:
    """Return the job that the schedule would create now, and its needs, without probes. Return None if it would create
    no job."""
    try:
        expanded, origin = expand_job(reader, decode_job(schedule, reader), schedule.id)
        job = _add_queue_lock(expanded, schedule)
        cwd = job.cwd or default_environment.cwd
        needs, products = parse_inputs(job, cwd)
        spec = build_spec(
            settings,
            job,
            ResolvedInputs(needs=tuple(needs), products=tuple(products)),
            _preview_workspace(job),
            origin,
            cwd=cwd,
            environment=0,
            trace={},
        )
        new = NewJob(
            id=JobId(0),
            spec=spec,
            priority=job.priority or 0,
            not_before=parse_delay(job.delay, now),
            edges=(),
            is_ready=False,
            demand=settings.policy.pool_demand(spec),
            unique=job.unique,
        )
    except (StorageFull, StoreError):
        raise
    except RotaError:
        return None
    return new.to_job(now), [
        ArtifactNeed(artifact=need, scope="", missing_producer=job.missing_producer or need.definition.missing_producer)
        for need in needs
    ]


def _preview_workspace(job: Submission) -> WorkspaceSpec | None:
    if not job.worktree and not job.patch:
        return None
    base = (job.base or "HEAD") if job.worktree else None
    return WorkspaceSpec(repository="", base=base, patch=bool(job.patch))


def prepare_trigger(reader: Reader, name: str, params: dict[str, Any]) -> tuple[Schedule, Submission, JobOrigin]:
    """Return the job that a manual trigger makes; these params override those of the schedule."""
    schedule = find_readable_schedule(reader, name)
    job = decode_job(schedule, reader)
    job = msgspec.structs.replace(job, params={**job.params, **params})
    return schedule, *expand_job(reader, job, schedule.id)


def trigger(
    tx: Transaction,
    schedule: ScheduleId,
    job: Submission,
    origin: JobOrigin,
    default_environment: DefaultEnvironment,
    *,
    preflight: Preflight,
    workspace: WorkspaceSpec | None,
    actor: str | None,
) -> SubmitOutcome:
    """Fire a schedule by hand, even if it overlaps or is disabled. The regular times of the schedule do not change."""
    stored = find_schedule(tx, f"schedule-{schedule}")
    outcome = _submit(tx, _add_queue_lock(job, stored), origin, default_environment, preflight, workspace, actor=actor)
    if isinstance(outcome, DuplicateSubmit):
        return outcome
    at = tx.now
    while tx.schedules.has_fire(schedule, at):
        at += MICROSECOND
    fired = Fire(
        schedule=schedule, at=at, state=FireState.FIRED, job=_first_job(outcome), recorded_at=tx.now, is_manual=True
    )
    tx.schedules.record_fire(stored, fired, actor=actor)
    return outcome


def earlier_next_fire(schedule: Schedule, now: datetime) -> datetime | None:
    """Return the next time of a schedule if it is earlier than the stored one, else None. The stored time was computed
    while the clock was ahead, or is missing because the time zone could not be read."""
    if (
        not schedule.is_enabled
        or schedule.unreadable is not None
        or (schedule.next_at is not None and schedule.next_at <= now)
    ):
        return None
    try:
        expected = parse_cron(schedule.cron, schedule.zone).next_after(now)
    except RotaError:
        return None
    if expected is None or (schedule.next_at is not None and expected >= schedule.next_at):
        return None
    return expected


def find_misplaced_schedules(
    reader: Reader, *, now: datetime, set_back: timedelta, after: int, limit: int
) -> tuple[list[Schedule], int | None]:
    """Return the schedules of one page whose times are wrong since the clock was set back, and the id of the last
    schedule of the page."""
    page = reader.schedules.list_all(after=after, limit=limit)
    misplaced = [
        schedule
        for schedule in page
        if earlier_next_fire(schedule, now) is not None
        or should_restart_times(reader.schedules.newest_fire(schedule.id), now=now, set_back=set_back)
    ]
    return misplaced, page[-1].id if page else None


def correct_next_fire(tx: Transaction, schedule: Schedule, *, set_back: timedelta) -> None:
    """Set the next time by the corrected clock. A time that has fired does not fire again, unless the clock was so far
    ahead that it was wrong."""
    current = tx.schedules.find(schedule.id)
    if current is None:
        return
    if should_restart_times(tx.schedules.newest_fire(current.id), now=tx.now, set_back=set_back):
        tx.schedules.start_epoch(current.id)
    if (expected := earlier_next_fire(current, tx.now)) is not None:
        tx.schedules.set_next_fire(current.id, expected)
