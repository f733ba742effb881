"""`schedule`: add, change, enable, disable, remove. What it makes from then on changes, no job that is (INV-005)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.command.scheduled import changed, check, expanded, job_of, stored
from rota.command.submission import Submission
from rota.core.cron import Cron, cron_of, zone_of
from rota.core.schedule import CatchUp, Overlap, Schedule
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, StorageFull, StoreError, within
from rota.ids import ScheduleId, parse_schedule
from rota.names import NAME_RULE, is_name
from rota.store.session import Looking


class ScheduleWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as asked for."""

    name: str
    """What it is called; no other is."""
    cron: str
    """Its times: five fields, or `@daily` and the like."""
    tz: str = "UTC"
    """The time zone that they are of."""
    catch_up: CatchUp = CatchUp.LATEST
    """Which of the times fire that pass while no scheduler is there."""
    overlap: Overlap = Overlap.ALLOW
    """What becomes of a time while a job that it made is active."""
    enabled: bool = True
    """Whether its times fire."""
    job: Submission
    """What it asks for each time, as for `POST /api/jobs`."""


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall be another; what is not named stays."""

    name: str | UnsetType = UNSET
    """What it shall be called."""
    cron: str | UnsetType = UNSET
    """Its times; they count from now on."""
    tz: str | UnsetType = UNSET
    """The time zone that they are of."""
    catch_up: CatchUp | UnsetType = UNSET
    """Which of the times fire that pass while no scheduler is there."""
    overlap: Overlap | UnsetType = UNSET
    """What becomes of a time while a job that it made is active."""
    job: dict[str, Any] | UnsetType = UNSET
    """Fields of the job; null for what it is when nothing is said."""
    set_params: dict[str, Any] | UnsetType = UNSET
    """Params to add to those of its job."""
    unset_params: list[str] | UnsetType = UNSET
    """Params to take from them."""


def add(work: Work, wanted: ScheduleWanted, *, actor: str | None) -> tuple[Schedule, list[str]]:
    """With what there is to warn of."""
    cron = _cron(wanted.cron, wanted.tz)
    _check_name(work, wanted.name)
    with within(".job"):
        warnings = check(work, wanted.job)
    body, surroundings = stored(work, wanted.job)
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
    return schedule, warnings


def change(
    work: Work, name: str, wanted: ScheduleChange, *, actor: str | None
) -> tuple[Schedule, list[str], list[str]]:  # fmt: skip
    """What it is now, which of its fields are others, and what there is to warn of. New times count from now on. What
    nobody asks for now is not checked: it may be what is to be mended."""
    before = find(work.session, name)
    old = job_of(before, work.session)
    job = changed_job(old, wanted)
    with _of_job(wanted):
        warnings = [*check(work, job, old), *_replaced(old, job)] if job != old else []
    if wanted.name is not UNSET and old.name == job.name == before.name and "name" not in _fields(wanted):
        job = msgspec.structs.replace(job, name=wanted.name)  # its jobs are called as it is, unless it was said how
    body, surroundings = stored(work, job) if job != old else (before.body, before.surroundings)
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
        return before, [], []
    cron = _cron(after.cron, after.zone)
    if (after.cron, after.zone) != (before.cron, before.zone):
        next_at = cron.next_after(work.now) if before.is_enabled else None
        after = msgspec.structs.replace(after, since=work.now, next_at=next_at)
    after = msgspec.structs.replace(after, changed_at=work.now)
    shown = [_SHOWN.get(field, field) for field in fields]
    work.session.change_schedule(after, "changed", actor=actor, data={"fields": shown})
    return after, shown, warnings


def _cron(expression: str, zone: str) -> Cron:
    with within(".tz"):
        zone_of(zone)
    with within(".cron"):
        return cron_of(expression, zone)


@contextmanager
def _of_job(wanted: ScheduleChange) -> Iterator[None]:
    """What is refused of it is said of where it is changed: params can be in three places."""
    try:
        yield
    except RotaError as error:
        if error.path == ".params" and "params" not in _fields(wanted):
            error.path = ".unset_params" if wanted.set_params is UNSET else ".set_params"
        else:
            error.under(".job")
        raise


def changed_job(job: Submission, wanted: ScheduleChange) -> Submission:
    set_params = {} if wanted.set_params is UNSET else wanted.set_params
    unset_params = () if wanted.unset_params is UNSET else wanted.unset_params
    return changed(job, _fields(wanted), set_params, unset_params)


def _fields(wanted: ScheduleChange) -> dict[str, Any]:
    return {} if wanted.job is UNSET else wanted.job


def _replaced(old: Submission, job: Submission) -> list[str]:
    if old.command and not job.command:
        return [f"template {job.template} takes the place of the command {shlex.join(old.command)}"]
    if old.template is not None and job.template is None:
        return [f"the command takes the place of template {old.template}; params stay"]
    return []


_LOOKED_AT = frozenset(
    ("template", "command", "cwd", "env", "needs", "produces", "pin", "worktree", "base", "patch", "with_diff")
)


def made(look: Looking, wanted: ScheduleWanted) -> Submission:
    return expanded(look, wanted.job, None)[0]


def made_anew(look: Looking, name: str, wanted: ScheduleChange) -> tuple[Submission, Submission] | None:
    """The job as it is asked for after the change, and as it is made, if there is anything in it that has to be looked
    at outside."""
    if not _LOOKED_AT & _fields(wanted).keys():
        return None
    try:
        job = changed_job(job_of(find(look, name), look), wanted)
        return job, expanded(look, job, None)[0]
    except (StorageFull, StoreError):
        raise
    except RotaError:  # said when it is changed, where it matters
        return None


_SHOWN = {"zone": "tz", "body": "job", "surroundings": "env"}


def enable(work: Work, name: str, *, actor: str | None) -> Schedule:
    """Again, if it is so already, nothing happens: what is due stays due. One that had no time any more, because its
    zone could not be read, has one again."""
    before = find(work.session, name)
    if before.is_enabled and before.next_at is not None:
        return before
    next_at = cron_of(before.cron, before.zone).next_after(work.now)
    if before.is_enabled and next_at is None:
        return before
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


def _check_name(work: Work, name: str) -> None:
    with within(".name"):
        if not is_name(name) or "/" in name or _is_id(name):
            raise InvalidInput(f"not a usable name of a schedule: {name!r}; use {NAME_RULE}, no / and not an id")
        if work.session.schedule_named(name) is not None:
            raise Conflict(
                f"there is a schedule {name} already; choose another name, or use `rota schedule change {name}`"
            )


def _is_id(name: str) -> bool:
    try:
        parse_schedule(name)
    except InvalidInput:
        return False
    return True


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is UNSET else value
