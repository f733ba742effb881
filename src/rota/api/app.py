"""The application: every route, and how refusals are said."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from rota.api import (
    artifact,
    breaker,
    control,
    direct,
    display,
    edit,
    gc,
    graph,
    group,
    job,
    lock,
    log,
    progress,
    queue,
    retry,
    rewind,
    schedule,
    scheduler,
    slot,
    submit,
    template,
    tick,
    webhook,
)
from rota.api.context import Context
from rota.api.problem import on_defect, on_http_error, on_rota_error
from rota.errors import RotaError

_MODULES = (
    submit, job, edit, queue, lock, log, retry, rewind, slot, direct, artifact, tick, scheduler, control, breaker,
    display, graph, gc, template, group, progress, webhook, schedule,
)  # fmt: skip


def application(context: Context) -> Starlette:
    app = Starlette(
        routes=[route for module in _MODULES for route in module.ROUTES],
        exception_handlers={RotaError: on_rota_error, HTTPException: on_http_error, Exception: on_defect},
    )
    app.state.context = context
    return app
