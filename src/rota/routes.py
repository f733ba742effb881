"""Routes of the API: the endpoints of every package."""

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
from rota.http.bind import make_endpoints
from rota.http.endpoint import Endpoint
from rota.http.openapi.pages import ApiDocs
from rota.http.router import Router
from rota.jobs import change_endpoints, log_endpoints, submit_endpoints
from rota.jobs import endpoints as jobs
from rota.retention import endpoints as retention
from rota.schedules import endpoints as schedules
from rota.templates import endpoints as templates
from rota.webhooks import endpoints as webhooks
from rota.work import operations as work
from rota.work import queries as work_queries

_ENDPOINTS: tuple[Endpoint, ...] = (
    *submit_endpoints.ENDPOINTS,
    *jobs.ENDPOINTS,
    *change_endpoints.ENDPOINTS,
    *log_endpoints.ENDPOINTS,
    *graph.ENDPOINTS,
    *artifacts.ENDPOINTS,
    *make_endpoints(work, work_queries),
    *groups.ENDPOINTS,
    *templates.ENDPOINTS,
    *schedules.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *reservations.ENDPOINTS,
    *direct.ENDPOINTS,
    *control.ENDPOINTS,
    *retention.ENDPOINTS,
    *events.ENDPOINTS,
    *health.ENDPOINTS,
    *metrics.ENDPOINTS,
    *legacy.ENDPOINTS,
)
ENDPOINTS: tuple[Endpoint, ...] = (*_ENDPOINTS, *ApiDocs(_ENDPOINTS).endpoints)
ROUTER = Router(ENDPOINTS)
