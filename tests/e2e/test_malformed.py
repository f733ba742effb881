"""Mutated request bodies, sent to every endpoint that takes one.

Every invalid body is refused with a problem document, a refused body stores nothing, and the scheduler keeps running.
Both databases are tested because they accept different text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, NamedTuple
from uuid import uuid4

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rota.errors import BY_CODE
from rota.http.endpoint import Endpoint
from rota.http.openapi.document import build_document
from rota.http.openapi.schema import to_example
from rota.http.problem_schemas import PROBLEM_MEDIA_TYPE
from rota.routes import ENDPOINTS
from tests.e2e.conformance import check_response
from tests.e2e.invalid_bodies import invalid_bodies
from tests.e2e.rig import Rota
from tests.harness import SqlRunner, make_sqlite_runner
from tests.postgres_server import Schema
from tests.sample import sample

EXAMPLES = sample(20)
"""Examples for each endpoint."""
DOCUMENT = build_document(ENDPOINTS)
ENDPOINTS_WITH_BODY = [endpoint for endpoint in ENDPOINTS if endpoint.body_type is not NoneType]
PATH_PARAMETERS = {
    "job": "job-1",
    "job_id": "job-1",
    "run_or_job": "job-1",
    "group": "group-1",
    "template": "story",
    "type": "story",
    "schedule": "nightly",
    "webhook": "webhook-1",
    "name": "flow/review",
    "reservation": "reservation-1",
}
EXISTING_RESOURCES = [
    ("/api/jobs", {"command": ["true"], "flow": "review"}),
    ("/api/jobs", {"command": ["true"]}),
    ("/api/job-groups", {"name": "release"}),
    ("/api/job-templates", {"name": "story", "command": ["echo", "{hero}"], "default_params": {"hero": "a fox"}}),
    ("/api/schedules", {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}),
    ("/api/webhooks", {"url": "http://127.0.0.1:9/"}),
]
INVALID_BODIES_ONLY = ("/api/scheduler/stop", "/scheduler/stop", "/api/webhooks", "/api/direct", "/api/reservations")
"""Endpoints that stop the scheduler, send requests or wait for a start. They get only bodies that they must refuse."""

BACKGROUND_TABLES = ("meta",)
"""Tables that the scheduler writes at any time."""


class Response(NamedTuple):
    status: int
    media: str
    body: bytes


class HeldScheduler:
    """A scheduler whose hold file exists, with at least one resource of each kind."""

    def __init__(self, rota: Rota, run_sql: SqlRunner, tables: str) -> None:
        self.rota = rota
        self._run_sql = run_sql
        rota.start()
        for target, body in EXISTING_RESOURCES:
            assert rota.api("POST", target, body).status == 201
        assert rota.api("POST", "/api/webhooks/webhook-1/disable").status == 200
        counted_tables = [name for (name,) in run_sql(tables) if name not in BACKGROUND_TABLES]
        self._count_query = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in counted_tables)
        self.connection = rota.connection()

    def send(self, endpoint: Endpoint, body: Any, **headers: str) -> Response:
        target = endpoint.path.format(**PATH_PARAMETERS)
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        self.connection.request(endpoint.method, target, body, {"Content-Type": "application/json", **named})
        response = self.connection.getresponse()
        result = Response(response.status, response.headers.get("content-type", ""), response.read())
        check_response(endpoint.method, target, result.status, response.headers, result.body)
        return result

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self._run_sql(self._count_query))


@pytest.fixture(params=["sqlite", "postgres"])
def held_scheduler(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Iterator[HeldScheduler]:
    rota = make_rota()
    rota.home.mkdir()
    (rota.home / "hold").touch()
    rota.run("config", "set", "scheduler.hold_file", "hold")
    if request.param == "postgres":
        rota.run("config", "set", "store.url", request.getfixturevalue("postgres_url"))
        schema: Schema = request.getfixturevalue("postgres_schema")
        created = HeldScheduler(
            rota, schema.run_sql, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
    else:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        created = HeldScheduler(rota, make_sqlite_runner(rota.home / "rota.db"), tables)
    yield created
    created.connection.close()


class BodySchema:
    """The OpenAPI schema of the request body of an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        request_body = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]["requestBody"]
        schema = request_body["content"]["application/json"]["schema"]
        components = {"schemas": DOCUMENT["components"]["schemas"]}
        self.is_required = request_body["required"]
        self._validator = jsonschema_rs.Draft202012Validator({**schema, "components": components})
        parts = [schema, *schema.get("anyOf", ())]
        named = [components["schemas"][part["$ref"].rpartition("/")[2]] for part in parts if "$ref" in part]
        self.fields = sorted({name for part in (*parts, *named) for name in part.get("properties", {})})

    def forbids(self, body: bytes) -> bool:
        if not body:
            return bool(self.is_required)
        try:
            return not self._validator.is_valid(json.loads(body.decode(), parse_constant=_refuse))
        except (ValueError, RecursionError):
            return True


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def find_faults(response: Response) -> Iterator[str]:
    """Describe how the response differs from a valid problem document."""
    if not 400 <= response.status < 500:
        yield f"{response.status} {response.body[:200]!r}"
        return
    problem = json.loads(response.body) if response.media == PROBLEM_MEDIA_TYPE else {}
    if problem.get("code") not in BY_CODE or problem["status"] != response.status or not problem["detail"]:
        yield f"not a problem document: {response}"


def test_invalid_body_is_refused_and_stores_nothing(held_scheduler: HeldScheduler) -> None:
    faults = [fault for endpoint in ENDPOINTS_WITH_BODY for fault in _fuzz_endpoint(held_scheduler, endpoint)]
    assert not faults, "\n".join(faults)
    assert held_scheduler.rota.status()["errors"] == []
    assert held_scheduler.rota.api("POST", "/api/jobs", {"command": ["true"]}).status == 201


def _fuzz_endpoint(scheduler: HeldScheduler, endpoint: Endpoint) -> list[str]:
    body_schema, before = BodySchema(endpoint), scheduler.rows()
    faults: list[str] = []

    @settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(invalid_bodies(to_example(endpoint.request_example), body_schema.fields))
    def send(body: bytes) -> None:
        nonlocal before
        is_invalid = body_schema.forbids(body)
        if not is_invalid and endpoint.path in INVALID_BODIES_ONLY:
            return
        # Send some bodies in chunks, without a Content-Length.
        sent = body if len(body) % 4 else (body[begin : begin + 1000] for begin in range(0, len(body), 1000))
        response = scheduler.send(endpoint, sent, **({"Idempotency_Key": uuid4().hex} if endpoint.accepts_key else {}))
        after = scheduler.rows()
        if is_invalid or response.status >= 400:
            request = f"{endpoint.method} {endpoint.path} <- {body[:300]!r}"
            faults.extend(f"{request}: {fault}" for fault in find_faults(response))
            if response.status >= 400 and after != before:
                faults.append(f"{request}: {response.status}, but stored {set(after) - set(before)}")
        before = after

    send()
    return faults
