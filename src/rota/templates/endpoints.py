"""Templates over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from rota.engine.transaction import Transaction
from rota.errors import InvalidInput, error_path
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery, PageSize, parse_cursor
from rota.http.idempotency import run_call
from rota.ids import TemplateId, format_template_id, parse_template_id
from rota.schema_types import TemplateIdText
from rota.templates import commands, queries
from rota.templates.commands import TemplateChange, TemplateRequest
from rota.templates.expand import find_template
from rota.templates.model import Template
from rota.templates.params import check_schema
from rota.templates.schemas import TemplateChangeResult, TemplatePage, TemplateView, render_template


async def add_template(call: Invocation[NoQuery, TemplateRequest]) -> JsonReply[TemplateChangeResult]:
    """Add a template. A template that no job can be created from is refused. Questionable fields give a warning."""
    context = call.context
    name, body = commands.parse_template_document(msgspec.to_builtins(call.body))
    await _check_params_schema(body.params_schema)
    context.control.check_config()  # the template can name a retry policy that was just added to the file
    operation = partial(commands.add_template, name=name, body=body, actor=context.actor)
    return (await run_call(call, operation, _render_outcomes, partial(JsonReply, status=201))).reply


def _decode_new(raw_body: bytes) -> TemplateRequest:
    document = msgspec.json.decode(raw_body, type=dict[str, Any])
    commands.refuse_unknown_fields(document)
    commands.parse_template_name(document)
    return msgspec.convert(document, TemplateRequest)


async def _check_params_schema(schema: object) -> None:
    """Refuse an invalid schema here, so that the check does not delay the engine."""
    if isinstance(schema, dict):
        with error_path(".params_schema"):
            await asyncio.to_thread(check_schema, schema)


def _render_outcomes(tx: Transaction, results: Sequence[commands.TemplateOutcome]) -> list[TemplateChangeResult]:
    return [
        TemplateChangeResult(
            template=render_template(find_template(tx, format_template_id(outcome.template))),
            fields=outcome.fields,
            warning="; ".join(outcome.warnings) or None,
        )
        for outcome in results
    ]


class TemplatesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    all: bool = False
    """Include archived templates."""
    limit: PageSize = 100
    cursor: TemplateIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_templates(call: Invocation[TemplatesQuery, None]) -> JsonReply[TemplatePage]:
    """List templates, oldest first. Archived templates are only listed with `all`."""
    query = call.query
    after = parse_cursor(query.cursor, parse_template_id, TemplateId(0))
    read_page = partial(queries.list_templates, after=after, limit=query.limit, with_archived=query.all)
    return JsonReply(await call.context.read(read_page))


async def get_template(call: Invocation[NoQuery, None]) -> JsonReply[TemplateView]:
    """Show a template, by name or id. A name selects the template in use, even if archived ones had the same name."""
    return JsonReply(
        render_template(await call.context.read(partial(find_template, reference=call.path_values["template"])))
    )


async def change_template(call: Invocation[NoQuery, TemplateChange]) -> JsonReply[TemplateChangeResult]:
    """Change fields of a template; null resets a field. Existing jobs do not change."""
    return await _change(call, is_replacement=False)


async def replace_template(call: Invocation[NoQuery, TemplateChange]) -> JsonReply[TemplateChangeResult]:
    """Replace all fields of a template. The name stays unless the request has one. Existing jobs do not change."""
    return await _change(call, is_replacement=True)


def _decode_change(raw_body: bytes) -> TemplateChange:
    document = msgspec.json.decode(raw_body, type=dict[str, Any])
    commands.refuse_unknown_fields(document, commands.CHANGE_ONLY_FIELDS)
    return msgspec.convert(document, TemplateChange)


async def _change(
    call: Invocation[NoQuery, TemplateChange], *, is_replacement: bool
) -> JsonReply[TemplateChangeResult]:
    context, changes = call.context, msgspec.to_builtins(call.body)
    if not changes:
        raise InvalidInput('the change has no fields; send the fields to change, such as {"timeout": "1h"}')
    await _check_params_schema(changes.get("params_schema"))
    context.control.check_config()
    operation = partial(
        commands.change_template,
        reference=call.path_values["template"],
        changes=changes,
        is_replacement=is_replacement,
        actor=context.actor,
    )
    return JsonReply(await context.run_and_render(operation, _render_outcomes))


async def archive_template(call: Invocation[NoQuery, None]) -> JsonReply[TemplateView]:
    """Archive a template. No new jobs are created from it; existing jobs continue."""
    return await _set_archived(call, commands.archive_template)


async def unarchive_template(call: Invocation[NoQuery, None]) -> JsonReply[TemplateView]:
    """Restore an archived template, so that jobs can be created from it again."""
    return await _set_archived(call, commands.unarchive_template)


async def _set_archived(call: Invocation[NoQuery, None], operation: Callable[..., Template]) -> JsonReply[TemplateView]:
    operation = partial(operation, reference=call.path_values["template"], actor=call.context.actor)
    return JsonReply(await call.context.run_and_render(operation, _render_templates))


def _render_templates(tx: Transaction, results: Sequence[Template]) -> list[TemplateView]:
    return [render_template(find_template(tx, format_template_id(template.id))) for template in results]


_REQUEST_EXAMPLE = {
    "name": "story",
    "command": ["claude", "-p", "write the story of {hero}"],
    "default_params": {"hero": "a fox"},
    "type": "story",
    "timeout": "1h",
}
_EXAMPLE = {
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
_ARCHIVED_EXAMPLE = {**_EXAMPLE, "archived_at": "2026-11-23T17:00:00.512009Z"}
_PATH = "/api/job-templates/{template}"
ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/job-templates",
        add_template,
        statuses=(201,),
        errors=(409,),
        accepts_key=True,
        body_decoder=_decode_new,
        request_example=_REQUEST_EXAMPLE,
        response_example={"template": _EXAMPLE, "fields": [], "warning": None},
    ),
    Endpoint("GET", "/api/job-templates", list_templates, response_example={"templates": [_EXAMPLE], "next": None}),
    Endpoint("GET", _PATH, get_template, response_example=_EXAMPLE),
    Endpoint(
        "PATCH",
        _PATH,
        change_template,
        errors=(409,),
        body_decoder=_decode_change,
        request_example={"timeout": "1h", "env": None},
        response_example={"template": _EXAMPLE, "fields": ["timeout"], "warning": None},
    ),
    Endpoint(
        "PUT",
        _PATH,
        replace_template,
        errors=(409,),
        body_decoder=_decode_change,
        request_example=_REQUEST_EXAMPLE,
        response_example={"template": _EXAMPLE, "fields": ["timeout"], "warning": None},
    ),
    Endpoint("POST", f"{_PATH}/archive", archive_template, response_example=_ARCHIVED_EXAMPLE),
    Endpoint("POST", f"{_PATH}/unarchive", unarchive_template, errors=(409,), response_example=_EXAMPLE),
]
