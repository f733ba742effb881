"""`TRACEPARENT` in real children of traced requests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.rig import Rota, eventually

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
STATE = "vendor=opaque,rojo=00f067aa0ba902b7"
PRINT_SCRIPT = (
    "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('TRACE')}), flush=True)"
)
PRINT_TRACE = [sys.executable, "-c", PRINT_SCRIPT]


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Rota:
    """A home with a scheduler that was started by a traced command."""
    rota = make_rota(TRACEPARENT=OTHER, TRACESTATE="of=scheduler")
    if request.param == "postgres":
        rota.run("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    del rota.env["TRACEPARENT"], rota.env["TRACESTATE"]
    return rota


def post(rota: Rota, target: str, body: Any, **headers: str) -> Any:
    response = rota.api("POST", target, body, **headers)
    assert response.status in (200, 201), response
    return response.json()


def read_trace(rota: Rota, job: str) -> Any:
    rota.wait_for_end(job)
    return json.loads(rota.api("GET", f"/api/jobs/{job}/logs/stdout").body)


def test_children_inherit_the_trace_of_their_request(home: Rota) -> None:
    traced = post(home, "/api/jobs", {"command": PRINT_TRACE}, traceparent=PARENT, tracestate=STATE)["job"]["id"]
    plain = post(home, "/api/jobs", {"command": PRINT_TRACE})["job"]["id"]
    invalid = post(home, "/api/jobs", {"command": PRINT_TRACE}, traceparent=PARENT.upper())["job"]["id"]
    own = {"command": PRINT_TRACE, "env": {"TRACEPARENT": OTHER}}
    own_job = post(home, "/api/jobs", own, traceparent=PARENT, tracestate=STATE)["job"]["id"]
    batch = post(home, "/api/jobs/batch", {"jobs": [{"command": PRINT_TRACE}, own]}, traceparent=PARENT)["jobs"]
    assert read_trace(home, traced) == {"TRACEPARENT": PARENT, "TRACESTATE": STATE}
    assert read_trace(home, plain) == {}, "not the trace of the scheduler or of the previous job"
    assert read_trace(home, invalid) == {}
    assert read_trace(home, own_job) == {"TRACEPARENT": OTHER}
    assert [read_trace(home, job) for job in batch] == [{"TRACEPARENT": PARENT}, {"TRACEPARENT": OTHER}]
    direct = post(home, "/api/direct", {"command": PRINT_TRACE}, traceparent=PARENT)
    assert json.loads(direct["stdout"]) == {"TRACEPARENT": PARENT}


def test_trace_survives_queue_crash_and_retry(home: Rota) -> None:
    home.run("config", "set", "retry.base", "50ms")
    home.run("pause")
    body = {"command": ["sh", "-c", f'{sys.executable} -c "$0"; exit 1', PRINT_SCRIPT], "retries": 1}
    job = post(home, "/api/jobs", body, traceparent=PARENT)["job"]["id"]
    home.crash()
    home.start()
    home.run("resume")
    assert read_trace(home, job) == {"TRACEPARENT": PARENT}
    retried = eventually(lambda: next((job_id for job_id in home.jobs() if job_id["retry_of"] == job), None))
    assert read_trace(home, retried["id"]) == {"TRACEPARENT": PARENT}


def test_submit_inside_a_traced_job_forwards_the_trace(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(2)
    inner = f'{sys.executable} -m rota submit -- {sys.executable} -c "$0"'
    outer = post(
        rota, "/api/jobs", {"command": ["sh", "-c", inner, PRINT_SCRIPT]}, traceparent=PARENT, tracestate=STATE
    )
    rota.wait_for_end(outer["job"]["id"])
    job = rota.api("GET", f"/api/jobs/{outer['job']['id']}/logs/stdout").body.decode().strip()
    assert read_trace(rota, job) == {"TRACEPARENT": PARENT, "TRACESTATE": STATE}


def test_scheduled_job_has_the_trace_of_its_trigger_only(rota: Rota) -> None:
    rota.start()
    rota.run("schedule", "add", "nightly", "--cron", "0 3 * * *", "--", *PRINT_TRACE, env={"TRACEPARENT": OTHER})
    by_hand = rota.run("schedule", "trigger", "nightly")
    traced = rota.run("schedule", "trigger", "nightly", env={"TRACEPARENT": PARENT, "TRACESTATE": "a=1"})
    assert read_trace(rota, by_hand.out.strip()) == {}
    assert read_trace(rota, traced.out.strip()) == {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}
