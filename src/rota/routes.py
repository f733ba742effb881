"""Routes of the API: every endpoint, in the order of the OpenAPI document."""

from __future__ import annotations

from rota import legacy
from rota.artifacts import endpoints as artifacts
from rota.control import endpoints as control
from rota.control import health, metrics
from rota.direct import endpoints as direct
from rota.direct import reservation_endpoints as reservations
from rota.events import endpoints as events
from rota.graph import endpoints as graph
from rota.groups import endpoints as groups
from rota.http.endpoint import Endpoint
from rota.http.openapi.pages import ApiDocs
from rota.http.router import Router
from rota.jobs import change_endpoints, log_endpoints, submit_endpoints
from rota.jobs import endpoints as jobs
from rota.retention import endpoints as retention
from rota.schedules import endpoints as schedules
from rota.templates import endpoints as templates
from rota.webhooks import endpoints as webhooks

_ENDPOINTS: tuple[Endpoint, ...] = (
    *submit_endpoints.ENDPOINTS,
    *jobs.JOB_ENDPOINTS,
    *change_endpoints.EDIT_ENDPOINTS,
    *change_endpoints.RETRY_ENDPOINTS,
    *change_endpoints.REWIND_ENDPOINTS,
    *jobs.RUN_ENDPOINTS,
    *log_endpoints.ENDPOINTS,
    *jobs.QUEUE_ENDPOINTS,
    *control.LOCK_ENDPOINTS,
    *graph.ENDPOINTS,
    *artifacts.ENDPOINTS,
    *groups.GROUP_ENDPOINTS,
    *groups.PROGRESS_ENDPOINTS,
    *templates.ENDPOINTS,
    *schedules.ENDPOINTS,
    *webhooks.WEBHOOK_ENDPOINTS,
    *webhooks.DELIVERY_ENDPOINTS,
    *reservations.ENDPOINTS,
    *direct.ENDPOINTS,
    *control.SCHEDULER_ENDPOINTS,
    *control.HOLD_ENDPOINTS,
    *control.TICK_ENDPOINTS,
    *control.BREAKER_ENDPOINTS,
    *retention.ENDPOINTS,
    *control.DISPLAY_ENDPOINTS,
    *events.ENDPOINTS,
    *health.ENDPOINTS,
    *metrics.ENDPOINTS,
    *legacy.ENDPOINTS,
)
ENDPOINTS: tuple[Endpoint, ...] = (*_ENDPOINTS, *ApiDocs(_ENDPOINTS).endpoints)
ROUTER = Router(ENDPOINTS)
