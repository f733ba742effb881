"""What becomes of a submit that names a template: the same submit with everything the template says filled in.

The submit's own fields win over the template's; `locks`, `needs`, `produces`, `pools`, `env` and `webhooks` are joined.
Params are the template's defaults under the submit's (under a schedule's, where one fires), by key. What comes out is a
submit like any other, so a job of a template is checked and stored as one typed by hand, and the template is never
looked up again (INV-005).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NoReturn, Protocol

import msgspec

from rota.command.schema import check_params
from rota.command.submission import LockWanted, Origin, Submission
from rota.core.template import Template, TemplateBody, fill, fill_all, locks_of, merged, recipe_of
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, within
from rota.ids import ScheduleId, TemplateId, parse_template, show_template
from rota.store.session import Looking

_PLAIN = ("type", "priority", "missing_producer", "phase", "parallelizable", "timeout", "idle_timeout", "skip_if",
          "worktree", "patch")  # fmt: skip
"""Fields without places of which the submit's is taken where it has one."""
_PLACED = ("unique", "target", "flow")
_PLACE = re.compile(r"(?:\.jobs\[(?P<job>\d+)\])?\.(?P<field>\w+)(?:\[(?P<n>\d+)\])?")
"""A field of a job, in a path."""


class Asked(Protocol):
    """A submit, or another like it."""

    @property
    def template(self) -> str | None: ...


class Expanded(msgspec.Struct, frozen=True, kw_only=True):
    """The submits of one request, with what their templates say."""

    wanted: Sequence[Submission]
    origins: Sequence[Origin]
    warnings: list[str]


def expand_all(looking: Looking, wanted: Sequence[Submission]) -> Expanded:
    """Each that names a template as it makes it; the others as they are."""
    named = find_named(looking, [member.template for member in wanted if member.template is not None])
    made: list[Submission] = []
    origins: list[Origin] = []
    warnings: dict[str, None] = {}
    known: dict[object, Origin] = {}
    for n, member in enumerate(wanted):
        if member.template is None:
            made.append(member)
            origins.append(Origin())
            continue
        with within(f".jobs[{n}]"):
            template = usable(member.template, named[member.template], looking)
            made.append(expand(member, template))
        alike = (member.template, member.name is None, *(getattr(member, name) is None for name in _PLACED))
        if alike not in known:
            known[alike] = origin_of(member, template)
        origins.append(known[alike])
        warnings.update(dict.fromkeys(strange_params(member, template)))
    return Expanded(wanted=made, origins=origins, warnings=list(warnings))


def find_usable(looking: Looking, asked: str) -> Template:
    """By name or id; what cannot be used is refused."""
    return usable(asked, find_named(looking, [asked])[asked], looking)


def find_named(looking: Looking, asked: Sequence[str]) -> dict[str, Template | None]:
    """The templates of these names or ids, in use or not."""
    ids = {text: number for text in asked if (number := id_of(text)) is not None}
    by_id = looking.templates_by_id(sorted(set(ids.values())))
    by_name = looking.templates_by_name(sorted(set(asked) - ids.keys()))
    return {text: by_id.get(ids[text]) if text in ids else by_name.get(text) for text in asked}


def find(looking: Looking, asked: str) -> Template:
    """By name or id, archived or not."""
    found = find_named(looking, [asked])[asked]
    if found is None:
        _refuse_unknown(asked, looking)
    return found


def id_of(text: str) -> TemplateId | None:
    try:
        return parse_template(text)
    except InvalidInput:
        return None


def usable(asked: str, template: Template | None, looking: Looking) -> Template:
    with within(".template"):
        if template is None:
            _refuse_unknown(asked, looking)
        if template.archived_at is not None:
            raise Conflict(
                f"template {template.name} is archived (since {_day(template.archived_at)}); unarchive it with"
                f" `rota template unarchive {_name(template, asked)}`, or use another"
            )
    return template


def _name(template: Template, asked: str) -> str:
    return template.name if id_of(asked) is None else show_template(template.id)


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _refuse_unknown(asked: str, looking: Looking) -> NoReturn:
    names = looking.template_names()
    near = get_close_matches(asked, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "`rota template list` shows what there is"
    if not names:
        hint = "there is none yet: `rota template example` prints one to start from"
    raise NotFound(f"no such template: {asked}; {hint}")


def expand(wanted: Submission, template: Template) -> Submission:
    """The submit as its template makes it, checked by the template's schema."""
    body = template.body
    if wanted.command:
        raise InvalidInput(
            f"template {template.name} brings its own command: leave out yours, or submit it without a"
            " template; what varies from job to job is a param"
        ).under(".command")
    if not body.command:
        said = f"template {template.name} has no command: {body.description or 'change it'}"
        raise InvalidInput(said).under(".template")
    params = merged(body.default_params, wanted.params)
    with within(".params"):
        check_params(body.params_schema, params)
        return _filled_in(wanted, body, params)


def _filled_in(wanted: Submission, body: TemplateBody, params: dict[str, Any]) -> Submission:
    declared = body.declared
    own = {name: getattr(wanted, name) for name in _PLAIN if getattr(wanted, name) is not None}
    plain = {name: getattr(body, name) for name in _PLAIN if name not in own}
    placed = {name: _filled(getattr(body, name), params, declared) for name in _PLACED if getattr(wanted, name) is None}
    worktree = body.worktree if wanted.worktree is None else wanted.worktree
    own_policy = wanted.retry is not None
    return msgspec.structs.replace(
        wanted,
        command=fill_all(body.command, params, declared),
        params=params,
        name=wanted.name if wanted.name is not None else _filled(body.job_name, params, declared),
        **plain,
        **placed,
        retry=wanted.retry if own_policy else body.retry,
        retries=wanted.retries if wanted.retries is not None or own_policy else body.retries,
        base=wanted.base if wanted.base is not None or not worktree else body.base,
        pools={**body.pools, **wanted.pools},
        locks=[*wanted.locks, *_locks(body, params, declared)],
        needs=_joined(wanted.needs, fill_all(body.needs, params, declared)),
        produces=_joined(wanted.produces, fill_all(body.produces, params, declared)),
        env=_env(body, wanted),
        webhooks=_joined(wanted.webhooks, body.webhooks),
        webhook_events=wanted.webhook_events or list(body.webhook_events),
    )


def _filled(text: str | None, params: Mapping[str, object], declared: frozenset[str]) -> str | None:
    return None if text is None else fill(text, params, declared)


def _locks(body: TemplateBody, params: Mapping[str, object], declared: frozenset[str]) -> list[LockWanted]:
    return [LockWanted(key=fill(lock.key, params, declared), mode=lock.mode) for lock in locks_of(body)]


def _joined(own: Sequence[str], others: Iterable[str]) -> list[str]:
    """Its own stay where they are, so that what is refused is found there."""
    return [*own, *(each for each in others if each not in own)]


class as_asked:  # noqa: N801 - used as a word: with as_asked(…)
    """What is refused of what was made of these is said of what they say themselves; where a template has said it, of
    their naming it. A class for the sake of speed, as `within` is."""

    def __init__(self, *wanted: Asked) -> None:
        self._wanted = wanted

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, RotaError):
            return
        found = _PLACE.match(error.path)
        if found is not None and not _is_own(self._wanted[int(found["job"] or 0)], found["field"], found["n"]):
            error.path = f"{error.path[: found.start('field')]}template"


def _is_own(wanted: Asked, field: str, n: str | None) -> bool:
    if wanted.template is None or field in ("template", "params"):
        return True
    said = getattr(wanted, field, None)
    return said not in (None, [], {}) if n is None else int(n) < len(said or ())


def _env(body: TemplateBody, wanted: Submission) -> dict[str, str]:
    """Where the submit carries its caller's whole environment, only what was asked for by name was meant."""
    if wanted.inherit_env:
        return {**body.env, **wanted.env}
    given = {name: wanted.env[name] for name in wanted.env_given if name in wanted.env}
    return {**wanted.env, **body.env, **given}


def origin_of(wanted: Submission, template: Template, schedule: ScheduleId | None = None) -> Origin:
    """Where the job comes from that `expand` makes of this submit."""
    own = frozenset(name for name in _PLACED if getattr(wanted, name) is not None)
    recipe = recipe_of(template.body, has_own_name=wanted.name is not None, own=own)
    return Origin(template=template.id, schedule=schedule, recipe=recipe)


def strange_params(wanted: Submission, template: Template) -> list[str]:
    """They reach the child all the same, so they are only said."""
    declared = template.body.declared
    strange = [name for name in wanted.params if name not in declared] if declared else []
    return [
        f"template {template.name} declares no param {name}"
        + (f" (did you mean {near[0]}?)" if (near := get_close_matches(name, declared, n=1)) else "")
        for name in strange
    ]
