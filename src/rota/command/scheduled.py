"""The job that a schedule makes each time: as it is asked for, changed and checked.

What every time would fail on is refused when it is asked for, as a submit would be. What was there before a change and
can no longer be used (its template is archived by now) is only said: the change may be of something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.command.expand import as_asked, expand, find_usable, origin_of, strange_params
from rota.command.field import check_fields, check_rest
from rota.command.submission import Origin, Submission
from rota.command.survey import check_named
from rota.command.webhook import hook_of
from rota.core.job import Spec
from rota.core.schedule import Schedule
from rota.core.trace import NAMES
from rota.core.unique import check_key
from rota.engine.work import Work
from rota.errors import InvalidInput, RotaError, StorageFull, StoreError
from rota.ids import ScheduleId
from rota.store.session import Looking
from rota.wire.misfit import misfit

_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Submission())
_NOT_HERE = {
    "after": "it would come after the same job each time; let the job's command begin with what is to be done first",
    "group": "a group ends, and a schedule goes on",
    "local": "it is for the jobs of a batch",
}
_STAND_IN = ["true"]


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


def stored(work: Work, job: Submission) -> tuple[str, int | None]:
    """Its body, without what goes without saying, and where its whole environment is stored, if it brings one. The
    trace of who made it ends with him: what it makes later is no part of that."""
    surroundings = None
    if not job.inherit_env:
        kept = {name: value for name, value in job.env.items() if name not in NAMES or name in job.env_given}
        surroundings = work.session.surroundings(kept)
        job = msgspec.structs.replace(job, env={})
    said = {name: value for name, value in msgspec.to_builtins(job).items() if value != _DEFAULTS[name]}
    return msgspec.json.encode(said).decode(), surroundings


def changed(
    job: Submission, fields: Mapping[str, Any], set_params: Mapping[str, Any], unset_params: Sequence[str]
) -> Submission:
    """A template takes the place of a command, and a command that of a template."""
    said = {**msgspec.to_builtins(job), **fields}
    if fields.get("template") is not None and "command" not in fields:
        said["command"] = []
    if fields.get("command") and "template" not in fields:
        said["template"] = None
    if set_params or unset_params:
        kept = {key: value for key, value in (said["params"] or {}).items() if key not in unset_params}
        said["params"] = {**kept, **set_params}
    said = {name: _DEFAULTS.get(name) if value is None else value for name, value in said.items()}
    try:
        return msgspec.convert(said, Submission)
    except msgspec.ValidationError as error:
        raise misfit("the job", error, at=".job", of=said) from None


def check(work: Work, job: Submission, before: Submission | None = None) -> list[str]:
    """What there is to warn of. As far as it can be known here: what is outside is looked at by who can wait for it."""
    for field, why in _NOT_HERE.items():
        if getattr(job, field) != getattr(Submission(), field):
            raise InvalidInput(f"{field} is not for a job of a schedule: {why}").under(f".{field}")
    try:
        made, _ = expanded(work.session, job, None)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        if before is None or _refusal(work.session, before) != error.message:
            raise
        _check_made(work, _without_template(job))
        return [f"as before, its times fail: {error.message}"]
    with as_asked(job):
        _check_made(work, made)
    return [*_strange(work.session, job), *_pool_warnings(work, made)]


def _refusal(look: Looking, job: Submission) -> str | None:
    """Why nothing can be made of it as things are."""
    try:
        expanded(look, job, None)
    except (StorageFull, StoreError):
        raise
    except RotaError as error:
        return error.message
    return None


def _check_made(work: Work, job: Submission) -> None:
    check_fields(job)
    check_rest(job, work.settings.retry, work.now)
    hook_of(job, work.settings.webhooks)
    check_named(job, job.cwd or "/")
    check_key(job.unique)


def _without_template(job: Submission) -> Submission:
    """Its own fields, with something in the place of what the template has to bring."""
    flow = job.phase if job.flow is None else job.flow
    return msgspec.structs.replace(job, template=None, command=_STAND_IN, flow=flow)


def _strange(look: Looking, job: Submission) -> list[str]:
    return [] if job.template is None else strange_params(job, find_usable(look, job.template))


def _pool_warnings(work: Work, job: Submission) -> list[str]:
    spec = Spec(
        command=tuple(job.command), cwd=job.cwd or "/", surroundings=0, name=job.name, type=job.type, params=job.params,
        flow=job.flow, phase=job.phase, target=job.target, pools=job.pools,
    )  # fmt: skip
    return list(work.settings.limits.warnings(work.settings.policy.draws(spec), spec.pools))
