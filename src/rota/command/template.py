"""`template`: add, change, archive. What is wrong with one is said when it is stored, not when a job is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from rota.command.expand import find, id_of
from rota.command.field import check_fields, check_own_params, check_rest, check_text
from rota.command.schema import MOST_PARAMS, MOST_SCHEMA, check_schema, troubles
from rota.command.submission import LockWanted, Submission
from rota.command.survey import parse_named
from rota.command.webhook import hook_of
from rota.core.retry import RetryPolicies
from rota.core.template import Template, TemplateBody, braced, fill, fixed_texts, locks_of, places, shortened
from rota.core.unique import check_key
from rota.core.webhook import HookPolicy
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, within
from rota.ids import TemplateId
from rota.names import MOST_TITLE, is_name
from rota.wire.misfit import misfit

_FIELDS = ("name", *TemplateBody.__struct_fields__)
_LATER = {
    "handler": "handlers in Python come later; write a command",
    "params": "a template has default_params, and a params_schema",
    "schema": "write params_schema",
    "after": "what a job comes after is said when it is submitted",
    "cwd": "a job runs where it is submitted, or where `cwd` of its submit says",
}
OF_CHANGES = ("set_default_params",)
"""What a change can say beside a template's own fields."""
_EXAMPLE_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_STAND_IN = "x"


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    template: TemplateId
    warnings: list[str] = []
    fields: list[str] = []
    """What is another than before."""


def parse_new(document: Mapping[str, Any]) -> tuple[str, TemplateBody]:
    """A template as a file or a request has it."""
    refuse_strange(document)
    name = name_of(document)
    return name, _body({key: value for key, value in document.items() if key != "name" and value is not None})


def name_of(document: Mapping[str, Any]) -> str:
    name = document.get("name")
    if not isinstance(name, str):
        raise InvalidInput('a template needs a name: name = "story"').under(".name")
    return name


def refuse_strange(document: Mapping[str, Any], more: tuple[str, ...] = ()) -> None:
    """What is no field of a template, nor one of these, with what was perhaps meant."""
    for field in document:
        if field in _FIELDS or field in more:
            continue
        near = get_close_matches(field, _FIELDS, n=1)
        hint = _LATER.get(field) or (f"did you mean {near[0]}?" if near else f"known are {', '.join(_FIELDS)}")
        raise InvalidInput(f"a template has no field {field}: {hint}").under(f".{field}")


def _body(fields: Mapping[str, Any]) -> TemplateBody:
    try:
        return msgspec.convert(fields, TemplateBody)
    except msgspec.ValidationError as error:
        raise misfit("the template", error, of=fields) from None


def check(name: str, body: TemplateBody, retry: RetryPolicies, hooks: HookPolicy) -> list[str]:
    """Refuses what no job could be made of; what is only strange is returned."""
    _check_name(name)
    if not body.command:
        said = 'a template needs a command: command = ["program", "argument", "{param}"]'
        raise InvalidInput(said).under(".command")
    declared = body.declared
    if named := places(body.skip_if, declared):
        raise InvalidInput(
            f"skip_if has a place {{{named[0]}}}, but it is a shell's text, in which a value could become a command:"
            " let it read the params from ROTA_PARAMS (JSON) instead"
        ).under(".skip_if")
    if body.params_schema is not None:
        with within(".params_schema"):
            check_schema(body.params_schema)
    check_own_params(body.default_params, "default_params")
    example = _example(body, declared)
    check_text("job_name", example.name, MOST_TITLE)
    check_fields(example)
    check_rest(example, retry, _EXAMPLE_TIME)
    hook_of(example, hooks)
    check_key(example.unique)
    parse_named("needs", example.needs)
    parse_named("produces", example.produces)
    if body.base is not None and not body.worktree:
        raise InvalidInput("base is what a worktree is made from: add worktree = true, or leave it out").under(".base")
    if len(msgspec.json.encode(body)) > MOST_SCHEMA + 4 * MOST_PARAMS:
        raise InvalidInput("the template is too large; put what is long in a file that its command reads")
    return [*_strange_places(body, declared), *_strange_defaults(body)]


def _check_name(name: str) -> None:
    if not is_name(name) or "/" in name or name.startswith("-") or id_of(name) is not None:
        raise InvalidInput(
            f"not a usable name of a template: {name!r}; use 1 to 200 characters without spaces, * and /, that do not"
            " begin with - and are not like template-1"
        ).under(".name")


def _example(body: TemplateBody, declared: frozenset[str]) -> Submission:
    """A submit of it with something in every place."""
    values = dict.fromkeys(declared, _STAND_IN)

    def filled(text: str | None) -> str | None:
        return None if text is None else fill(text, values, declared)

    return Submission(
        command=[fill(text, values, declared) for text in body.command],
        name=filled(body.job_name),
        type=body.type,
        priority=body.priority,
        pools=body.pools,
        locks=[LockWanted(key=fill(lock.key, values, declared), mode=lock.mode) for lock in locks_of(body)],
        needs=[fill(text, values, declared) for text in body.needs],
        produces=[fill(text, values, declared) for text in body.produces],
        flow=filled(body.flow),
        phase=body.phase,
        target=filled(body.target),
        unique=filled(body.unique),
        timeout=body.timeout,
        idle_timeout=body.idle_timeout,
        skip_if=body.skip_if,
        retry=body.retry,
        retries=body.retries,
        env=body.env,
        webhooks=list(body.webhooks),
        webhook_events=list(body.webhook_events),
    )


def _strange_places(body: TemplateBody, declared: frozenset[str]) -> list[str]:
    """What is written almost like a declared param stays text, and was hardly meant so."""
    texts = [*body.command, body.job_name or "", *(text for texts in fixed_texts(body).values() for text in texts)]
    strange = dict.fromkeys(name for text in texts for name in braced(text) if name not in declared)
    near = {name: get_close_matches(name, declared, n=1) for name in strange}
    return [
        f"{shortened('{' + name + '}')} is no place and stays as it is: no param {name} is declared, but {meant[0]} is"
        for name, meant in near.items()
        if meant
    ]


def _strange_defaults(body: TemplateBody) -> list[str]:
    """A default may be incomplete; one that the schema refuses by itself is for every submit to mend."""
    if body.params_schema is None:
        return []
    return [f"default_{text}" for path, text in troubles(body.params_schema, body.default_params) if path]


def add(work: Work, name: str, body: TemplateBody, *, actor: str) -> Stored:
    warnings = check(name, body, work.settings.retry, work.settings.webhooks)
    _refuse_taken(work, name)
    return Stored(template=work.session.add_template(name, body, work.now, actor), warnings=warnings)


def _refuse_taken(work: Work, name: str, but: TemplateId | None = None) -> None:
    there = work.session.templates_by_name([name]).get(name)
    if there is not None and there.archived_at is None and there.id != but:
        raise Conflict(
            f"there is a template {name} already: `rota template change {name}` changes it, `rota template archive"
            f" {name}` frees its name"
        ).under(".name")


def change(work: Work, asked: str, changes: Mapping[str, Any], *, is_whole: bool, actor: str) -> Stored:
    """To what is named here, the rest as it was; or as a whole. Jobs that exist keep what they have (INV-005)."""
    template = find(work.session, asked)
    refuse_strange(changes, OF_CHANGES)
    fields = {key: value for key, value in changes.items() if key not in ("name", "set_default_params")}
    was = {} if is_whole else msgspec.to_builtins(template.body)
    added = changes.get("set_default_params")
    if not isinstance(added, dict | None):
        raise InvalidInput('set_default_params is an object, as in {"model": "small"}').under(".set_default_params")
    if added:
        fields["default_params"] = {**was.get("default_params", {}), **fields.get("default_params", {}), **added}
        check_own_params(fields["default_params"], "set_default_params")
    body = _body({key: value for key, value in {**was, **fields}.items() if value is not None})
    name = changes.get("name") or template.name
    if not isinstance(name, str):
        raise InvalidInput("the name of a template is text").under(".name")
    changed = msgspec.structs.replace(template, name=name, body=body)
    warnings = check(name, body, work.settings.retry, work.settings.webhooks)
    if template.archived_at is None:
        _refuse_taken(work, name, template.id)
    differing = [
        field for field in TemplateBody.__struct_fields__ if getattr(body, field) != getattr(template.body, field)
    ]
    differing = differing if name == template.name else ["name", *differing]
    if differing:
        work.session.change_template(changed, work.now, actor)
    return Stored(template=template.id, warnings=warnings, fields=differing)


def archive(work: Work, asked: str, *, actor: str) -> Template:
    """It makes no more jobs; those that exist go on as they are. One that is archived already stays so."""
    template = find(work.session, asked)
    if template.archived_at is None:
        work.session.archive_template(template, work.now, work.now, actor)
    return template


def unarchive(work: Work, asked: str, *, actor: str) -> Template:
    template = find(work.session, asked)
    if template.archived_at is not None:
        _refuse_taken(work, template.name, template.id)
        work.session.archive_template(template, None, work.now, actor)
    return template
