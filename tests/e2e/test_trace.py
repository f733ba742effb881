"""`TRACEPARENT`: real children of requests that carry a trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import Rota, eventually

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
STATE = "vendor=opaque,rojo=00f067aa0ba902b7"
SAY = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('TRACE')}), flush=True)"
SAY_TRACE = [sys.executable, "-c", SAY]


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Rota:
    """Its scheduler belongs to a trace itself, as one does that was started by a traced command."""
    rota = make_rota(TRACEPARENT=OTHER, TRACESTATE="of=scheduler")
    if request.param == "postgres":
        rota.ask("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    del rota.env["TRACEPARENT"], rota.env["TRACESTATE"]
    return rota


def post(rota: Rota, target: str, body: Any, **headers: str) -> Any:
    answer = rota.api("POST", target, body, **headers)
    assert answer.status in (200, 201), answer
    return answer.json()


def heard(rota: Rota, job: str) -> Any:
    rota.ended(job)
    return json.loads(rota.api("GET", f"/api/jobs/{job}/logs/stdout").body)


def test_a_request_with_a_trace_and_its_children(home: Rota) -> None:
    traced = post(home, "/api/jobs", {"command": SAY_TRACE}, traceparent=PARENT, tracestate=STATE)["job"]["id"]
    plain = post(home, "/api/jobs", {"command": SAY_TRACE})["job"]["id"]
    strange = post(home, "/api/jobs", {"command": SAY_TRACE}, traceparent=PARENT.upper())["job"]["id"]
    own = {"command": SAY_TRACE, "env": {"TRACEPARENT": OTHER}}
    own_job = post(home, "/api/jobs", own, traceparent=PARENT, tracestate=STATE)["job"]["id"]
    batch = post(home, "/api/jobs/batch", {"jobs": [{"command": SAY_TRACE}, own]}, traceparent=PARENT)["jobs"]
    assert heard(home, traced) == {"TRACEPARENT": PARENT, "TRACESTATE": STATE}
    assert heard(home, plain) == {}, "neither that of the scheduler nor that of the job before"
    assert heard(home, strange) == {}
    assert heard(home, own_job) == {"TRACEPARENT": OTHER}
    assert [heard(home, job) for job in batch] == [{"TRACEPARENT": PARENT}, {"TRACEPARENT": OTHER}]
    direct = post(home, "/api/direct", {"command": SAY_TRACE}, traceparent=PARENT)
    assert json.loads(direct["stdout"]) == {"TRACEPARENT": PARENT}


def test_it_outlasts_the_queue_a_crash_and_a_retry(home: Rota) -> None:
    home.ask("config", "set", "retry.base", "50ms")
    home.ask("pause")
    body = {"command": ["sh", "-c", f'{sys.executable} -c "$0"; exit 1', SAY], "retries": 1}
    job = post(home, "/api/jobs", body, traceparent=PARENT)["job"]["id"]
    home.crash()
    home.start()
    home.ask("resume")
    assert heard(home, job) == {"TRACEPARENT": PARENT}
    retried = eventually(lambda: next((each for each in home.jobs() if each["retry_of"] == job), None))
    assert heard(home, retried["id"]) == {"TRACEPARENT": PARENT}


def test_a_command_inside_a_traced_job_passes_it_on(rota: Rota) -> None:
    rota.start()
    rota.set_global(2)
    inner = f'{sys.executable} -m rota submit -- {sys.executable} -c "$0"'
    outer = post(rota, "/api/jobs", {"command": ["sh", "-c", inner, SAY]}, traceparent=PARENT, tracestate=STATE)
    rota.ended(outer["job"]["id"])
    job = rota.api("GET", f"/api/jobs/{outer['job']['id']}/logs/stdout").body.decode().strip()
    assert heard(rota, job) == {"TRACEPARENT": PARENT, "TRACESTATE": STATE}


def test_a_schedule_is_no_part_of_the_trace_that_made_it_and_its_trigger_is(rota: Rota) -> None:
    rota.start()
    rota.ask("schedule", "add", "nightly", "--cron", "0 3 * * *", "--", *SAY_TRACE, env={"TRACEPARENT": OTHER})
    by_hand = rota.ask("schedule", "trigger", "nightly")
    traced = rota.ask("schedule", "trigger", "nightly", env={"TRACEPARENT": PARENT, "TRACESTATE": "a=1"})
    assert heard(rota, by_hand.out.strip()) == {}
    assert heard(rota, traced.out.strip()) == {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}
