"""Whatever is sent as a body, to any endpoint that takes one: a refusal in the form of all refusals, nothing of it in
the store, and a scheduler that goes on. On both databases: what one of them takes as a text, the other does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, NamedTuple
from uuid import uuid4

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from e2e.conformity import check
from e2e.rig import Rota
from e2e.spoilt import spoilt
from harness import Raw, sqlite_raw
from postgres_server import Schema
from rota.api.app import ENDPOINTS
from rota.api.endpoint import Endpoint
from rota.api.openapi.document import document
from rota.api.openapi.schema import plain
from rota.errors import BY_CODE
from rota.wire.problem import MEDIA
from sample import sample

EXAMPLES = sample(20)
"""Of each endpoint."""
DOCUMENT = document(ENDPOINTS)
TAKING = [endpoint for endpoint in ENDPOINTS if endpoint.takes is not NoneType]
PLACES = {
    "job": "job-1", "job_id": "job-1", "run_or_job": "job-1", "group": "group-1", "template": "story", "type": "story",
    "schedule": "nightly", "webhook": "webhook-1", "name": "flow/review", "slot": "slot-1",
}  # fmt: skip
THERE = [
    ("/api/jobs", {"command": ["true"], "flow": "review"}),
    ("/api/jobs", {"command": ["true"]}),
    ("/api/job-groups", {"name": "release"}),
    ("/api/job-templates", {"name": "story", "command": ["echo", "{hero}"], "default_params": {"hero": "a fox"}}),
    ("/api/schedules", {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}),
    ("/api/webhooks", {"url": "http://127.0.0.1:9/"}),
]
ONLY_WRONG = ("/api/scheduler/stop", "/scheduler/stop", "/api/webhooks", "/api/direct", "/api/slots")
"""What would end the scheduler, speak with others or wait for its turn is sent only what it has to refuse."""

WRITTEN_UNASKED = ("meta",)
"""By the scheduler for itself, at any time."""


class Said(NamedTuple):
    status: int
    media: str
    body: bytes


class Home:
    """A scheduler that starts nothing, with something of everything in it."""

    def __init__(self, rota: Rota, raw: Raw, tables: str) -> None:
        self.rota = rota
        self._raw = raw
        rota.start()
        for target, body in THERE:
            assert rota.api("POST", target, body).status == 201
        assert rota.api("POST", "/api/webhooks/webhook-1/disable").status == 200
        counted = [name for (name,) in raw(tables) if name not in WRITTEN_UNASKED]
        self._counting = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in counted)
        self.connection = rota.connection()

    def send(self, endpoint: Endpoint, body: Any, **headers: str) -> Said:
        target = endpoint.path.format(**PLACES)
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        self.connection.request(endpoint.method, target, body, {"Content-Type": "application/json", **named})
        response = self.connection.getresponse()
        said = Said(response.status, response.headers.get("content-type", ""), response.read())
        check(endpoint.method, target, said.status, response.headers, said.body)
        return said

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self._raw(self._counting))


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Iterator[Home]:
    rota = make_rota()
    rota.home.mkdir()
    (rota.home / "hold").touch()
    rota.ask("config", "set", "scheduler.hold_file", "hold")
    if request.param == "postgres":
        rota.ask("config", "set", "store.url", request.getfixturevalue("postgres_url"))
        schema: Schema = request.getfixturevalue("postgres_schema")
        made = Home(rota, schema.raw, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    else:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        made = Home(rota, sqlite_raw(rota.home / "rota.db"), tables)
    yield made
    made.connection.close()


class Form:
    """What the document says of an endpoint's body."""

    def __init__(self, endpoint: Endpoint) -> None:
        said = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]["requestBody"]
        schema = said["content"]["application/json"]["schema"]
        components = {"schemas": DOCUMENT["components"]["schemas"]}
        self.is_required = said["required"]
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


def faults_of(said: Said) -> Iterator[str]:
    """In what it is no refusal as all are."""
    if not 400 <= said.status < 500:
        yield f"{said.status} {said.body[:200]!r}"
        return
    problem = json.loads(said.body) if said.media == MEDIA else {}
    if problem.get("code") not in BY_CODE or problem["status"] != said.status or not problem["detail"]:
        yield f"no problem document: {said}"


def test_a_spoilt_body_is_refused_and_leaves_nothing_behind(home: Home) -> None:
    faults = [fault for endpoint in TAKING for fault in _faults(home, endpoint)]
    assert not faults, "\n".join(faults)
    assert home.rota.status()["trouble"] == []
    assert home.rota.api("POST", "/api/jobs", {"command": ["true"]}).status == 201


def _faults(home: Home, endpoint: Endpoint) -> list[str]:
    form, before = Form(endpoint), home.rows()
    faults: list[str] = []

    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(spoilt(plain(endpoint.sends), form.fields))
    def send(body: bytes) -> None:
        nonlocal before
        is_wrong = form.forbids(body)
        if not is_wrong and endpoint.path in ONLY_WRONG:
            return
        # Now and then in pieces, so that its size is not said before.
        sent = body if len(body) % 4 else (body[begin : begin + 1000] for begin in range(0, len(body), 1000))
        said = home.send(endpoint, sent, **({"Idempotency_Key": uuid4().hex} if endpoint.is_keyed else {}))
        after = home.rows()
        if is_wrong or said.status >= 400:
            asked = f"{endpoint.method} {endpoint.path} <- {body[:300]!r}"
            faults.extend(f"{asked}: {fault}" for fault in faults_of(said))
            if said.status >= 400 and after != before:
                faults.append(f"{asked}: {said.status}, and yet stored {set(after) - set(before)}")
        before = after

    send()
    return faults
