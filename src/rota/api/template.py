"""Templates over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.once import carry_out
from rota.api.page import PageSize, begins_at
from rota.command import template as command
from rota.command.expand import find
from rota.command.schema import check_schema
from rota.command.template_wanted import TemplateChange, TemplateWanted
from rota.core.template import Template
from rota.engine.work import Work
from rota.errors import InvalidInput, within
from rota.ids import TemplateId, parse_template, show_template
from rota.view import template as view
from rota.wire.template import TemplateForm, TemplatesForm, TemplateStoredForm, template_form
from rota.wire.text import TemplateText


async def add_template(call: Call[Nothing, TemplateWanted]) -> Reply[TemplateStoredForm]:
    """Add a template. What no job could be made of is refused; what is only strange is warned of."""
    context = call.context
    name, body = command.parse_new(msgspec.to_builtins(call.body))
    await _look_at(body.params_schema)
    context.control.look_at_config()  # a retry policy that was just written can be named
    act = partial(command.add, name=name, body=body, actor=context.actor)
    return (await carry_out(call, act, _see_stored, partial(Reply, status=201))).reply


def _read_new(given: bytes) -> TemplateWanted:
    document = msgspec.json.decode(given, type=dict[str, Any])
    command.refuse_strange(document)
    command.name_of(document)
    return msgspec.convert(document, TemplateWanted)


async def _look_at(schema: object) -> None:
    """What the engine would otherwise be the first to understand; one that is wrong is refused here."""
    if isinstance(schema, dict):
        with within(".params_schema"):
            await asyncio.to_thread(check_schema, schema)


def _see_stored(work: Work, results: Sequence[command.Stored]) -> list[TemplateStoredForm]:
    return [
        TemplateStoredForm(
            template=template_form(find(work.session, show_template(told.template))),
            fields=told.fields,
            warning="; ".join(told.warnings) or None,
        )
        for told in results
    ]


class TemplatesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    all: bool = False
    """Archived ones too."""
    limit: PageSize = 100
    cursor: TemplateText | None = None
    """The `next` of the page before."""


async def list_templates(call: Call[TemplatesQuery, None]) -> Reply[TemplatesForm]:
    """List the templates in use, the oldest first."""
    query = call.query
    after = begins_at(query.cursor, parse_template, TemplateId(0))
    look = partial(view.listing, after=after, limit=query.limit, with_archived=query.all)
    return Reply(await call.context.look(look))


async def get_template(call: Call[Nothing, None]) -> Reply[TemplateForm]:
    """Show a template, by name or id. Of a name that several have had it is the one in use."""
    return Reply(template_form(await call.context.look(partial(find, asked=call.path["template"]))))


async def change_template(call: Call[Nothing, TemplateChange]) -> Reply[TemplateStoredForm]:
    """Change what is named of a template; null takes a field back. Jobs that exist keep what they have."""
    return await _changed(call, is_whole=False)


async def replace_template(call: Call[Nothing, TemplateChange]) -> Reply[TemplateStoredForm]:
    """Replace all of a template, but for its name if none is given. Jobs that exist keep what they have."""
    return await _changed(call, is_whole=True)


def _read_change(given: bytes) -> TemplateChange:
    document = msgspec.json.decode(given, type=dict[str, Any])
    command.refuse_strange(document, command.OF_CHANGES)
    return msgspec.convert(document, TemplateChange)


async def _changed(call: Call[Nothing, TemplateChange], *, is_whole: bool) -> Reply[TemplateStoredForm]:
    context, changes = call.context, msgspec.to_builtins(call.body)
    if not changes:
        raise InvalidInput('nothing is to be changed; name the fields, as in {"timeout": "1h"}')
    await _look_at(changes.get("params_schema"))
    context.control.look_at_config()
    act = partial(
        command.change, asked=call.path["template"], changes=changes, is_whole=is_whole, actor=context.actor
    )  # fmt: skip
    return Reply(await context.perform_and_see(act, _see_stored))


async def archive_template(call: Call[Nothing, None]) -> Reply[TemplateForm]:
    """Archive a template. No more jobs are made of it; those that exist go on."""
    return await _moved(call, command.archive)


async def unarchive_template(call: Call[Nothing, None]) -> Reply[TemplateForm]:
    """Take an archived template back into use."""
    return await _moved(call, command.unarchive)


async def _moved(call: Call[Nothing, None], move: Callable[..., Template]) -> Reply[TemplateForm]:
    act = partial(move, asked=call.path["template"], actor=call.context.actor)
    return Reply(await call.context.perform_and_see(act, _see))


def _see(work: Work, results: Sequence[Template]) -> list[TemplateForm]:
    return [template_form(find(work.session, show_template(each.id))) for each in results]


_WANTED = {
    "name": "story",
    "command": ["claude", "-p", "write the story of {hero}"],
    "default_params": {"hero": "a fox"},
    "type": "story",
    "timeout": "1h",
}
_SHOWN = {
    "id": "template-1",
    "name": "story",
    "description": None,
    "command": ["claude", "-p", "write the story of {hero}"],
    "default_params": {"hero": "a fox"},
    "params_schema": None,
    "job_name": None,
    "type": "story",
    "priority": None,
    "retry": None,
    "retries": None,
    "pools": {},
    "locks": [],
    "needs": [],
    "produces": [],
    "missing_producer": None,
    "flow": None,
    "phase": None,
    "parallelizable": None,
    "unique": None,
    "target": None,
    "timeout": "1h",
    "idle_timeout": None,
    "skip_if": None,
    "worktree": None,
    "base": None,
    "patch": None,
    "webhooks": [],
    "webhook_events": [],
    "env": [],
    "created_at": "2026-11-16T09:30:00.125480Z",
    "changed_at": "2026-11-16T09:30:00.125480Z",
    "archived_at": None,
}
_ARCHIVED = {**_SHOWN, "archived_at": "2026-11-23T17:00:00.512009Z"}

_ONE = "/api/job-templates/{template}"
ENDPOINTS = [
    Endpoint(
        "POST", "/api/job-templates", add_template, statuses=(201,), refuses=(409,), is_keyed=True, reads=_read_new,
        sends=_WANTED, shows={"template": _SHOWN, "fields": [], "warning": None},
    ),
    Endpoint("GET", "/api/job-templates", list_templates, shows={"templates": [_SHOWN], "next": None}),
    Endpoint("GET", _ONE, get_template, shows=_SHOWN),
    Endpoint(
        "PATCH", _ONE, change_template, refuses=(409,), reads=_read_change, sends={"timeout": "1h", "env": None},
        shows={"template": _SHOWN, "fields": ["timeout"], "warning": None},
    ),
    Endpoint(
        "PUT", _ONE, replace_template, refuses=(409,), reads=_read_change, sends=_WANTED,
        shows={"template": _SHOWN, "fields": ["timeout"], "warning": None},
    ),
    Endpoint("POST", f"{_ONE}/archive", archive_template, shows=_ARCHIVED),
    Endpoint("POST", f"{_ONE}/unarchive", unarchive_template, refuses=(409,), shows=_SHOWN),
]  # fmt: skip
