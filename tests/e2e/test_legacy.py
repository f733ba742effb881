"""CON-004: what asks `/jobs` and `/scheduler` goes on working, over the jobs that all see, and is told to move."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import pytest

from e2e.rig import Rota, Stage, eventually


class Told(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(rota: Rota, method: str, target: str, body: Any = None, **headers: str) -> Told:
    """With the headers of the answer, which are looked at each time."""
    connection = rota.connection()
    try:
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        connection.request(method, target, payload, {key.replace("_", "-"): text for key, text in headers.items()})
        response = connection.getresponse()
        told = Told(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()
    lower = {name.lower(): value for name, value in told.headers.items()}
    since, until = lower["deprecation"], parsedate_to_datetime(lower["sunset"])
    assert since.startswith("@")
    assert datetime.fromtimestamp(int(since[1:]), UTC) < until
    assert lower["link"].startswith("</api/")
    assert lower["link"].endswith('>; rel="successor-version"')
    return told._replace(headers=lower)


def successor(told: Told) -> str:
    return told.headers["link"].partition(">")[0].removeprefix("<")


@pytest.fixture
def story(rota: Rota, stage: Stage) -> Rota:
    """With a template that says its topic, and one of another name for jobs of a type."""
    rota.start()
    templates: list[dict[str, Any]] = [
        {"name": "story", "command": [*stage.walk_on("{topic}")[1:-1], "{code}"], "default_params": {"code": 0},
         "params_schema": {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}},
        {"name": "deep", "type": "research", "command": [*stage.walk_on("{topic}")[1:]],
         "default_params": {"topic": "fear"}},
    ]  # fmt: skip
    for template in templates:
        assert rota.api("POST", "/api/job-templates", template).status == 201
    return rota


def hold(rota: Rota) -> None:
    assert rota.api("POST", "/api/scheduler/pause").status == 200


def test_con_004_old_and_new_endpoints_see_the_same_jobs(story: Rota, stage: Stage) -> None:
    hold(story)
    old = ask(story, "POST", "/jobs", {"type": "story", "params": {"topic": "light"}, "priority": 5})
    assert old.status == 201
    made = old.json()
    new = story.post(["true"], name="new")
    assert (made["job_id"], made["id"], new) == ("job-1", "job-1", "job-2")
    assert (made["job_type"], made["status"], made["params"]) == ("story", "QUEUED", {"code": 0, "topic": "light"})
    assert (made["template_id"], made["priority"], made["result"]) == ("template-1", 5, "submitted")

    listed = ask(story, "GET", "/jobs").json()
    assert set(listed) == {"jobs", "total", "queued_count", "running_count"}
    assert [job["job_id"] for job in listed["jobs"]] == ["job-2", "job-1"]
    assert (listed["total"], listed["queued_count"], listed["running_count"]) == (2, 2, 0)
    assert ask(story, "GET", "/jobs/1").json() == ask(story, "GET", "/jobs/job-1").json() == listed["jobs"][1]
    shown = story.show("job-1")
    assert {name: ask(story, "GET", "/jobs/1").json()[name] for name in shown} == shown

    ask(story, "POST", "/scheduler/start")
    assert stage.hear(2) == ["light begins", "light ends"]
    assert story.ended("job-1")["status"] == ask(story, "GET", "/jobs/1").json()["status"] == "COMPLETED"
    story.ended("job-2")
    limited = ask(story, "GET", "/jobs?limit=1").json()
    assert ([job["id"] for job in limited["jobs"]], limited["total"]) == (["job-2"], 2)
    assert ask(story, "GET", "/jobs?status=succeeded").json()["total"] == 2
    assert ask(story, "GET", "/jobs?status=queued&status=running").json()["jobs"] == []


def test_con_004_every_answer_names_what_to_ask_instead(story: Rota) -> None:
    job = story.post(["true"])
    story.ended(job)
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
        told = ask(story, method, target)
        assert successor(told) == path, (method, target)
        assert "x-evil" not in told.headers
    for target in ("/api/jobs", "/api/jobs/job-1", "/api/scheduler"):
        connection = story.connection()
        connection.request("GET", target)
        assert connection.getresponse().getheader("Deprecation") is None
        connection.close()
    log = (story.home / "rota.log").read_text()
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
    ("GET", "/jobs?type=story", None, 422, "nothing is asked by 'type' here"),
    ("PATCH", "/jobs/1", {}, 422, "nothing is to be changed"),
    ("PATCH", "/jobs/1", {"status": "CANCELLED"}, 422, "status"),
    ("PATCH", "/jobs/1", b"{", 422, "the request body cannot be used"),
    ("POST", "/jobs", {}, 422, "name a `type`"),
    ("POST", "/jobs", {"typ": "story"}, 422, "unknown field `typ`"),
    ("POST", "/jobs", {"type": "nosuch"}, 404, "no template is called nosuch"),
    ("POST", "/jobs", {"type": "story"}, 422, "topic"),
    ("POST", "/jobs", {"type": "story", "params": []}, 422, "params"),
    ("POST", "/jobs", {"command": ["true"], "webhook_url": "http://a.example", "webhook_events": ["won"]}, 422, "won"),
    ("POST", "/jobs/nosuch/trigger", {}, 404, "no template is called nosuch"),
    ("POST", "/jobs/story/trigger", [], 422, "the request body cannot be used"),
    ("POST", "/jobs/story/trigger", {"priority": "high", "topic": "x"}, 422, "priority"),
    ("POST", "/jobs/batch/trigger", {}, 422, "jobs"),
    ("POST", "/jobs/batch/trigger", {"jobs": []}, 422, "jobs"),
    ("POST", "/jobs/batch/trigger", {"jobs": [{"type": "deep"}, {"type": "nosuch"}]}, 404, "nosuch"),
    ("POST", "/scheduler/stop", {"timeout": 0}, 422, "timeout"),
    ("POST", "/scheduler/start", {"now": True}, 422, "unknown field `now`"),
]


def test_con_004_what_cannot_be_done_is_refused_as_everywhere_and_leaves_nothing(story: Rota) -> None:
    for method, target, body, status, text in REFUSED:
        told = ask(story, method, target, body)
        assert told.status == status, (method, target, told)
        assert told.headers["content-type"] == "application/problem+json"
        assert told.json()["status"] == status
        assert text in told.json()["detail"], told
    assert ask(story, "POST", "/jobs/batch/trigger", {"jobs": [{"type": "deep"}, {"priority": 1}]}).json()["path"] == (
        "$.jobs[1].type"
    )
    assert ask(story, "GET", "/jobs").json()["total"] == 0


def test_con_004_a_trigger_runs_the_template_that_the_type_stands_for(story: Rota, stage: Stage) -> None:
    flat = ask(story, "POST", "/jobs/story/trigger", {"topic": "light", "code": 0, "model": None, "webhook_url": None,
                                                     "webhook_events": ["succeeded", "failed"]})  # fmt: skip
    assert flat.status == 202
    assert set(flat.json()) == {"job_id", "type", "status", "message"}
    assert (flat.json()["job_id"], flat.json()["type"]) == ("job-1", "story")
    assert flat.json()["status"] in ("queued", "running")
    assert story.ended("job-1")["params"] == {"code": 0, "topic": "light"}
    by_type = ask(story, "POST", "/jobs/research/trigger")
    assert (by_type.status, by_type.json()["type"]) == (202, "research")
    assert story.ended("job-2")["template"] == "template-2"
    nested = ask(story, "POST", "/jobs/story/trigger", {"params": {"topic": "sea"}, "priority": 3})
    assert nested.status == 202
    assert (story.ended("job-3")["params"]["topic"], story.show("job-3")["priority"]) == ("sea", 3)
    bare = ask(story, "POST", "/jobs/adhoc/trigger", {"command": ["true"]})
    assert (bare.status, bare.json()["type"], story.ended("job-4")["status"]) == (202, "adhoc", "COMPLETED")
    assert stage.hear(6) == [
        f"{name} {verb}" for name in ("light", "fear", "sea") for verb in ("begins", "ends")
    ]  # fmt: skip
    assert (
        story.api("POST", "/api/job-templates", {"name": "also", "type": "research", "command": ["true"]}).status == 201
    )
    several = ask(story, "POST", "/jobs/research/trigger")
    assert (several.status, "deep, also" in several.json()["detail"] or "also, deep" in several.json()["detail"]) == (
        409, True,
    )  # fmt: skip


def test_con_004_jobs_made_here_are_retried_three_times(make_rota: Callable[..., Rota], stage: Stage) -> None:
    rota = make_rota()
    rota.start()
    (rota.home / "rota.toml").write_text('[retry]\nbase = "10ms"\n')
    assert ask(rota, "POST", "/jobs", {"command": stage.walk_on("old", 1)[1:]}).status == 201
    assert ask(rota, "POST", "/jobs", {"command": stage.walk_on("asked", 1)[1:], "retries": 0}).status == 201
    rota.post(stage.walk_on("new", 1))
    for job in ("job-1", "job-2", "job-3"):
        assert rota.ended(job)["permanently_failed"]
    heard = stage.heard()
    assert [sum(line == f"{name} begins" for line in heard) for name in ("old", "asked", "new")] == [4, 1, 1]
    # Each retry is a job of its own, and the one that was made says how it ended itself.
    jobs = ask(rota, "GET", "/jobs?status=error").json()["jobs"]
    assert sorted(job["attempt"] for job in jobs) == [1, 1, 1, 2, 3, 4]
    first = ask(rota, "GET", "/jobs/1").json()
    assert (first["status"], first["error"]) == ("FAILED", first["run"]["error"])
    assert next(job for job in jobs if job["attempt"] == 2)["retry_of"] == "job-1"


def test_con_004_a_batch_is_a_group_and_goes_on_when_one_fails(story: Rota, stage: Stage) -> None:
    hold(story)
    jobs = [
        {"type": "story", "topic": "bad", "code": 3},
        {"type": "story", "params": {"topic": "good"}},
        {"command": ["true"], "type": "extra"},
    ]
    made = ask(story, "POST", "/jobs/batch/trigger", {"jobs": jobs})
    assert made.status == 202
    assert made.json() == {
        "batch_id": "group-1", "job_ids": ["job-1", "job-2", "job-3"], "job_count": 3, "status": "queued",
        "message": "3 jobs are in the queue",
    }  # fmt: skip
    waiting = ask(story, "GET", "/jobs/batch/1").json()
    assert (waiting["status"], waiting["queued_jobs"], waiting["finished_at"]) == ("queued", 3, None)
    assert story.api("GET", "/api/job-groups/group-1").json()["on_failure"] == "continue"
    assert ask(story, "PATCH", "/jobs/1", {"retries": 0}).status == 200
    ask(story, "POST", "/scheduler/start")
    assert story.api("GET", "/api/job-groups/group-1?wait=60").json()["status"] == "PARTIAL"
    ended = ask(story, "GET", "/jobs/batch/group-1").json()
    assert {name: ended[name] for name in ended if name.endswith("_jobs")} == {
        "total_jobs": 3, "completed_jobs": 3, "succeeded_jobs": 2, "failed_jobs": 1, "running_jobs": 0,
        "queued_jobs": 0,
    }  # fmt: skip
    assert ended["status"] == "partial"
    assert ended["finished_at"] is not None
    assert [(job["job_id"], job["type"], job["status"]) for job in ended["jobs"]] == [
        ("job-1", "story", "failed"), ("job-2", "story", "succeeded"), ("job-3", "extra", "succeeded"),
    ]  # fmt: skip
    assert ended["jobs"][0]["error"]
    assert stage.hear(4) == ["bad begins", "bad ends", "good begins", "good ends"]


def test_con_004_what_waits_is_changed_and_deleted_and_what_runs_only_cancelled(rota: Rota, stage: Stage) -> None:
    rota.start()
    runs = rota.post(stage.actor("runs"))
    waits = rota.post(["true"], params={"a": 1})
    assert stage.hear() == ["runs begins"]
    rota.running(runs)
    changed = ask(rota, "PATCH", "/jobs/2", {"priority": 7, "params": {"a": 2}})
    assert (changed.status, changed.json()["fields"]) == (200, ["params", "priority"])
    assert (changed.json()["job_id"], rota.show(waits)["params"], rota.show(waits)["priority"]) == (waits, {"a": 2}, 7)
    frozen = ask(rota, "PATCH", "/jobs/1", {"params": {"a": 3}})
    assert (frozen.status, "Cannot modify params after dispatch" in frozen.json()["detail"]) == (409, True)

    spared = ask(rota, "DELETE", "/jobs/1")
    assert (spared.status, "is RUNNING" in spared.json()["detail"]) == (409, True)
    deleted = ask(rota, "DELETE", "/jobs/2").json()
    assert (deleted["job_id"], deleted["success"], deleted["message"]) == ("job-2", True, "job-2 is CANCELLED")
    assert rota.show(waits)["status"] == "CANCELLED"
    assert rota.show(runs)["status"] == "RUNNING"
    cancelled = ask(rota, "POST", "/jobs/1/cancel").json()
    assert (cancelled["success"], cancelled["status"], cancelled["exit_code"]) == (True, "CANCELLED", 143)
    runs_of = ask(rota, "GET", "/jobs/job-1/runs").json()
    (run,) = runs_of["runs"]
    assert (runs_of["total"], run["run_id"], run["job_id"], run["status"]) == (1, "run-1", "job-1", "CANCELLED")
    assert (run["log_path"], run["params_snapshot"]) == (run["log_paths"]["stdout"], {})
    assert {name: run[name] for name in ("id", "job", "worker")} == {
        name: rota.api("GET", "/api/jobs/job-1/runs").json()["runs"][0][name] for name in ("id", "job", "worker")
    }
    assert ask(rota, "GET", "/jobs/2/runs").json() == {"runs": [], "total": 0}
    rota.ended(rota.post(["true"]))
    over = ask(rota, "DELETE", "/jobs/3")
    assert (over.status, "has already ended (COMPLETED)" in over.json()["detail"]) == (409, True)


def test_con_004_stop_and_start_are_pause_and_resume(rota: Rota, stage: Stage) -> None:
    rota.start()
    runs = rota.post(stage.actor("runs"))
    assert stage.hear() == ["runs begins"]
    rota.running(runs)
    status = ask(rota, "GET", "/scheduler/status").json()
    assert (status["scheduler_running"], status["current_job_id"], status["queue_length"]) == (True, runs, 0)
    stopped = ask(rota, "POST", "/scheduler/stop").json()
    assert stopped == {"success": True, "message": f"the scheduler starts no more jobs; still running: {runs}"}
    assert rota.status()["paused"]
    waits = rota.post(["true"])
    stage.release("runs")
    patient = ask(rota, "POST", "/scheduler/stop", {"timeout": 60}).json()
    assert patient == {"success": True, "message": "the scheduler was stopped already"}
    status = ask(rota, "GET", "/scheduler/status").json()
    assert status == {
        "scheduler_running": False, "current_job_id": None, "queue_length": 1,
        "cumulative_stats": {"total_executed": 1, "succeeded": 1, "failed": 0, "cancelled": 0, "skipped": 0},
        "has_active_reservation": False,
    }  # fmt: skip
    assert rota.show(waits)["status"] == "QUEUED"
    started = ask(rota, "POST", "/scheduler/start", {"run_recovery": False}).json()
    assert started == {"success": True, "message": "the scheduler starts jobs again", "recovery_stats": None}
    assert rota.ended(waits)["status"] == "COMPLETED"
    assert ask(rota, "POST", "/scheduler/start").json()["message"] == "the scheduler was not stopped"


def test_con_004_a_held_scheduler_does_not_claim_to_have_started(make_rota: Callable[..., Rota]) -> None:
    rota = make_rota()
    rota.start()
    (rota.home / "rota.toml").write_text(f'[scheduler]\nhold_file = "{rota.home}/hold"\n')
    assert rota.api("POST", "/api/scheduler/reload").status == 200
    (rota.home / "hold").write_text("repairs\n")
    assert ask(rota, "POST", "/scheduler/start").json()["success"] is False
    assert eventually(lambda: not ask(rota, "GET", "/scheduler/status").json()["scheduler_running"])


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/jobs", {"command": ["true"]}),
        ("/jobs/adhoc/trigger", {"command": ["true"]}),
        ("/jobs/batch/trigger", {"jobs": [{"command": ["true"]}]}),
    ],
)
def test_con_004_a_key_makes_one_of_many(rota: Rota, target: str, body: Any) -> None:
    rota.start()
    first = ask(rota, "POST", target, body, Idempotency_Key="k1")
    rota.crash()
    rota.start()
    again = ask(rota, "POST", target, body, Idempotency_Key="k1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert ask(rota, "POST", target, {**body, "webhook_url": "http://a.example"}, Idempotency_Key="k1").status == 422
    assert ask(rota, "GET", "/jobs").json()["total"] == 1


def test_con_004_statuses_of_today_are_told_in_the_words_of_then(rota: Rota) -> None:
    """DEC-006: what the old words cannot say is said by the nearest, and `/api` says it exactly."""
    rota.start()
    hold(rota)
    first = rota.post(["true"])
    after = rota.post(["true"], after=[{"job": first}])
    assert rota.leaves(after, "QUEUED")["status"] == "WAITING_ON_DEPS"
    assert ask(rota, "GET", f"/jobs/{after}").json()["status"] == "QUEUED"
    assert ask(rota, "GET", "/jobs?status=queued").json()["total"] == 2
    assert ask(rota, "GET", "/jobs?status=waiting_on_deps").json()["total"] == 1
    assert ask(rota, "DELETE", f"/jobs/{first}").status == 200
    assert rota.ended(after)["status"] == "BLOCKED_BY_DEPENDENCY"
    blocked = ask(rota, "GET", f"/jobs/{after}").json()
    assert (blocked["status"], blocked["error"]) == ("FAILED", f"dependency failed for job {first} (CANCELLED)")
    assert rota.api("GET", "/api/jobs?status=succeeded").status == 422


def test_dec_006_one_set_of_words_over_http(rota: Rota) -> None:
    rota.start()
    rota.set_global(-1)
    commands = {
        "COMPLETED": {"command": ["true"]},
        "FAILED": {"command": ["false"]},
        "SKIPPED": {"command": ["true"], "skip_if": "true"},
        "CANCELLED": {"command": ["sleep", "1000"]},
    }
    batch = {"jobs": list(commands.values()), "group": {"name": "all", "on_failure": "continue"}}
    jobs = rota.api("POST", "/api/jobs/batch", batch).json()["jobs"]
    rota.running(jobs[3])
    assert rota.api("POST", f"/api/jobs/{jobs[3]}/cancel").json()["status"] == "CANCELLED"
    for job, status in zip(jobs, commands, strict=True):
        assert rota.ended(job)["status"] == rota.show(job)["run"]["status"] == status
        (run,) = rota.api("GET", f"/api/jobs/{job}/runs").json()["runs"]
        assert run["status"] == status
        assert [each["id"] for each in rota.api("GET", f"/api/jobs?status={status}").json()["jobs"]] == [job]
    each = dict.fromkeys(commands, 1)
    assert rota.api("GET", "/api/job-groups/all?wait=60").json()["counts"] == each
    assert rota.api("GET", "/api/jobs").json()["counts"] == each
    for word in ("succeeded", "error", "canceled", "dispatched"):
        refused = rota.api("GET", f"/api/jobs?status={word}")
        assert (refused.status, f"unknown status in {word}" in refused.json()["detail"]) == (422, True)
        assert ask(rota, "GET", f"/jobs?status={word}").status == 200
    assert "unknown status in" in rota.api("GET", "/api/jobs?status=queued&status=odd").json()["detail"]


def test_con_004_no_route_of_ones_own_hides_them(rota: Rota) -> None:
    rota.start()
    assert "no template is called nosuch" in ask(rota, "POST", "/jobs/nosuch/trigger").json()["detail"]
    for path in ("/jobs/story", "/scheduler/start"):
        refused = rota.ask("config", "set", f'direct.routes."{path}"', "story", code=None)
        assert refused.code != 0, refused
        assert "Rota's own" in refused.err
