"""The job that a schedule submits each time: its encoding, changes and checks.

An error that every fire would hit is refused with the request, as for a submit. An error that existed before a change,
such as an archived template, is only a warning: the change may concern something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.command.expand import (
    blame_template,
    expand,
    find_usable_template,
    make_origin,
    template_sources,
    warn_undeclared_params,
)
from rota.command.field import check_fields, check_limits
from rota.command.preflight import parse_inputs
from rota.command.submission import JobOrigin, Submission
from rota.command.webhook import make_job_webhook
from rota.core.job import Spec
from rota.core.schedule import Schedule
from rota.core.trace import VARIABLE_NAMES
from rota.core.unique import check_unique_key
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, RotaError, StorageFull, StoreError
from rota.ids import ScheduleId
from rota.store.session import AnyReader
from rota.wire.validation_error import make_validation_error

_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Submission())
_REFUSED_FIELDS = {
    "after": "every job would depend on the same job; let the command begin with the first step",
    "group": "a group finishes, but a schedule continues",
    "local": "only jobs of a batch have local names",
}
_PLACEHOLDER_COMMAND = ["true"]


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
            name: value for name, value in job.env.items() if name not in VARIABLE_NAMES or name in job.explicit_env
        }
        environment = tx.jobs.environment_id(variables)
        job = msgspec.structs.replace(job, env={})
    body = {name: value for name, value in msgspec.to_builtins(job).items() if value != _DEFAULTS[name]}
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
    body = {name: _DEFAULTS.get(name) if value is None else value for name, value in body.items()}
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
