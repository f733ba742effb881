"""`schedule`: add, change, enable, disable, remove. What it makes from then on changes, no job that is (INV-005)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.command.expand import expand, find_usable, origin_of
from rota.command.field import check_fields, check_rest
from rota.command.submission import Origin, Submission
from rota.command.webhook import hook_of
from rota.core.cron import cron_of
from rota.core.schedule import CatchUp, Overlap, Schedule
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import ScheduleId, parse_schedule
from rota.names import NAME_RULE, is_name
from rota.store.session import Looking


class ScheduleWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    cron: str
    tz: str = "UTC"
    catch_up: CatchUp = CatchUp.LATEST
    overlap: Overlap = Overlap.ALLOW
    enabled: bool = True
    job: Submission


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall be another; what is not named stays."""

    name: str | UnsetType = UNSET
    cron: str | UnsetType = UNSET
    tz: str | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    job: dict[str, Any] | UnsetType = UNSET
    """Fields of the job; null for what it is when nothing is said."""
    set_params: dict[str, Any] | UnsetType = UNSET
    unset_params: list[str] | UnsetType = UNSET


_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Submission())
_NOT_HERE = {
    "after": "it would come after the same job each time; let the job's command begin with what is to be done first",
    "group": "a group ends, and a schedule goes on",
    "local": "it is for the jobs of a batch",
}


def add(work: Work, wanted: ScheduleWanted, *, actor: str | None) -> Schedule:
    cron = cron_of(wanted.cron, wanted.tz)
    _check_name(work, wanted.name)
    _check_job(work, wanted.job)
    body, surroundings = _stored(work, wanted.job)
    schedule = Schedule(
        id=ScheduleId(work.session.take("schedule", 1)),
        name=wanted.name,
        cron=wanted.cron,
        zone=wanted.tz,
        catch_up=wanted.catch_up,
        overlap=wanted.overlap,
        body=body,
        surroundings=surroundings,
        is_enabled=wanted.enabled,
        since=work.now,
        next_at=cron.next_after(work.now) if wanted.enabled else None,
        created_at=work.now,
        changed_at=work.now,
    )
    work.session.add_schedule(schedule, actor=actor)
    return schedule


def change(work: Work, name: str, wanted: ScheduleChange, *, actor: str | None) -> tuple[Schedule, list[str]]:
    """What it is now, and which of its fields are others. New times count from now on."""
    before = find(work.session, name)
    job = _changed_job(job_of(before, work.session), wanted)
    _check_job(work, job)
    body, surroundings = _stored(work, job)
    after = msgspec.structs.replace(
        before,
        name=_or(wanted.name, before.name),
        cron=_or(wanted.cron, before.cron),
        zone=_or(wanted.tz, before.zone),
        catch_up=_or(wanted.catch_up, before.catch_up),
        overlap=_or(wanted.overlap, before.overlap),
        body=body,
        surroundings=surroundings,
    )
    if after.name != before.name:
        _check_name(work, after.name)
    fields = [field for field in Schedule.__struct_fields__ if getattr(after, field) != getattr(before, field)]
    if not fields:
        return before, []
    cron = cron_of(after.cron, after.zone)
    if (after.cron, after.zone) != (before.cron, before.zone):
        next_at = cron.next_after(work.now) if before.is_enabled else None
        after = msgspec.structs.replace(after, since=work.now, next_at=next_at)
    after = msgspec.structs.replace(after, changed_at=work.now)
    shown = [_SHOWN.get(field, field) for field in fields]
    work.session.change_schedule(after, "changed", actor=actor, data={"fields": shown})
    return after, shown


_SHOWN = {"zone": "tz", "body": "job", "surroundings": "env"}


def enable(work: Work, name: str, *, actor: str | None) -> Schedule:
    """Again, if it is so already, nothing happens: what is due stays due."""
    before = find(work.session, name)
    if before.is_enabled:
        return before
    next_at = cron_of(before.cron, before.zone).next_after(work.now)
    after = msgspec.structs.replace(
        before, is_enabled=True, since=work.now, next_at=next_at, changed_at=work.now
    )  # fmt: skip
    work.session.change_schedule(after, "enabled", actor=actor)
    return after


def disable(work: Work, name: str, *, actor: str | None) -> Schedule:
    before = find(work.session, name)
    if not before.is_enabled:
        return before
    after = msgspec.structs.replace(before, is_enabled=False, next_at=None, changed_at=work.now)
    work.session.change_schedule(after, "disabled", actor=actor)
    return after


def remove(work: Work, name: str, *, actor: str | None) -> Schedule:
    """Its jobs stay."""
    schedule = find(work.session, name)
    work.session.remove_schedule(schedule, now=work.now, actor=actor)
    return schedule


def find(look: Looking, name: str) -> Schedule:
    """By name, or by id."""
    found = look.schedule_named(name)
    if found is None and _is_id(name):
        found = look.schedule(parse_schedule(name))
    if found is None:
        raise NotFound(f"no such schedule: {name}; `rota schedule list` shows what there is")
    return found


def job_of(schedule: Schedule, look: Looking) -> Submission:
    """What it asks for each time, in the surroundings of who made it."""
    job = msgspec.json.decode(schedule.body, type=Submission)
    if schedule.surroundings is None:
        return job
    return msgspec.structs.replace(job, env=dict(look.variables(schedule.surroundings)))


def expanded(look: Looking, job: Submission, schedule: ScheduleId | None) -> tuple[Submission, Origin]:
    """The job as it is made, from its template where it names one, and where it comes from."""
    if job.template is None:
        return job, Origin(schedule=schedule)
    template = find_usable(look, job.template)
    return expand(job, template), origin_of(job, template, schedule)


def _check_name(work: Work, name: str) -> None:
    if not is_name(name) or "/" in name or _is_id(name):
        raise InvalidInput(f"not a usable name of a schedule: {name!r}; use {NAME_RULE}, no / and not an id")
    taken = work.session.schedule_named(name)
    if taken is not None:
        raise Conflict(f"there is a schedule {name} already; choose another name, or use `rota schedule change {name}`")


def _is_id(name: str) -> bool:
    try:
        parse_schedule(name)
    except InvalidInput:
        return False
    return True


def _check_job(work: Work, wanted: Submission) -> None:
    """As far as it can be known now: what it needs outside is looked at each time."""
    for field, why in _NOT_HERE.items():
        if getattr(wanted, field) != getattr(Submission(), field):
            raise InvalidInput(f"{field} is not for a job of a schedule: {why}")
    job, _ = expanded(work.session, wanted, None)
    check_fields(job)
    check_rest(job, work.settings.retry, work.now)
    hook_of(job, work.settings.webhooks)


def _stored(work: Work, job: Submission) -> tuple[str, int | None]:
    """Its body, without what goes without saying, and where its whole environment is stored, if it brings one."""
    surroundings = None
    if not job.inherit_env:
        surroundings = work.session.surroundings(job.env)
        job = msgspec.structs.replace(job, env={})
    said = {name: value for name, value in msgspec.to_builtins(job).items() if value != _DEFAULTS[name]}
    return msgspec.json.encode(said).decode(), surroundings


def _changed_job(job: Submission, wanted: ScheduleChange) -> Submission:
    fields = {} if wanted.job is UNSET else wanted.job
    said = {**msgspec.to_builtins(job), **fields}
    if wanted.set_params is not UNSET or wanted.unset_params is not UNSET:
        gone = () if wanted.unset_params is UNSET else wanted.unset_params
        new = {} if wanted.set_params is UNSET else wanted.set_params
        said["params"] = {key: value for key, value in (said["params"] or {}).items() if key not in gone} | new
    said = {name: _DEFAULTS.get(name) if value is None else value for name, value in said.items()}
    try:
        return msgspec.convert(said, Submission)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the job cannot be used: {error}") from error


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is UNSET else value
