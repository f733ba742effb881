"""Templates over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, read
from rota.command import template as command
from rota.command.expand import find
from rota.command.schema import check_schema
from rota.core.template import Template
from rota.errors import InvalidInput
from rota.ids import show_template
from rota.view import template as view


async def add_template(request: Request) -> Response:
    context = context_of(request)
    name, body = command.parse_new(await read(request, dict[str, Any]))
    await _look_at(body.params_schema)
    context.control.look_at_config()  # a retry policy that was just written can be named
    told = await context.perform(partial(command.add, name=name, body=body, actor=context.actor))
    return answer(await _told(context, told), 201)


async def _look_at(schema: object) -> None:
    """What the engine would otherwise be the first to understand; one that is wrong is refused here."""
    if isinstance(schema, dict):
        await asyncio.to_thread(check_schema, schema)


async def _told(context: Context, told: command.Stored) -> dict[str, Any]:
    template = await context.look(partial(find, asked=show_template(told.template)))
    return {"template": view.form(template), "fields": told.fields, "warning": "; ".join(told.warnings) or None}


async def list_templates(request: Request) -> Response:
    with_archived = request.query_params.get("all") == "1"
    return answer({"templates": await context_of(request).look(partial(view.listing, with_archived=with_archived))})


async def get_template(request: Request) -> Response:
    return answer(view.form(await context_of(request).look(partial(find, asked=request.path_params["template"]))))


async def change_template(request: Request) -> Response:
    """PATCH changes what it names, PUT all of it."""
    context, changes = context_of(request), await read(request, dict[str, Any])
    if not changes:
        raise InvalidInput('nothing is to be changed; name the fields, as in {"timeout": "1h"}')
    await _look_at(changes.get("params_schema"))
    context.control.look_at_config()
    act = partial(
        command.change, asked=request.path_params["template"], changes=changes, is_whole=request.method == "PUT",
        actor=context.actor,
    )  # fmt: skip
    return answer(await _told(context, await context.perform(act)))


async def archive_template(request: Request) -> Response:
    return await _move(request, command.archive)


async def unarchive_template(request: Request) -> Response:
    return await _move(request, command.unarchive)


async def _move(request: Request, act: Any) -> Response:
    context = context_of(request)
    template: Template = await context.perform(partial(act, asked=request.path_params["template"], actor=context.actor))
    found = await context.look(partial(find, asked=show_template(template.id)))
    return answer(view.form(found))


ROUTES = [
    Route("/api/job-templates", add_template, methods=["POST"]),
    Route("/api/job-templates", list_templates, methods=["GET"]),
    Route("/api/job-templates/{template}", get_template, methods=["GET"]),
    Route("/api/job-templates/{template}", change_template, methods=["PATCH", "PUT"]),
    Route("/api/job-templates/{template}/archive", archive_template, methods=["POST"]),
    Route("/api/job-templates/{template}/unarchive", unarchive_template, methods=["POST"]),
]
