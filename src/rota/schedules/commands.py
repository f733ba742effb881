"""Commands on schedules: add, change, enable, disable, remove.

A change affects later jobs only, never existing ones (INV-005).

An error of the job that every fire would hit is refused with the request, as for a submit. An error that existed
before a change, such as an archived template, is only a warning: the change may concern something else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.db.session import AnyReader
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
from rota.jobs.preflight import parse_inputs
from rota.jobs.submission import JobOrigin, Submission, check_fields, check_limits
from rota.kernel.job import Spec
from rota.kernel.queue import check_unique_key
from rota.kernel.trace import TRACE_VARIABLES
from rota.naming import NAME_RULE, is_name, quote_unusable
from rota.schedules.cron import Cron, parse_cron, parse_zone
from rota.schedules.model import CatchUp, Overlap, Schedule
from rota.schema_types import make_validation_error
from rota.templates.expand import (
    blame_template,
    expand,
    find_usable_template,
    make_origin,
    template_sources,
    warn_undeclared_params,
)
from rota.webhooks.commands import make_job_webhook

_JOB_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Submission())
_REFUSED_FIELDS = {
    "after": "every job would depend on the same job; let the command begin with the first step",
    "group": "a group finishes, but a schedule continues",
    "local": "only jobs of a batch have local names",
}
_PLACEHOLDER_COMMAND = ["true"]
_PROBED_FIELDS = frozenset(
    ("template", "command", "cwd", "env", "needs", "produces", "pin", "worktree", "base", "patch", "with_diff")
)
_PUBLIC_NAMES = {"zone": "tz", "body": "job", "environment": "env"}


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


def _warn_of_replacement(old: Submission, job: Submission) -> list[str]:
    if old.command and not job.command:
        return [f"template {job.template} replaces the command {shlex.join(old.command)}"]
    if old.template is not None and job.template is None:
        return [f"the command replaces template {old.template}; params stay"]
    return []


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
            quoted = quote_unusable(name)
            raise InvalidInput(f"not a usable name of a schedule: {quoted}; use {NAME_RULE}, no / and not an id")
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


def apply_change(job: Submission, change_request: ScheduleChange) -> Submission:
    set_params = {} if change_request.set_params is UNSET else change_request.set_params
    unset_params = () if change_request.unset_params is UNSET else change_request.unset_params
    return change_job(job, _job_fields(change_request), set_params, unset_params)


def _job_fields(change_request: ScheduleChange) -> dict[str, Any]:
    return {} if change_request.job is UNSET else change_request.job


def decode_job(schedule: Schedule, reader: AnyReader) -> Submission:
    """Return the job of a schedule, with the environment of the client that added it."""
    try:
        job = msgspec.json.decode(schedule.body, type=Submission)
    except msgspec.DecodeError as error:
        name = schedule.name
        raise Conflict(
            f"scheduler data error: the job of schedule {name} cannot be read: {error};"
            f" `rota schedule remove {name}` removes it"
        ) from None
    if schedule.environment is None:
        return job
    return msgspec.structs.replace(job, env=dict(reader.jobs.environment_variables(schedule.environment)))


def expand_job(reader: AnyReader, job: Submission, schedule: ScheduleId | None) -> tuple[Submission, JobOrigin]:
    """Return the job, expanded from its template if it names one, and its origin."""
    if job.template is None:
        return job, JobOrigin(schedule=schedule)
    template = find_usable_template(reader, job.template)
    expanded, origin = expand(job, template), make_origin(job, template, schedule)
    return expanded, msgspec.structs.replace(origin, sources=template_sources(job, expanded, template))


def encode_job(tx: Transaction, job: Submission) -> tuple[str, int | None]:
    """Return the job as JSON without default values, and the id of its stored environment if it has a whole one. The
    trace of the request is dropped: later jobs are not part of it."""
    environment = None
    if not job.inherit_env:
        variables = {
            name: value for name, value in job.env.items() if name not in TRACE_VARIABLES or name in job.explicit_env
        }
        environment = tx.jobs.environment_id(variables)
        job = msgspec.structs.replace(job, env={})
    body = {name: value for name, value in msgspec.to_builtins(job).items() if value != _JOB_DEFAULTS[name]}
    return msgspec.json.encode(body).decode(), environment


def change_job(
    job: Submission, fields: Mapping[str, Any], set_params: Mapping[str, Any], unset_params: Sequence[str]
) -> Submission:
    """Return the job with changed fields. A new template replaces the command, and a new command the template."""
    body = {**msgspec.to_builtins(job), **fields}
    if fields.get("template") is not None and "command" not in fields:
        body["command"] = []
    if fields.get("command") and "template" not in fields:
        body["template"] = None
    if set_params or unset_params:
        kept = {key: value for key, value in (body["params"] or {}).items() if key not in unset_params}
        body["params"] = {**kept, **set_params}
    body = {name: _JOB_DEFAULTS.get(name) if value is None else value for name, value in body.items()}
    try:
        return msgspec.convert(body, Submission)
    except msgspec.ValidationError as error:
        raise make_validation_error("the job", error, prefix=".job") from None


def check_job(tx: Transaction, job: Submission, previous: Submission | None = None) -> list[str]:
    """Check the job and return warnings. Git and files are not probed here; the caller does it outside of the turn."""
    for field, reason in _REFUSED_FIELDS.items():
        if getattr(job, field) != getattr(Submission(), field):
            raise InvalidInput(f"{field} is not for a job of a schedule: {reason}").at_path(f".{field}")
    try:
        expanded, _ = expand_job(tx, job, None)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        if previous is None or _find_refusal(tx, previous) != error.message:
            raise
        _check_expanded(tx, _drop_template(job))
        return [f"its times fail as before: {error.message}"]
    with blame_template(job):
        _check_expanded(tx, expanded)
    return [*_warn_undeclared_params(tx, job), *_warn_of_pools(tx, expanded)]


def _find_refusal(reader: AnyReader, job: Submission) -> str | None:
    """Return why the job cannot be expanded, or None if it can."""
    try:
        expand_job(reader, job, None)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        return error.message
    return None


def _check_expanded(tx: Transaction, job: Submission) -> None:
    check_fields(job)
    check_limits(job, tx.settings.retry, tx.now)
    make_job_webhook(job, tx.settings.webhooks)
    parse_inputs(job, job.cwd or "/")
    check_unique_key(job.unique)


def _drop_template(job: Submission) -> Submission:
    """Return the job with its own fields and a placeholder for the command of its template."""
    flow = job.phase if job.flow is None else job.flow
    return msgspec.structs.replace(job, template=None, command=_PLACEHOLDER_COMMAND, flow=flow)


def _warn_undeclared_params(reader: AnyReader, job: Submission) -> list[str]:
    return [] if job.template is None else warn_undeclared_params(job, find_usable_template(reader, job.template))


def _warn_of_pools(tx: Transaction, job: Submission) -> list[str]:
    spec = Spec(
        command=tuple(job.command),
        cwd=job.cwd or "/",
        environment=0,
        name=job.name,
        type=job.type,
        params=job.params,
        flow=job.flow,
        phase=job.phase,
        target=job.target,
        pools=job.pools,
    )
    return list(tx.settings.pool_sizes.warnings(tx.settings.policy.pool_demand(spec), spec.pools))
