"""Routes of the API: every endpoint, in the order of the OpenAPI document."""

from __future__ import annotations

from rota.api import (
    artifact,
    breaker,
    control,
    delivery,
    direct,
    display,
    edit,
    event,
    gc,
    graph,
    group,
    health,
    job,
    legacy,
    lock,
    log,
    metrics,
    progress,
    queue,
    reservation,
    retry,
    rewind,
    run,
    schedule,
    scheduler,
    submit,
    template,
    tick,
    webhook,
)
from rota.api.api_docs import ApiDocs
from rota.api.endpoint import Endpoint
from rota.api.router import Router

_MODULES = (
    submit,
    job,
    edit,
    retry,
    rewind,
    run,
    log,
    queue,
    lock,
    graph,
    artifact,
    group,
    progress,
    template,
    schedule,
    webhook,
    delivery,
    reservation,
    direct,
    scheduler,
    control,
    tick,
    breaker,
    gc,
    display,
    event,
    health,
    metrics,
    legacy,
)

_ENDPOINTS = tuple(endpoint for module in _MODULES for endpoint in module.ENDPOINTS)
ENDPOINTS: tuple[Endpoint, ...] = (*_ENDPOINTS, *ApiDocs(_ENDPOINTS).endpoints)
ROUTER = Router(ENDPOINTS)
