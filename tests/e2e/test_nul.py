"""NUL characters: refused by the API with their path, on both databases, except in params, which are JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.rig import Rota

JOB = {"command": ["true"]}
ROWS: list[tuple[str, str, Any, str]] = [
    ("POST", "/api/jobs", {**JOB, "name": "a\0b"}, "$.name"),
    ("POST", "/api/jobs", {**JOB, "base": "a\0b"}, "$.base"),
    ("POST", "/api/jobs", {"command": ["echo", "a\0b"]}, "$.command[1]"),
    ("POST", "/api/jobs", {**JOB, "env": {"A": "\0"}}, "$.env.A"),
    ("POST", "/api/jobs", {**JOB, "env": {"\0": "A"}}, "$.env"),
    ("POST", "/api/jobs/batch", {"jobs": [JOB, {**JOB, "needs": ["custom:a:\0"]}]}, "$.jobs[1].needs[0]"),
    ("POST", "/api/job-templates", {"name": "story", "command": ["true"], "description": "\0"}, "$.description"),
    ("POST", "/api/job-groups", {"name": "\0"}, "$.name"),
    ("POST", "/api/schedules", {"name": "n", "cron": "@yearly", "job": {**JOB, "name": "\0"}}, "$.job.name"),
    ("POST", "/api/artifacts", {"artifact": "custom:a:b", "payload": "\0"}, "$.payload"),
    ("DELETE", "/api/artifacts/custom:a:b%00", None, "$.artifact"),
    ("GET", "/api/job-groups/a%00b", None, "$.group"),
    ("GET", "/api/job-templates/a%00b", None, "$.template"),
    ("GET", "/api/jobs?group=a%00b", None, "$.group"),
    ("GET", "/api/job-runs?worker=a%00b", None, "$.worker"),
    ("GET", "/api/events?format=json&flow=a%00b", None, "$.flow"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Rota:
    rota = make_rota()
    if request.param == "postgres":
        rota.run("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    rota.set_global_size(0)
    return rota


def test_nul_is_refused_with_its_path(home: Rota) -> None:
    for method, target, body, path in ROWS:
        response = home.api(method, target, body)
        assert response.status == 422, (target, body, response)
        problem = response.json()
        assert (problem["path"], problem["detail"]) == (path, "a string contains a NUL character; remove it"), (
            target,
            problem,
        )
    assert home.jobs() == [], "nothing was stored"


def test_params_may_contain_nul(home: Rota) -> None:
    params = {"a\0": ["\0", {"b": "\0"}]}
    job = home.post_job(["true"], params=params)
    assert home.show(job)["params"] == params
    assert home.api("GET", "/api/jobs/job-1").json()["name"] == home.show(job)["name"]
    assert home.post_job(["true"], name="\\u0000 is not one").startswith("job-")


def test_nul_in_a_path_or_query_is_refused(rota_on_each_store: Rota) -> None:
    """PostgreSQL cannot store NUL in text. The request is refused without an internal error."""
    for target in ("/api/locks?key=%00", "/api/job-runs?worker=a%00", "/api/breakers?cursor=%00", "/api/jobs?name=%00"):
        assert rota_on_each_store.api("GET", target).status in (200, 422), target
    for target in ("/api/breakers/%00/reset", "/api/job-templates/%00", "/api/job-groups/%00/close"):
        method = "GET" if "templates" in target else "POST"
        assert rota_on_each_store.api(method, target).status in (404, 422), target
    assert rota_on_each_store.api("POST", "/api/reservations", {"template": "a\0"}).status in (404, 422)
