"""`schedule`: add, change, enable, disable, remove. Changes affect later jobs only, never existing ones (INV-005)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.command.scheduled_job import change_job, check_job, decode_job, encode_job, expand_job
from rota.command.submission import Submission
from rota.core.cron import Cron, parse_cron, parse_zone
from rota.core.schedule import CatchUp, Overlap, Schedule
from rota.engine.transaction import Transaction
from rota.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RotaError,
    StorageFull,
    StoreError,
    error_path,
    escape_unprintable,
)
from rota.ids import ScheduleId, parse_schedule_id
from rota.naming import NAME_RULE, is_name
from rota.store.session import AnyReader


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to add."""

    name: str
    """Unique name."""
    cron: str
    """Cron expression: five fields, or a shortcut such as `@daily`."""
    tz: str = "UTC"
    """Time zone of the cron expression."""
    catch_up: CatchUp = CatchUp.LATEST
    """Times that fire later if no scheduler was running at the time."""
    overlap: Overlap = Overlap.ALLOW
    """Behavior at a time when an earlier job of the schedule is active."""
    enabled: bool = True
    """Whether its times fire."""
    job: Submission
    """Job to submit each time, as for `POST /api/jobs`."""


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a schedule; fields that are left out keep their values."""

    name: str | UnsetType = UNSET
    """New name."""
    cron: str | UnsetType = UNSET
    """Cron expression; its times count from now."""
    tz: str | UnsetType = UNSET
    """Time zone of the cron expression."""
    catch_up: CatchUp | UnsetType = UNSET
    """Times that fire later if no scheduler was running at the time."""
    overlap: Overlap | UnsetType = UNSET
    """Behavior at a time when an earlier job of the schedule is active."""
    job: dict[str, Any] | UnsetType = UNSET
    """Fields of the job to change; null resets a field to its default."""
    set_params: dict[str, Any] | UnsetType = UNSET
    """Params of the job to add or overwrite."""
    unset_params: list[str] | UnsetType = UNSET
    """Names of params of the job to remove."""


def add_schedule(tx: Transaction, request: ScheduleRequest, *, actor: str | None) -> tuple[Schedule, list[str]]:
    """Add a schedule; return it with warnings."""
    cron = _parse_cron(request.cron, request.tz)
    _check_name(tx, request.name)
    with error_path(".job"):
        warnings = check_job(tx, request.job)
    body, environment = encode_job(tx, request.job)
    schedule = Schedule(
        id=ScheduleId(tx.ids.allocate("schedule", 1)),
        name=request.name,
        cron=request.cron,
        zone=request.tz,
        catch_up=request.catch_up,
        overlap=request.overlap,
        body=body,
        environment=environment,
        is_enabled=request.enabled,
        effective_from=tx.now,
        next_at=cron.next_after(tx.now) if request.enabled else None,
        created_at=tx.now,
        changed_at=tx.now,
    )
    tx.schedules.add(schedule, actor=actor)
    return schedule, warnings


def change_schedule(
    tx: Transaction, name: str, change_request: ScheduleChange, *, actor: str | None
) -> tuple[Schedule, list[str], list[str]]:
    """Change a schedule; return it with the names of the changed fields and warnings. New times count from now. An
    unchanged job is not checked: a later change may be the one that fixes it."""
    before = find_readable_schedule(tx, name)
    old = decode_job(before, tx)
    job = apply_change(old, change_request)
    with _locate_job_errors(change_request):
        warnings = [*check_job(tx, job, old), *_warn_of_replacement(old, job)] if job != old else []
    if (
        change_request.name is not UNSET
        and old.name == job.name == before.name
        and "name" not in _job_fields(change_request)
    ):
        # A job that has the name of its schedule is renamed with it.
        job = msgspec.structs.replace(job, name=change_request.name)
    body, environment = encode_job(tx, job) if job != old else (before.body, before.environment)
    after = msgspec.structs.replace(
        before,
        name=_value_or(change_request.name, before.name),
        cron=_value_or(change_request.cron, before.cron),
        zone=_value_or(change_request.tz, before.zone),
        catch_up=_value_or(change_request.catch_up, before.catch_up),
        overlap=_value_or(change_request.overlap, before.overlap),
        body=body,
        environment=environment,
    )
    if after.name != before.name:
        _check_name(tx, after.name)
    fields = [field for field in Schedule.__struct_fields__ if getattr(after, field) != getattr(before, field)]
    if not fields:
        return before, [], []
    cron = _parse_cron(after.cron, after.zone)
    if (after.cron, after.zone) != (before.cron, before.zone):
        next_at = cron.next_after(tx.now) if before.is_enabled else None
        after = msgspec.structs.replace(after, effective_from=tx.now, next_at=next_at)
    after = msgspec.structs.replace(after, changed_at=tx.now)
    public_fields = [_PUBLIC_NAMES.get(field, field) for field in fields]
    tx.schedules.change(after, "changed", actor=actor, data={"fields": public_fields})
    return after, public_fields, warnings


def _parse_cron(expression: str, zone: str) -> Cron:
    with error_path(".tz"):
        parse_zone(zone)
    with error_path(".cron"):
        return parse_cron(expression, zone)


@contextmanager
def _locate_job_errors(change_request: ScheduleChange) -> Iterator[None]:
    """Set the path of an error about the job to the request field that caused it; three fields can change params."""
    try:
        yield
    except RotaError as error:
        if error.path == ".params" and "params" not in _job_fields(change_request):
            error.path = ".unset_params" if change_request.set_params is UNSET else ".set_params"
        else:
            error.at_path(".job")
        raise


def apply_change(job: Submission, change_request: ScheduleChange) -> Submission:
    set_params = {} if change_request.set_params is UNSET else change_request.set_params
    unset_params = () if change_request.unset_params is UNSET else change_request.unset_params
    return change_job(job, _job_fields(change_request), set_params, unset_params)


def _job_fields(change_request: ScheduleChange) -> dict[str, Any]:
    return {} if change_request.job is UNSET else change_request.job


def _warn_of_replacement(old: Submission, job: Submission) -> list[str]:
    if old.command and not job.command:
        return [f"template {job.template} replaces the command {shlex.join(old.command)}"]
    if old.template is not None and job.template is None:
        return [f"the command replaces template {old.template}; params stay"]
    return []


_PROBED_FIELDS = frozenset(
    ("template", "command", "cwd", "env", "needs", "produces", "pin", "worktree", "base", "patch", "with_diff")
)


def expand_request(reader: AnyReader, request: ScheduleRequest) -> Submission:
    return expand_job(reader, request.job, None)[0]


def expand_change(reader: AnyReader, name: str, change_request: ScheduleChange) -> tuple[Submission, Submission] | None:
    """Return the changed job as requested and as expanded, or None if the change needs no probe."""
    if not _PROBED_FIELDS & _job_fields(change_request).keys():
        return None
    try:
        job = apply_change(decode_job(find_schedule(reader, name), reader), change_request)
        return job, expand_job(reader, job, None)[0]
    except (StorageFull, StoreError):
        raise
    except RotaError:  # the change itself reports it
        return None


_PUBLIC_NAMES = {"zone": "tz", "body": "job", "environment": "env"}


def enable(tx: Transaction, name: str, *, actor: str | None) -> Schedule:
    """Enable a schedule. An enabled schedule does not change, so that due times stay due, unless it has no next time
    because its time zone could not be read."""
    before = find_readable_schedule(tx, name)
    if before.is_enabled and before.next_at is not None:
        return before
    next_at = parse_cron(before.cron, before.zone).next_after(tx.now)
    if before.is_enabled and next_at is None:
        return before
    after = msgspec.structs.replace(before, is_enabled=True, effective_from=tx.now, next_at=next_at, changed_at=tx.now)
    tx.schedules.change(after, "enabled", actor=actor)
    return after


def disable(tx: Transaction, name: str, *, actor: str | None) -> Schedule:
    before = find_readable_schedule(tx, name)
    if not before.is_enabled:
        return before
    after = msgspec.structs.replace(before, is_enabled=False, next_at=None, changed_at=tx.now)
    tx.schedules.change(after, "disabled", actor=actor)
    return after


def remove(tx: Transaction, name: str, *, actor: str | None) -> Schedule:
    """Remove a schedule; its jobs stay."""
    schedule = find_schedule(tx, name)
    tx.schedules.remove(schedule, now=tx.now, actor=actor)
    return schedule


def find_schedule(reader: AnyReader, name: str) -> Schedule:
    """Return a schedule by name or id."""
    schedule = reader.schedules.find_named(name)
    if schedule is None and _is_id(name):
        schedule = reader.schedules.find(parse_schedule_id(name))
    if schedule is None:
        raise NotFound(f"no such schedule: {escape_unprintable(name)}; `rota schedule list` shows all schedules")
    return schedule


def find_readable_schedule(reader: AnyReader, name: str) -> Schedule:
    """Return a schedule whose record can be used; raise `Conflict` for a damaged one."""
    schedule = find_schedule(reader, name)
    if schedule.unreadable is not None:
        raise Conflict(
            f"schedule {name} is unreadable: {schedule.unreadable}; `rota schedule remove {name}` removes it,"
            " then it can be added again"
        )
    return schedule


def _check_name(tx: Transaction, name: str) -> None:
    with error_path(".name"):
        if not is_name(name) or "/" in name or _is_id(name):
            raise InvalidInput(f"not a usable name of a schedule: {name!r}; use {NAME_RULE}, no / and not an id")
        if tx.schedules.find_named(name) is not None:
            raise Conflict(f"schedule {name} already exists; choose another name, or use `rota schedule change {name}`")


def _is_id(name: str) -> bool:
    try:
        parse_schedule_id(name)
    except InvalidInput:
        return False
    return True


def _value_or(value: Any, default: Any) -> Any:
    return default if value is UNSET else value
