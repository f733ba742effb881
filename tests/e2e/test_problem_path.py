"""Problem documents name the path of the invalid field, for each endpoint and each field with a rule.

tests/http/test_validation_error.py tests the refusals by type.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from rota.http.endpoint import Endpoint
from rota.http.router import Router
from rota.routes import ENDPOINTS
from tests.e2e.rig import Rota


class Row(NamedTuple):
    """An invalid request and the path of its error."""

    method: str
    target: str
    body: Any
    path: str


def post(target: str, body: Any, path: str) -> Row:
    return Row("POST", target, body, path)


def get(target: str, path: str) -> Row:
    return Row("GET", target, None, path)


LONG = "x" * 201
REFUSED_URL = "http://169.254.169.254/"
VALID_URL = "http://127.0.0.1:9/"
JOB_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"command": []}, "command"),
    ({"command": ["true", "a" * 131072]}, "command[1]"),
    ({"command": [], "template": "none"}, "template"),
    ({"command": [], "template": "old"}, "template"),
    ({"template": "story"}, "command"),
    ({"command": [], "template": "story", "params": {"n": "one"}}, "params"),
    ({"command": [], "template": "story", "params": {}}, "params"),
    ({"params": {"a": "x" * 200_000}}, "params"),
    ({"name": "x" * 501}, "name"),
    ({"type": "a b"}, "type"),
    ({"flow": "*"}, "flow"),
    ({"target": "a b"}, "target"),
    ({"phase": "p"}, "phase"),
    ({"priority": 10**7}, "priority"),
    ({"pools": {"nothing": 1}}, "pools"),
    ({"pools": {"global": 0}}, "pools"),
    ({"locks": [{"key": "a"}, {"key": ""}]}, "locks[1]"),
    ({"unique": LONG}, "unique"),
    ({"delay": "soon"}, "delay"),
    ({"timeout": "0s"}, "timeout"),
    ({"idle_timeout": "5"}, "idle_timeout"),
    ({"skip_if": " "}, "skip_if"),
    ({"retries": -1}, "retries"),
    ({"retry": "never"}, "retry"),
    ({"cwd": "here"}, "cwd"),
    ({"env": {"": "x"}}, "env"),
    ({"env": {"A": "x", "B": 5}}, "env"),
    ({"pools": {"global": 1, "x": "2"}}, "pools"),
    ({"name": "\ud800"}, "name"),
    ({"command": ["true", "half \udc00"]}, "command[1]"),
    ({"needs": ["file:a", "plan:x"]}, "needs[1]"),
    ({"needs": ["file:a", "plan_doc:x"]}, "needs[1]"),
    ({"produces": ["file:a", "file:b", "file:"]}, "produces[2]"),
    ({"produces": ["command_patch:job-1"]}, "produces[0]"),
    ({"pin": "main@xyz"}, "pin"),
    ({"pin": "main"}, "pin"),
    ({"base": "main"}, "base"),
    ({"worktree": True}, "worktree"),
    ({"patch": True}, "patch"),
    ({"with_diff": True}, "with_diff"),
    ({"webhooks": [VALID_URL, REFUSED_URL]}, "webhooks[1]"),
    ({"webhooks": [VALID_URL], "webhook_events": ["job.blocked", "job.ended"]}, "webhook_events[1]"),
    ({"webhook_events": ["job.blocked"]}, "webhook_events"),
    # Values of the template follow those of the submit; an error in them is an error of the template.
    ({"command": [], "template": "story", "params": {"n": 1}, "locks": [{"key": "a"}, {"key": LONG}]}, "locks[1]"),
    ({"command": [], "template": "story", "params": {"n": 1}, "needs": ["plan:x"]}, "needs[0]"),
    ({"command": [], "template": "odd", "params": {"user": "a b"}}, "template"),
]
"""Invalid fields of a job, alone, in a batch or in a schedule."""
SUBMIT_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"after": [{"job": "job-1"}, {"job": "job-99"}]}, "after[1]"),
    ({"after": [{"job": "one"}]}, "after[0]"),
    ({"needs": ["file:/a", "command_patch:job-99"]}, "needs[1]"),
    ({"group": "unknown"}, "group"),
    ({"group": "over"}, "group"),
    ({"local": "job-1"}, "local"),
]
FIELDS_REFUSED_FOR_SCHEDULES: list[tuple[dict[str, Any], str]] = [
    ({"after": [{"job": "job-1"}]}, "after"),
    ({"group": "over"}, "group"),
    ({"local": "x"}, "local"),
]
TEMPLATE_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"name": "a b"}, "name"),
    ({"name": "story"}, "name"),
    ({"command": []}, "command"),
    ({"command": ["true", "a\0b"]}, "command[1]"),
    ({"params_schema": {"type": "array"}}, "params_schema"),
    ({"params_schema": {"properties": {"a": {"type": "nonsense"}}}}, "params_schema"),
    ({"default_params": {"a": "x" * 200_000}}, "default_params"),
    ({"job_name": "x" * 501}, "job_name"),
    ({"type": "a b"}, "type"),
    ({"priority": 10**7}, "priority"),
    ({"retry": "never"}, "retry"),
    ({"retries": 10**6}, "retries"),
    ({"pools": {"nothing": 1}}, "pools"),
    ({"locks": ["a", {"key": ""}]}, "locks[1]"),
    ({"needs": ["file:a", "plan:x"]}, "needs[1]"),
    ({"produces": ["plan_doc:"]}, "produces[0]"),
    ({"flow": "*"}, "flow"),
    ({"phase": "p"}, "phase"),
    ({"unique": LONG}, "unique"),
    ({"target": "a b"}, "target"),
    ({"timeout": "soon"}, "timeout"),
    ({"idle_timeout": "0s"}, "idle_timeout"),
    ({"skip_if": "test {user}", "default_params": {"user": "x"}}, "skip_if"),
    ({"base": "main"}, "base"),
    ({"env": {"": "x"}}, "env"),
    ({"webhooks": [REFUSED_URL]}, "webhooks[0]"),
    ({"webhooks": [VALID_URL], "webhook_events": ["job.ended"]}, "webhook_events[0]"),
]
RESERVATION_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"command": [""]}, "command"),
    ({"command": None, "template": "none"}, "template"),
    ({"command": None, "template": "tree"}, "template"),
    ({"command": None, "template": "story", "params": {"n": "one"}}, "params"),
    ({"command": None, "template": "odd", "params": {"user": "a b"}}, "template"),
    ({"name": "x" * 501}, "name"),
    ({"type": "a b"}, "type"),
    ({"flow": "*"}, "flow"),
    ({"target": "a b"}, "target"),
    ({"pools": {"nothing": 1}}, "pools"),
    ({"locks": [{"key": ""}]}, "locks[0]"),
    ({"timeout": "soon"}, "timeout"),
    ({"idle_timeout": "0s"}, "idle_timeout"),
    ({"cwd": "here"}, "cwd"),
    ({"env": {"": "x"}}, "env"),
    ({"wait": "soon"}, "wait"),
]


def jobs() -> list[Row]:
    rows = []
    for change, field in (*JOB_FIELDS, *SUBMIT_FIELDS):
        job = {"command": ["true"], **change}
        good = {"command": ["true"]}
        rows.append(post("/api/jobs", job, field))
        rows.append(post("/api/jobs/batch", {"jobs": [good, job]}, f"jobs[1].{field}"))
        rows.append(post("/api/jobs/batch?dry_run=1", {"jobs": [good, good, job]}, f"jobs[2].{field}"))
        if job != {"command": []} and field != "webhook_events":
            rows.append(post("/jobs", job, field))
    keys = [{"command": ["true"], "unique": "k"}] * 2
    member = {"command": ["true"], "group": "over"}
    rows += [
        post("/api/jobs/batch", {"jobs": keys}, "jobs[1].unique"),
        post("/api/jobs/batch", {"jobs": keys[:1], "cwd": "here"}, "cwd"),
        post("/api/jobs/batch", {"jobs": keys[:1], "env": {"": "x"}}, "env"),
        post("/api/jobs/batch", {"jobs": keys[:1], "group": {"name": "a b"}}, "group.name"),
        post("/api/jobs/batch", {"jobs": keys[:1], "group": {"on_failure": "x"}}, "group.on_failure"),
        post("/api/jobs/batch", {"jobs": [keys[0], member], "group": {}}, "jobs[1].group"),
    ]
    return rows


def edits() -> list[Row]:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"command": [""]}, "command"),
        ({"params": {"a": "x" * 200_000}}, "params"),
        ({"set_params": {"a": "x" * 200_000}}, "set_params"),
        ({"name": "x" * 501}, "name"),
        ({"priority": 10**7}, "priority"),
        ({"timeout": "0s"}, "timeout"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
        ({"retries": -1}, "retries"),
        ({"retry": "never"}, "retry"),
        ({"retry": None, "retries": 2}, "retry"),
        ({"delay": "soon"}, "delay"),
        ({"position": 3}, "position"),
    ]
    of_template: list[tuple[dict[str, Any], str]] = [
        ({"params": {"n": "one"}}, "params"),
        ({"set_params": {"n": "one"}}, "set_params"),
        ({"unset_params": ["n"]}, "unset_params"),
    ]
    return [
        *(Row("PATCH", f"{root}/job-1", change, path) for root in ("/api/jobs", "/jobs") for change, path in changes),
        *(
            Row("PATCH", f"{root}/job-3", change, path)
            for root in ("/api/jobs", "/jobs")
            for change, path in of_template
        ),
    ]


def schedules() -> list[Row]:
    good = {"name": "weekly", "cron": "0 3 * * 1", "job": {"command": ["true"]}}
    rows = [
        post("/api/schedules", {**good, "name": "a b"}, "name"),
        post("/api/schedules", {**good, "name": "nightly"}, "name"),
        post("/api/schedules", {**good, "cron": "61 * * * *"}, "cron"),
        post("/api/schedules", {**good, "cron": "0 0 30 2 *"}, "cron"),
        post("/api/schedules", {**good, "tz": "Mars/Olympus"}, "tz"),
        Row("PATCH", "/api/schedules/nightly", {"name": "a b"}, "name"),
        Row("PATCH", "/api/schedules/nightly", {"name": "other"}, "name"),
        Row("PATCH", "/api/schedules/nightly", {"cron": "@often"}, "cron"),
        Row("PATCH", "/api/schedules/nightly", {"tz": "Mars/Olympus"}, "tz"),
        Row("PATCH", "/api/schedules/nightly", {"job": {"timeout": 5}}, "job.timeout"),
        Row("PATCH", "/api/schedules/nightly", {"job": {"locks": [{"kez": "a"}]}}, "job.locks[0].kez"),
        Row("PATCH", "/api/schedules/nightly", {"job": {"nonsense": 5}}, "job.nonsense"),
        Row("PATCH", "/api/schedules/nightly", {"set_params": {"a": "x" * 200_000}}, "set_params"),
        Row("PATCH", "/api/schedules/other", {"set_params": {"n": "one"}}, "set_params"),
        Row("PATCH", "/api/schedules/other", {"unset_params": ["n"]}, "unset_params"),
        post("/api/schedules/other/trigger", {"params": {"n": "one"}}, "params"),
        post("/api/schedules/nightly/trigger", {"params": {"a": "x" * 200_000}}, "params"),
        get("/api/schedules?cursor=x", "cursor"),
        get("/api/schedules/nightly/next?from=soon", "from"),
    ]
    for change, field in (*JOB_FIELDS, *FIELDS_REFUSED_FOR_SCHEDULES):
        job = {"command": ["true"], **change}
        rows.append(post("/api/schedules", {**good, "job": job}, f"job.{field}"))
        rows.append(Row("PATCH", "/api/schedules/nightly", {"job": job}, f"job.{field}"))
    return rows


def templates() -> list[Row]:
    good = {"name": "new", "command": ["true"]}
    rows = []
    for change, field in TEMPLATE_FIELDS:
        rows.append(post("/api/job-templates", {**good, **change}, field))
        rows.append(Row("PATCH", "/api/job-templates/plain", change, field))
        rows.append(Row("PUT", "/api/job-templates/plain", {**good, **change}, field))
    large = {"set_default_params": {"a": "x" * 200_000}}
    return [
        *rows,
        Row("PATCH", "/api/job-templates/plain", large, "set_default_params"),
        Row("PUT", "/api/job-templates/plain", {**good, **large}, "set_default_params"),
        get("/api/job-templates?cursor=x", "cursor"),
    ]


def webhooks() -> list[Row]:
    good = {"url": VALID_URL}
    return [
        post("/api/webhooks", {"url": "ftp://x"}, "url"),
        post("/api/webhooks", {"url": REFUSED_URL}, "url"),
        post("/api/webhooks", {**good, "events": ["job.blocked", "job.ended"]}, "events[1]"),
        post("/api/webhooks", {**good, "secret": "weak"}, "secret"),
        post("/api/webhooks/webhook-1/rotate", {"secret": "weak"}, "secret"),
        post("/api/webhooks/webhook-1/rotate", {"keep_old_for": "long"}, "keep_old_for"),
        post("/api/webhooks/1/enable", None, "webhook"),
        get("/api/webhooks?cursor=x", "cursor"),
        get("/api/webhook-deliveries?state=sent", "state"),
        get("/api/webhook-deliveries?job=1", "job"),
        get("/api/webhook-deliveries?webhook=1", "webhook"),
        get("/api/webhook-deliveries?cursor=x", "cursor"),
    ]


def reservations() -> list[Row]:
    rows = [
        post(target, {"command": ["true"], **change}, field)
        for target in ("/api/reservations", "/api/direct")
        for change, field in RESERVATION_FIELDS
    ]
    return [
        *rows,
        post("/api/reservations", {"timeout": "1s"}, "timeout"),
        post("/api/reservations", {"idle_timeout": "1s"}, "idle_timeout"),
        post("/api/direct", {}, "command"),
        post("/api/reservations/reservation-1/signal", {"signal": "LOUD"}, "signal"),
        post("/api/reservations/reservation-1/signal", {"signal": "KILL"}, "signal"),
        post("/api/reservations/1/renew", None, "reservation"),
        get("/api/reservations?cursor=x", "cursor"),
        get("/api/reservations/reservation-1/stream?wait=soon", "wait"),
    ]


def others() -> list[Row]:
    artifact = {"artifact": "custom:a:b"}
    return [
        post("/api/artifacts", {"artifact": "plan:x"}, "artifact"),
        post("/api/artifacts", {"artifact": "plan_doc:x"}, "artifact"),
        post("/api/artifacts", {"artifact": "file:/not/there"}, "artifact"),
        post("/api/artifacts", {**artifact, "job": "1"}, "job"),
        post("/api/artifacts", {**artifact, "job": "job-99"}, "job"),
        post("/api/artifacts", {**artifact, "job": "job-1"}, "job"),
        post("/api/artifacts", {**artifact, "payload": "a\0b"}, "payload"),
        post("/api/artifacts", {**artifact, "cwd": "here"}, "cwd"),
        get("/api/artifacts?cursor=x", "cursor"),
        get("/api/artifacts/custom:a:b?cwd=here", "cwd"),
        Row("DELETE", "/api/artifacts/custom:a:b?cwd=here", None, "cwd"),
        Row("DELETE", "/api/artifacts/plan:x", None, "artifact"),
        post("/api/jobs/job-1/move", {"first": True, "last": True}, "last"),
        post("/api/jobs/job-1/move", {"to": 0}, "to"),
        post("/api/jobs/job-1/move", {"to": 9}, "to"),
        post("/api/jobs/job-1/move", {"before": "job-1"}, "before"),
        post("/api/jobs/job-1/move", {"before": "1"}, "before"),
        post("/api/jobs/job-1/move", {"after": "job-99"}, "after"),
        post("/api/queue/reorder", {"order": ["job-1", "2"]}, "order[1]"),
        post("/api/queue/reorder", {"order": ["job-1", "job-2", "job-1"]}, "order[2]"),
        post("/api/queue/reorder", {"order": ["job-1", "job-99"]}, "order[1]"),
        post("/api/job-groups", {"name": "a b"}, "name"),
        post("/api/job-groups", {"on_failure": "never"}, "on_failure"),
        get("/api/job-groups?cursor=x", "cursor"),
        get("/api/job-groups/over/progress?cursor=x", "cursor"),
        *(post(f"/api/scheduler/{verb}", {"scope": "nothing"}, "scope") for verb in ("pause", "resume", "clear")),
        post("/api/scheduler/clear", {"up_to": "1"}, "up_to"),
        post("/api/scheduler/gc", {"days": -1}, "days"),
        post("/api/scheduler/stop", {"grace": "soon"}, "grace"),
        Row("PUT", "/api/pools/global", {"size": -2}, "size"),
        Row("PUT", "/api/pools/nothing", {"size": 2}, "name"),
        get("/api/events?format=json&kind=job.failed&kind=nothing", "kind[1]"),
        get("/api/events?format=json&job=job-1&job=1", "job[1]"),
        get("/api/events?format=json&job=job-1&job=job-99", "job[1]"),
        get("/api/events?format=json&group=unknown", "group"),
        get("/api/jobs?status=QUEUED&status=LOST", "status[1]"),
        get("/api/jobs?group=unknown", "group"),
        get("/api/jobs?cursor=x", "cursor"),
        get("/api/jobs/1", "job"),
        get("/api/jobs/job-1/runs?cursor=x", "cursor"),
        get("/api/jobs/job-1/logs?run=1", "run"),
        get("/api/jobs/job-1/logs/stdout?run=1", "run"),
        get("/api/jobs/job-1/logs/nothing", "stream"),
        get("/api/job-runs?job=1", "job"),
        get("/api/job-runs?cursor=x", "cursor"),
        get("/api/queue?cursor=x", "cursor"),
        get("/api/work?cursor=x", "cursor"),
        get("/api/graph?job=1", "job"),
        get("/api/graph?job=job-99", "job"),
        get("/api/graph?job=job-99&format=dag", "job"),
        get("/api/job-runs?job=job-99", "job"),
        get("/api/jobs/job-1/logs?run=run-99", "run"),
        get("/api/jobs/job-1/logs/stdout?run=run-99", "run"),
    ]


def paths() -> list[Row]:
    """Requests with an unknown, invalid or ambiguous resource in the URL path."""
    job, group, reservation, template = (
        "/api/jobs/job-99",
        "/api/job-groups",
        "/api/reservations/reservation-99",
        "/api/job-templates/none",
    )
    return [
        get(job, "job"),
        get(f"{job}?wait=1", "job"),
        Row("PATCH", job, {"priority": 1}, "job"),
        *(post(f"{job}/{verb}", None, "job") for verb in ("cancel", "rewind")),
        post(f"{job}/move", {"first": True}, "job"),
        *(get(f"{job}/{name}", "job") for name in ("why", "runs", "logs", "logs/stdout", "logs?follow=1")),
        get("/api/job-runs/run-99", "run"),
        get("/api/job-runs/abc", "run"),
        *(post(f"/api/job-runs/{name}/retry", None, "run_or_job") for name in ("abc", "run-x", "job-99", "run-99")),
        *(get(f"{group}/{name}", "group") for name in ("nope", "twice", "nope/progress", "twice/progress")),
        *(post(f"{group}/nope/{verb}", None, "group") for verb in ("cancel", "close", "rewind")),
        post(f"{group}/twice/cancel", None, "group"),
        get(reservation, "reservation"),
        post(f"{reservation}/renew", None, "reservation"),
        Row("DELETE", reservation, None, "reservation"),
        get("/api/schedules/nope", "schedule"),
        post("/api/schedules/nope/trigger", None, "schedule"),
        get(template, "template"),
        get("/api/webhooks/webhook-99", "webhook"),
        Row("DELETE", "/api/webhooks/webhook-99", None, "webhook"),
        get("/api/artifacts/custom:a:b", "artifact"),
        post("/api/breakers/nothing/reset", None, "key"),
        get("/problems/nothing", "code"),
        get("/jobs/99", "job_id"),
        Row("PATCH", "/jobs/99", {"priority": 1}, "job_id"),
    ]


def legacy() -> list[Row]:
    good = {"type": "plain"}
    return [
        post("/jobs", {}, "type"),
        post("/jobs", {"type": "nothing"}, "type"),
        post("/jobs", {"type": "old"}, "type"),
        post("/jobs", {"template_id": "none"}, "template_id"),
        post("/jobs", {"command": ["true"], "template_id": ""}, "template_id"),
        post("/jobs", {"template": "", "template_id": "none"}, "template_id"),
        post("/jobs", {"type": "story", "params": {"n": "one"}}, "params"),
        post("/jobs", {**good, "webhook_url": REFUSED_URL}, "webhook_url"),
        post("/jobs", {**good, "webhooks": [VALID_URL], "webhook_url": REFUSED_URL}, "webhook_url"),
        post("/jobs", {**good, "webhook_url": VALID_URL, "webhook_events": ["x"]}, "webhook_events[0]"),
        get("/jobs?status=queued&status=lost", "status"),
        get("/jobs/one", "job_id"),
        post("/jobs/nothing/trigger", {}, "type"),
        post("/jobs/plain/trigger", {"priority": "high"}, "priority"),
        post("/jobs/plain/trigger", {"priority": 10**7}, "priority"),
        post("/jobs/plain/trigger", {"webhook_url": REFUSED_URL}, "webhook_url"),
        post("/jobs/story/trigger", {"params": {"n": "one"}}, "params"),
        post("/jobs/batch/trigger", {"jobs": [good, {"type": 5}]}, "jobs[1].type"),
        post("/jobs/batch/trigger", {"jobs": [good, {}]}, "jobs[1].type"),
        post("/jobs/batch/trigger", {"jobs": [good, {"type": "nothing"}]}, "jobs[1].type"),
        post("/jobs/batch/trigger", {"jobs": [good, {**good, "priority": 10**7}]}, "jobs[1].priority"),
        post("/jobs/batch/trigger", {"jobs": [good, {"type": "story", "n": "one"}]}, "jobs[1]"),
        post("/jobs/batch/trigger", {"jobs": [good, {**good, "webhook_url": REFUSED_URL}]}, "jobs[1].webhook_url"),
        post("/jobs/batch/trigger", {"jobs": [good], "webhook_url": REFUSED_URL}, "webhook_url"),
        post(
            "/jobs/batch/trigger",
            {"jobs": [good], "webhook_url": VALID_URL, "webhook_events": ["x"]},
            "webhook_events[0]",
        ),
    ]


TABLE = [*jobs(), *edits(), *schedules(), *templates(), *webhooks(), *reservations(), *others(), *paths(), *legacy()]


def prepare(rota: Rota) -> None:
    """Create three queued jobs and each resource that the rows name."""
    rota.set_global_size(0)
    with (rota.home / "rota.toml").open("a") as config:
        config.write('\n[direct.routes]\n"/by-route" = "story"\n')
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    requests: list[tuple[str, dict[str, Any]]] = [
        (
            "/api/job-templates",
            {
                "name": "story",
                "command": ["true"],
                "params_schema": schema,
                "locks": ["desk"],
                "needs": ["file:/desk"],
                "missing_producer": "wait",
            },
        ),
        (
            "/api/job-templates",
            {"name": "odd", "command": ["true"], "target": "{user}", "default_params": {"user": "x"}},
        ),
        ("/api/job-templates", {"name": "tree", "command": ["true"], "worktree": True}),
        ("/api/job-templates", {"name": "plain", "command": ["true"]}),
        ("/api/job-templates", {"name": "old", "command": ["true"]}),
        ("/api/jobs", {"command": ["true"]}),
        ("/api/jobs", {"command": ["true"]}),
        ("/api/jobs", {"template": "story", "params": {"n": 1}}),
        ("/api/job-groups", {"name": "over"}),
        ("/api/job-groups", {"name": "twice"}),
        ("/api/job-groups", {"name": "twice"}),
        ("/api/schedules", {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}),
        ("/api/schedules", {"name": "other", "cron": "@yearly", "job": {"template": "story", "params": {"n": 1}}}),
        ("/api/webhooks", {"url": VALID_URL}),
        ("/api/reservations", {"command": ["true"], "wait": "1h"}),
    ]
    for target, body in requests:
        assert (response := rota.api("POST", target, body)).status == 201, response
    for target in ("/api/job-templates/old/archive", "/api/job-groups/over/cancel"):
        assert rota.api("POST", target).status == 200


FREE_FIELDS = {
    ("GET", "name"),
    ("GET", "source"),
    ("GET", "type"),
    ("GET", "flow"),
    ("GET", "phase"),
    ("GET", "target"),
    ("GET", "worker"),
    ("GET", "last_seen"),
    ("GET", "key"),
    ("POST", "explicit_env"),
    ("POST", "description"),
    ("PATCH", "description"),
    ("PUT", "description"),
}
"""Names and filters: any text is valid."""
FREE_CURSOR_PATHS = ("/api/locks", "/api/breakers")
"""Lists that accept any text as cursor."""


def has_rules(kind: Any) -> bool:
    """Whether a rule may refuse a value of this type: text, unbounded numbers and their containers."""
    if get_origin(kind) is Annotated:
        base, *constraints = get_args(kind)
        return has_rules(base) and all(
            constraint.ge is None for constraint in constraints if isinstance(constraint, msgspec.Meta)
        )
    if get_origin(kind) in (Union, UnionType, list, dict):
        return any(map(has_rules, get_args(kind)))
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return is_struct or kind in (str, int, Any)


def fields_with_rules(endpoint: Endpoint) -> Iterator[str]:
    """Fields of the query and body that a rule may refuse."""
    for struct in (endpoint.query_type, endpoint.required_body_type):
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
            hints = get_type_hints(struct, include_extras=True)
            for field in msgspec.structs.fields(struct):
                is_free_cursor = field.encode_name == "cursor" and endpoint.path in FREE_CURSOR_PATHS
                if (
                    has_rules(hints[field.name])
                    and (endpoint.method, field.encode_name) not in FREE_FIELDS
                    and not is_free_cursor
                ):
                    yield field.encode_name


def test_table_covers_every_field_with_rules() -> None:
    router, covered = Router(ENDPOINTS), set()
    for row in TABLE:
        match = router.find(row.target.partition("?")[0])
        assert match is not None, row
        covered.add((row.method, match.endpoints[row.method].path, row.path.partition(".")[0].partition("[")[0]))
    fields = {
        (endpoint.method, endpoint.path, field) for endpoint in ENDPOINTS for field in fields_with_rules(endpoint)
    }
    assert fields - covered == set()


def test_every_refusal_has_a_path(rota_on_each_store: Rota) -> None:
    prepare(rota_on_each_store)
    faults = []
    for row in TABLE:
        response = rota_on_each_store.api(row.method, row.target, row.body)
        problem = response.json()
        if response.status not in (404, 409, 422) or problem.get("path") != f"$.{row.path}":
            faults.append((row.method, row.target, str(row.body)[:150], row.path, response.status, str(problem)[:300]))
    assert not faults, "\n".join(map(str, faults))
    assert len(rota_on_each_store.jobs()) == 3, "nothing was stored"


def test_long_values_are_shortened_in_problems(rota_on_each_store: Rota) -> None:
    prepare(rota_on_each_store)
    long_text = "x y" * 33_000
    job: dict[str, Any] = {"command": ["true"]}
    fields: list[dict[str, Any]] = [
        *(
            {field: long_text}
            for field in ("type", "flow", "target", "unique", "timeout", "delay", "retry", "cwd", "pin")
        ),
        {"needs": [long_text]},
        {"after": [{"job": long_text}]},
        {"webhooks": [long_text]},
        {long_text: 1},
        {"pools": {long_text: 1}},
        {"template": long_text, "command": []},
    ]
    schedule = {"name": "weekly", "cron": "@daily", "job": job}
    rows = [
        *(post("/api/jobs", {**job, **change}, "") for change in fields),
        *(post("/api/schedules", {**schedule, field: long_text}, "") for field in ("name", "cron", "tz")),
        Row("PATCH", "/api/jobs/job-1", {long_text: 1}, ""),
        get(f"/api/jobs/{'x' * 9_000}", ""),
        get(f"/api/jobs?{'x' * 9_000}=1", ""),
        get(f"/{'x' * 9_000}", ""),
    ]
    for row in rows:
        response = rota_on_each_store.api(row.method, row.target, row.body)
        problem = response.json()
        assert response.status in (404, 422), response
        assert len(problem["detail"]) <= 1000, (row.target, problem["detail"][:100])
        assert len(problem.get("path", "")) <= 1000, (row.target, problem["path"][:100])
    detail = rota_on_each_store.api("POST", "/api/jobs", {**job, "timeout": long_text}).json()["detail"]
    assert "…" in detail
    short = rota_on_each_store.api("POST", "/api/jobs", {**job, "timeout": "x y"}).json()["detail"]
    assert detail[-30:] == short[-30:], "the hint is complete"


def test_state_conflict_has_the_path_of_its_target(rota_on_each_store: Rota) -> None:
    rota_on_each_store.api("POST", "/api/jobs", {"command": ["true"]})
    assert rota_on_each_store.api("GET", "/api/jobs/job-1?wait=30").json()["status"] == "COMPLETED"
    for row in (
        Row("PATCH", "/api/jobs/job-1", {"params": {}}, "params"),
        Row("PATCH", "/api/jobs/job-1", {"unset_params": ["a"]}, "unset_params"),
        Row("PATCH", "/api/jobs/job-1", {"priority": 3}, "priority"),
        Row("PATCH", "/api/jobs/job-1", {"delay": "1m"}, "delay"),
        Row("PATCH", "/api/jobs/job-1", {"retries": 1}, "retries"),
        Row("PATCH", "/jobs/1", {"params": {}}, "params"),
        post("/api/jobs/job-1/cancel", None, "job"),
        post("/api/jobs/job-1/move", {"first": True}, "job"),
        post("/api/job-runs/job-1/retry", None, "run_or_job"),
        Row("DELETE", "/jobs/1", None, "job_id"),
    ):
        response = rota_on_each_store.api(row.method, row.target, row.body)
        assert (response.status, response.json().get("path")) == (409, f"$.{row.path}"), (row, response)


def test_error_outside_the_request_has_no_field_path(rota_on_each_store: Rota) -> None:
    """The error is in the schedule of the URL path, or in the configuration."""
    prepare(rota_on_each_store)
    rota_on_each_store.api("POST", "/api/job-templates/story/archive")
    for target, path in (("/api/schedules/other/trigger", "$.schedule"), ("/by-route", None)):
        response = rota_on_each_store.api("POST", target, {})
        assert (response.status, response.json().get("path")) == (409, path), response
    rota_on_each_store.api("POST", "/api/job-templates/story/unarchive")
    response = rota_on_each_store.api("POST", "/by-route", {"n": "one"})
    assert (response.status, "path" in response.json()) == (422, False)
