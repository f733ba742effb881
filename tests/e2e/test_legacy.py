"""CON-004: `/jobs` and `/scheduler` keep working on the same jobs as `/api`, and name their successors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually


class LegacyResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def call(rota: Rota, method: str, target: str, body: Any = None, **headers: str) -> LegacyResponse:
    """Send a request and check the deprecation headers of its response."""
    connection = rota.connection()
    try:
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        connection.request(method, target, payload, {key.replace("_", "-"): text for key, text in headers.items()})
        response = connection.getresponse()
        result = LegacyResponse(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()
    lower = {name.lower(): value for name, value in result.headers.items()}
    since, until = lower["deprecation"], parsedate_to_datetime(lower["sunset"])
    assert since.startswith("@")
    assert datetime.fromtimestamp(int(since[1:]), UTC) < until
    assert lower["link"].startswith("</api/")
    assert lower["link"].endswith('>; rel="successor-version"')
    return result._replace(headers=lower)


def successor(result: LegacyResponse) -> str:
    return result.headers["link"].partition(">")[0].removeprefix("<")


@pytest.fixture
def story_home(rota: Rota, children: ChildControl) -> Rota:
    """A home with a template `story`, and a template `deep` for jobs of type `research`."""
    rota.start()
    templates: list[dict[str, Any]] = [
        {
            "name": "story",
            "command": [*children.immediate("{topic}")[1:-1], "{code}"],
            "default_params": {"code": 0},
            "params_schema": {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]},
        },
        {
            "name": "deep",
            "type": "research",
            "command": children.immediate_argv("{topic}"),
            "default_params": {"topic": "fear"},
        },
    ]
    for template in templates:
        assert rota.api("POST", "/api/job-templates", template).status == 201
    return rota


def pause(rota: Rota) -> None:
    assert rota.api("POST", "/api/scheduler/pause").status == 200


def test_con_004_old_and_new_endpoints_see_the_same_jobs(story_home: Rota, children: ChildControl) -> None:
    pause(story_home)
    old = call(story_home, "POST", "/jobs", {"type": "story", "params": {"topic": "light"}, "priority": 5})
    assert old.status == 201
    created = old.json()
    new = story_home.post_job(["true"], name="new")
    assert (created["job_id"], created["id"], new) == ("job-1", "job-1", "job-2")
    assert (created["job_type"], created["status"], created["params"]) == (
        "story",
        "QUEUED",
        {"code": 0, "topic": "light"},
    )
    assert (created["template_id"], created["priority"], created["result"]) == ("template-1", 5, "submitted")

    listed = call(story_home, "GET", "/jobs").json()
    assert set(listed) == {"jobs", "total", "queued_count", "running_count"}
    assert [job["job_id"] for job in listed["jobs"]] == ["job-2", "job-1"]
    assert (listed["total"], listed["queued_count"], listed["running_count"]) == (2, 2, 0)
    assert (
        call(story_home, "GET", "/jobs/1").json() == call(story_home, "GET", "/jobs/job-1").json() == listed["jobs"][1]
    )
    shown = {**story_home.show("job-1"), "policies": None}
    assert {name: call(story_home, "GET", "/jobs/1").json()[name] for name in shown} == shown

    call(story_home, "POST", "/scheduler/start")
    assert children.read_lines(2) == ["light begins", "light ends"]
    assert (
        story_home.wait_for_end("job-1")["status"] == call(story_home, "GET", "/jobs/1").json()["status"] == "COMPLETED"
    )
    story_home.wait_for_end("job-2")
    limited = call(story_home, "GET", "/jobs?limit=1").json()
    assert ([job["id"] for job in limited["jobs"]], limited["total"]) == (["job-2"], 2)
    assert call(story_home, "GET", "/jobs?status=succeeded").json()["total"] == 2
    assert call(story_home, "GET", "/jobs?status=queued&status=running").json()["jobs"] == []


def test_con_004_every_response_names_its_successor(story_home: Rota) -> None:
    job = story_home.post_job(["true"])
    story_home.wait_for_end(job)
    expected = {
        ("GET", "/jobs"): "/api/jobs",
        ("GET", "/jobs/1"): "/api/jobs/job-1",
        ("PATCH", "/jobs/job-1"): "/api/jobs/job-1",
        ("DELETE", "/jobs/1"): "/api/jobs/job-1/cancel",
        ("POST", "/jobs/1/cancel"): "/api/jobs/job-1/cancel",
        ("GET", "/jobs/1/runs"): "/api/jobs/job-1/runs",
        ("POST", "/jobs"): "/api/jobs",
        ("POST", "/jobs/nosuch/trigger"): "/api/jobs",
        ("POST", "/jobs/batch/trigger"): "/api/jobs/batch",
        ("GET", "/jobs/batch/7"): "/api/job-groups/group-7",
        ("POST", "/scheduler/start"): "/api/scheduler/resume",
        ("POST", "/scheduler/stop"): "/api/scheduler/pause",
        ("GET", "/scheduler/status"): "/api/scheduler",
        ("GET", "/jobs/%0d%0aX-Evil:%201"): "/api/jobs/%0D%0AX-Evil%3A%201",
        ("PUT", "/jobs"): "/api/jobs",
    }
    for (method, target), path in expected.items():
        result = call(story_home, method, target)
        assert successor(result) == path, (method, target)
        assert "x-evil" not in result.headers
    for target in ("/api/jobs", "/api/jobs/job-1", "/api/scheduler"):
        connection = story_home.connection()
        connection.request("GET", target)
        assert connection.getresponse().getheader("Deprecation") is None
        connection.close()
    log = (story_home.home / "rota.log").read_text()
    assert log.count("GET /jobs/{job_id} is deprecated") == 1


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/jobs/job-9", None, 404, "no such job: job-9"),
    ("GET", "/jobs/9/runs", None, 404, "no such job: job-9"),
    ("PATCH", "/jobs/9", {"priority": 1}, 404, "no such job: job-9"),
    ("DELETE", "/jobs/9", None, 404, "no such job: job-9"),
    ("POST", "/jobs/9/cancel", None, 404, "no such job: job-9"),
    ("GET", "/jobs/batch/group-9", None, 404, "group-9"),
    ("GET", "/jobs/0", None, 422, "not a job id: 'job-0'"),
    ("GET", "/jobs/run-1", None, 422, "not a job id: 'run-1'"),
    ("GET", "/jobs/batch/x", None, 422, "not a group id: 'x'"),
    ("GET", "/jobs?limit=0", None, 422, "limit"),
    ("GET", "/jobs?status=odd", None, 422, "unknown status 'odd'"),
    ("GET", "/jobs?type=story", None, 422, "unknown query parameter 'type'"),
    ("PATCH", "/jobs/1", {}, 422, "the edit is empty"),
    ("PATCH", "/jobs/1", {"status": "CANCELLED"}, 422, "status"),
    ("PATCH", "/jobs/1", b"{", 422, "the request body cannot be used"),
    ("POST", "/jobs", {}, 422, "set `type`"),
    ("POST", "/jobs", {"typ": "story"}, 422, "unknown field `typ`"),
    ("POST", "/jobs", {"type": "nosuch"}, 404, "no template has the name nosuch"),
    ("POST", "/jobs", {"type": "story"}, 422, "topic"),
    ("POST", "/jobs", {"type": "story", "params": []}, 422, "params"),
    ("POST", "/jobs", {"command": ["true"], "webhook_url": "http://a.example", "webhook_events": ["won"]}, 422, "won"),
    ("POST", "/jobs/nosuch/trigger", {}, 404, "no template has the name nosuch"),
    ("POST", "/jobs/story/trigger", [], 422, "the request body cannot be used"),
    ("POST", "/jobs/story/trigger", {"priority": "high", "topic": "x"}, 422, "priority"),
    ("POST", "/jobs/batch/trigger", {}, 422, "jobs"),
    ("POST", "/jobs/batch/trigger", {"jobs": []}, 422, "jobs"),
    ("POST", "/jobs/batch/trigger", {"jobs": [{"type": "deep"}, {"type": "nosuch"}]}, 404, "nosuch"),
    ("POST", "/scheduler/stop", {"timeout": 0}, 422, "timeout"),
    ("POST", "/scheduler/start", {"now": True}, 422, "unknown field `now`"),
]


def test_con_004_invalid_request_gets_a_problem_and_stores_nothing(story_home: Rota) -> None:
    for method, target, body, status, text in REFUSED:
        result = call(story_home, method, target, body)
        assert result.status == status, (method, target, result)
        assert result.headers["content-type"] == "application/problem+json"
        assert result.json()["status"] == status
        assert text in result.json()["detail"], result
    assert call(story_home, "POST", "/jobs/batch/trigger", {"jobs": [{"type": "deep"}, {"priority": 1}]}).json()[
        "path"
    ] == ("$.jobs[1].type")
    assert call(story_home, "GET", "/jobs").json()["total"] == 0


def test_con_004_trigger_runs_the_template_of_the_type(story_home: Rota, children: ChildControl) -> None:
    flat = call(
        story_home,
        "POST",
        "/jobs/story/trigger",
        {"topic": "light", "code": 0, "model": None, "webhook_url": None, "webhook_events": ["succeeded", "failed"]},
    )
    assert flat.status == 202
    assert set(flat.json()) == {"job_id", "type", "status", "message"}
    assert (flat.json()["job_id"], flat.json()["type"]) == ("job-1", "story")
    assert flat.json()["status"] in ("queued", "running")
    assert story_home.wait_for_end("job-1")["params"] == {"code": 0, "topic": "light"}
    by_type = call(story_home, "POST", "/jobs/research/trigger")
    assert (by_type.status, by_type.json()["type"]) == (202, "research")
    assert story_home.wait_for_end("job-2")["template"] == "template-2"
    nested = call(story_home, "POST", "/jobs/story/trigger", {"params": {"topic": "sea"}, "priority": 3})
    assert nested.status == 202
    assert (story_home.wait_for_end("job-3")["params"]["topic"], story_home.show("job-3")["priority"]) == ("sea", 3)
    bare = call(story_home, "POST", "/jobs/adhoc/trigger", {"command": ["true"]})
    assert (bare.status, bare.json()["type"], story_home.wait_for_end("job-4")["status"]) == (202, "adhoc", "COMPLETED")
    assert children.read_lines(6) == [
        f"{name} {verb}" for name in ("light", "fear", "sea") for verb in ("begins", "ends")
    ]
    assert (
        story_home.api("POST", "/api/job-templates", {"name": "also", "type": "research", "command": ["true"]}).status
        == 201
    )
    several = call(story_home, "POST", "/jobs/research/trigger")
    assert (several.status, "deep, also" in several.json()["detail"] or "also, deep" in several.json()["detail"]) == (
        409,
        True,
    )


def test_con_004_legacy_jobs_are_retried_three_times(make_rota: Callable[..., Rota], children: ChildControl) -> None:
    rota = make_rota()
    rota.start()
    (rota.home / "rota.toml").write_text('[retry]\nbase = "10ms"\n')
    assert call(rota, "POST", "/jobs", {"command": children.immediate_argv("old", 1)}).status == 201
    assert call(rota, "POST", "/jobs", {"command": children.immediate_argv("explicit", 1), "retries": 0}).status == 201
    rota.post_job(children.immediate("new", 1))
    for job in ("job-1", "job-2", "job-3"):
        assert rota.wait_for_end(job)["permanently_failed"]
    received = children.read_available()
    assert [sum(line == f"{name} begins" for line in received) for name in ("old", "explicit", "new")] == [4, 1, 1]
    # Each retry is a separate job; the original job keeps its own result.
    jobs = call(rota, "GET", "/jobs?status=error").json()["jobs"]
    assert sorted(job["attempt"] for job in jobs) == [1, 1, 1, 2, 3, 4]
    first = call(rota, "GET", "/jobs/1").json()
    assert (first["status"], first["error"]) == ("FAILED", first["run"]["error"])
    assert next(job for job in jobs if job["attempt"] == 2)["retry_of"] == "job-1"


def test_con_004_batch_is_a_group_that_continues_after_a_failure(story_home: Rota, children: ChildControl) -> None:
    pause(story_home)
    jobs = [
        {"type": "story", "topic": "bad", "code": 3},
        {"type": "story", "params": {"topic": "good"}},
        {"command": ["true"], "type": "extra"},
    ]
    created = call(story_home, "POST", "/jobs/batch/trigger", {"jobs": jobs})
    assert created.status == 202
    assert created.json() == {
        "batch_id": "group-1",
        "job_ids": ["job-1", "job-2", "job-3"],
        "job_count": 3,
        "status": "queued",
        "message": "3 jobs are in the queue",
    }
    waiting = call(story_home, "GET", "/jobs/batch/1").json()
    assert (waiting["status"], waiting["queued_jobs"], waiting["finished_at"]) == ("queued", 3, None)
    assert story_home.api("GET", "/api/job-groups/group-1").json()["on_failure"] == "continue"
    assert call(story_home, "PATCH", "/jobs/1", {"retries": 0}).status == 200
    call(story_home, "POST", "/scheduler/start")
    assert story_home.api("GET", "/api/job-groups/group-1?wait=60").json()["status"] == "PARTIAL"
    ended = call(story_home, "GET", "/jobs/batch/group-1").json()
    assert {name: ended[name] for name in ended if name.endswith("_jobs")} == {
        "total_jobs": 3,
        "completed_jobs": 3,
        "succeeded_jobs": 2,
        "failed_jobs": 1,
        "running_jobs": 0,
        "queued_jobs": 0,
    }
    assert ended["status"] == "partial"
    assert ended["finished_at"] is not None
    assert [(job["job_id"], job["type"], job["status"]) for job in ended["jobs"]] == [
        ("job-1", "story", "failed"),
        ("job-2", "story", "succeeded"),
        ("job-3", "extra", "succeeded"),
    ]
    assert ended["jobs"][0]["error"]
    assert children.read_lines(4) == ["bad begins", "bad ends", "good begins", "good ends"]


def test_con_004_queued_job_is_edited_or_deleted_and_running_job_only_cancelled(
    rota: Rota, children: ChildControl
) -> None:
    rota.start()
    runs = rota.post_job(children.gated("runs"))
    waits = rota.post_job(["true"], params={"a": 1})
    assert children.read_lines() == ["runs begins"]
    rota.wait_for_start(runs)
    changed = call(rota, "PATCH", "/jobs/2", {"priority": 7, "params": {"a": 2}})
    assert (changed.status, changed.json()["fields"]) == (200, ["params", "priority"])
    assert (changed.json()["job_id"], rota.show(waits)["params"], rota.show(waits)["priority"]) == (waits, {"a": 2}, 7)
    frozen = call(rota, "PATCH", "/jobs/1", {"params": {"a": 3}})
    assert (frozen.status, "Cannot modify params after dispatch" in frozen.json()["detail"]) == (409, True)

    refused = call(rota, "DELETE", "/jobs/1")
    assert (refused.status, "is RUNNING" in refused.json()["detail"]) == (409, True)
    deleted = call(rota, "DELETE", "/jobs/2").json()
    assert (deleted["job_id"], deleted["success"], deleted["message"]) == ("job-2", True, "job-2 is CANCELLED")
    assert rota.show(waits)["status"] == "CANCELLED"
    assert rota.show(runs)["status"] == "RUNNING"
    cancelled = call(rota, "POST", "/jobs/1/cancel").json()
    assert (cancelled["success"], cancelled["status"], cancelled["exit_code"]) == (True, "CANCELLED", 143)
    runs_of = call(rota, "GET", "/jobs/job-1/runs").json()
    (run,) = runs_of["runs"]
    assert (runs_of["total"], run["run_id"], run["job_id"], run["status"]) == (1, "run-1", "job-1", "CANCELLED")
    assert (run["log_path"], run["params_snapshot"]) == (run["log_paths"]["stdout"], {})
    assert {name: run[name] for name in ("id", "job", "worker")} == {
        name: rota.api("GET", "/api/jobs/job-1/runs").json()["runs"][0][name] for name in ("id", "job", "worker")
    }
    assert call(rota, "GET", "/jobs/2/runs").json() == {"runs": [], "total": 0}
    rota.wait_for_end(rota.post_job(["true"]))
    ended = call(rota, "DELETE", "/jobs/3")
    assert (ended.status, "has already ended (COMPLETED)" in ended.json()["detail"]) == (409, True)


def test_con_004_stop_and_start_are_pause_and_resume(rota: Rota, children: ChildControl) -> None:
    rota.start()
    runs = rota.post_job(children.gated("runs"))
    assert children.read_lines() == ["runs begins"]
    rota.wait_for_start(runs)
    status = call(rota, "GET", "/scheduler/status").json()
    assert (status["scheduler_running"], status["current_job_id"], status["queue_length"]) == (True, runs, 0)
    stopped = call(rota, "POST", "/scheduler/stop").json()
    assert stopped == {"success": True, "message": f"the scheduler starts no more jobs; still running: {runs}"}
    assert rota.status()["paused"]
    waits = rota.post_job(["true"])
    children.release("runs")
    repeated_stop = call(rota, "POST", "/scheduler/stop", {"timeout": 60}).json()
    assert repeated_stop == {"success": True, "message": "the scheduler was stopped already"}
    status = call(rota, "GET", "/scheduler/status").json()
    assert status == {
        "scheduler_running": False,
        "current_job_id": None,
        "queue_length": 1,
        "cumulative_stats": {"total_executed": 1, "succeeded": 1, "failed": 0, "cancelled": 0, "skipped": 0},
        "has_active_reservation": False,
    }
    assert rota.show(waits)["status"] == "QUEUED"
    started = call(rota, "POST", "/scheduler/start", {"run_recovery": False}).json()
    assert started == {"success": True, "message": "the scheduler starts jobs again", "recovery_stats": None}
    assert rota.wait_for_end(waits)["status"] == "COMPLETED"
    assert call(rota, "POST", "/scheduler/start").json()["message"] == "the scheduler was not stopped"


def test_con_004_start_of_a_held_scheduler_is_not_a_success(make_rota: Callable[..., Rota]) -> None:
    rota = make_rota()
    rota.start()
    (rota.home / "rota.toml").write_text(f'[scheduler]\nhold_file = "{rota.home}/hold"\n')
    assert rota.api("POST", "/api/scheduler/reload").status == 200
    (rota.home / "hold").write_text("repairs\n")
    assert call(rota, "POST", "/scheduler/start").json()["success"] is False
    assert eventually(lambda: not call(rota, "GET", "/scheduler/status").json()["scheduler_running"])


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/jobs", {"command": ["true"]}),
        ("/jobs/adhoc/trigger", {"command": ["true"]}),
        ("/jobs/batch/trigger", {"jobs": [{"command": ["true"]}]}),
    ],
)
def test_con_004_repeated_key_creates_one_job(rota: Rota, target: str, body: Any) -> None:
    rota.start()
    first = call(rota, "POST", target, body, Idempotency_Key="k1")
    rota.crash()
    rota.start()
    repeated = call(rota, "POST", target, body, Idempotency_Key="k1")
    assert (repeated.status, repeated.body) == (first.status, first.body)
    assert repeated.headers["idempotent-replayed"] == "true"
    assert call(rota, "POST", target, {**body, "webhook_url": "http://a.example"}, Idempotency_Key="k1").status == 422
    assert call(rota, "GET", "/jobs").json()["total"] == 1


def test_con_004_new_statuses_map_to_legacy_statuses(rota: Rota) -> None:
    """DEC-006: a status without a legacy equivalent maps to the nearest one; `/api` returns it exactly."""
    rota.start()
    pause(rota)
    first = rota.post_job(["true"])
    after = rota.post_job(["true"], after=[{"job": first}])
    assert rota.wait_while(after, "QUEUED")["status"] == "WAITING_ON_DEPS"
    assert call(rota, "GET", f"/jobs/{after}").json()["status"] == "QUEUED"
    assert call(rota, "GET", "/jobs?status=queued").json()["total"] == 2
    assert call(rota, "GET", "/jobs?status=waiting_on_deps").json()["total"] == 1
    assert call(rota, "DELETE", f"/jobs/{first}").status == 200
    assert rota.wait_for_end(after)["status"] == "BLOCKED_BY_DEPENDENCY"
    blocked = call(rota, "GET", f"/jobs/{after}").json()
    assert (blocked["status"], blocked["error"]) == ("FAILED", f"dependency failed for job {first} (CANCELLED)")
    assert rota.api("GET", "/api/jobs?status=succeeded").status == 422


def test_dec_006_one_set_of_statuses_over_http(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(-1)
    commands = {
        "COMPLETED": {"command": ["true"]},
        "FAILED": {"command": ["false"]},
        "SKIPPED": {"command": ["true"], "skip_if": "true"},
        "CANCELLED": {"command": ["sleep", "1000"]},
    }
    batch = {"jobs": list(commands.values()), "group": {"name": "all", "on_failure": "continue"}}
    jobs = rota.api("POST", "/api/jobs/batch", batch).json()["jobs"]
    rota.wait_for_start(jobs[3])
    assert rota.api("POST", f"/api/jobs/{jobs[3]}/cancel").json()["status"] == "CANCELLED"
    for job, status in zip(jobs, commands, strict=True):
        assert rota.wait_for_end(job)["status"] == rota.show(job)["run"]["status"] == status
        (run,) = rota.api("GET", f"/api/jobs/{job}/runs").json()["runs"]
        assert run["status"] == status
        assert [job["id"] for job in rota.api("GET", f"/api/jobs?status={status}").json()["jobs"]] == [job]
    counts = dict.fromkeys(commands, 1)
    assert rota.api("GET", "/api/job-groups/all?wait=60").json()["counts"] == counts
    assert rota.api("GET", "/api/jobs").json()["counts"] == counts
    for word in ("succeeded", "error", "canceled", "dispatched"):
        refused = rota.api("GET", f"/api/jobs?status={word}")
        assert (refused.status, f"unknown status in {word}" in refused.json()["detail"]) == (422, True)
        assert call(rota, "GET", f"/jobs?status={word}").status == 200
    assert "unknown status in" in rota.api("GET", "/api/jobs?status=queued&status=odd").json()["detail"]


def test_con_004_custom_route_cannot_hide_legacy_endpoints(rota: Rota) -> None:
    rota.start()
    assert "no template has the name nosuch" in call(rota, "POST", "/jobs/nosuch/trigger").json()["detail"]
    for path in ("/jobs/story", "/scheduler/start"):
        refused = rota.run("config", "set", f'direct.routes."{path}"', "story", code=None)
        assert refused.code != 0, refused
        assert "reserved path" in refused.err
