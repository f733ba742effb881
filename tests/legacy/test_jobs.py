"""CON-004: legacy endpoints, names and statuses, and their tables in docs/how-to/migrate-from-legacy-endpoints.md."""

from __future__ import annotations

import re
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from rota.config.section import is_route
from rota.errors import InvalidInput
from rota.http.app import DEPRECATED, SUNSET, deprecation_headers
from rota.http.endpoint import Endpoint
from rota.http.router import Router
from rota.jobs.examples import ENDED_JOB
from rota.jobs.examples import JOB_RUN as RUN
from rota.jobs.schemas import JobView, RunView
from rota.kernel.status import Status
from rota.legacy import ENDPOINTS as LEGACY
from rota.legacy.request import (
    LegacyBatchRequest,
    parse_batch,
    parse_flat_job,
    parse_legacy_group_id,
    parse_legacy_job_id,
)
from rota.legacy.schemas import (
    LEGACY_STATUSES,
    LOWERCASE_STATUSES,
    STATUS_ALIASES,
    LegacyJob,
    LegacyRun,
    parse_legacy_status,
    render_legacy_job,
    render_legacy_run,
)
from rota.routes import ENDPOINTS
from tests.docs.page import ROOT, rows

# The legacy endpoints that must stay until the sunset date.
LEGACY_ENDPOINTS = {
    "POST /jobs",
    "GET /jobs",
    "GET /jobs/{}",
    "PATCH /jobs/{}",
    "DELETE /jobs/{}",
    "GET /jobs/{}/runs",
    "POST /jobs/{}/trigger",
    "POST /jobs/batch/trigger",
    "GET /jobs/batch/{}",
    "POST /jobs/{}/cancel",
    "POST /scheduler/start",
    "POST /scheduler/stop",
    "GET /scheduler/status",
}
ENDED = msgspec.convert(ENDED_JOB, JobView)
PAGE_PATH = "how-to/migrate-from-legacy-endpoints.md"
PAGE = (ROOT / "docs" / PAGE_PATH).read_text()


def endpoint_pattern(endpoint: Endpoint) -> str:
    return re.sub(r"\{\w+\}", "{}", f"{endpoint.method} {endpoint.path}")


def test_con_004_every_legacy_endpoint_has_a_successor() -> None:
    assert {endpoint_pattern(endpoint) for endpoint in LEGACY} == LEGACY_ENDPOINTS
    paths = {re.sub(r"\{\w+\}", "{}", endpoint.path) for endpoint in ENDPOINTS}
    for endpoint in LEGACY:
        assert endpoint.is_deprecated
        assert endpoint.successor is not None
        assert endpoint.successor.startswith("/api/")
        # End-to-end tests cover successors that are not typed endpoints.
        assert re.sub(r"\{\w+\}", "{}", endpoint.successor) in paths | UNTYPED_SUCCESSORS
        assert not is_route(endpoint.path.replace("{", "").replace("}", ""))
    assert [endpoint for endpoint in ENDPOINTS if endpoint.is_deprecated] == LEGACY


UNTYPED_SUCCESSORS = {"/api/scheduler", "/api/scheduler/pause", "/api/scheduler/resume"}


def test_con_004_page_lists_every_endpoint_and_successor() -> None:
    table = {cells[0].strip("`"): cells[1].strip("`").partition(" ")[2] for cells in rows(PAGE_PATH, "Endpoints")}
    assert table == {f"{endpoint.method} {endpoint.path}": endpoint.successor for endpoint in LEGACY}


def test_con_004_page_has_the_dates() -> None:
    assert f"deprecated since {DEPRECATED:%Y-%m-%d} and stay until {SUNSET:%Y-%m-%d}" in PAGE
    assert f"Deprecation: @{DEPRECATED.timestamp():.0f}\n" in PAGE
    assert f"Sunset: {format_datetime(SUNSET, usegmt=True)}\n" in PAGE


def test_con_004_page_lists_every_status_name() -> None:
    table = [[cell.strip("` |") for cell in cells] for cells in rows(PAGE_PATH, "Statuses")]
    shown = [status for status in Status if status is status.public]
    assert [cells[:3] for cells in table] == [
        [status.value, LEGACY_STATUSES[status], LOWERCASE_STATUSES[status]] for status in shown
    ]
    aliases = {cells[3]: cells[0] for cells in table if cells[3]}
    assert aliases == {"dispatched": "RUNNING", "error": "FAILED", "canceled": "CANCELLED"}
    assert (
        {status.value.lower(): status for status in shown}
        | {word: Status(status) for word, status in aliases.items()}
        | {"succeeded": Status.COMPLETED}
    ) == STATUS_ALIASES


@pytest.mark.parametrize("status", list(Status))
def test_con_004_every_status_name_is_parsed(status: Status) -> None:
    for word in {LEGACY_STATUSES[status], LOWERCASE_STATUSES[status], status.public.value, status.public.value.lower()}:
        statuses = parse_legacy_status(word)
        assert statuses is not None
        assert status in statuses
    assert parse_legacy_status("DONE") is None


def test_con_004_legacy_job_adds_old_field_names() -> None:
    job = render_legacy_job(ENDED)
    assert set(LegacyJob.__struct_fields__) - set(JobView.__struct_fields__) == {
        "job_id",
        "job_type",
        "template_id",
        "group_id",
        "log_path",
        "artifacts",
        "error",
    }
    assert {name: getattr(job, name) for name in JobView.__struct_fields__} == {
        name: getattr(ENDED, name) for name in JobView.__struct_fields__
    }
    assert (job.job_id, job.job_type, job.artifacts, job.error) == (ENDED.id, ENDED.type, [], None)
    assert job.log_path == RUN.log_paths["stdout"]
    run = render_legacy_run(RUN, ENDED)
    assert {name: getattr(run, name) for name in RunView.__struct_fields__} == {
        name: getattr(RUN, name) for name in RunView.__struct_fields__
    }
    assert set(LegacyRun.__struct_fields__) - set(RunView.__struct_fields__) == {
        "run_id",
        "job_id",
        "params_snapshot",
        "template_id",
        "log_path",
    }


@pytest.mark.parametrize("text", ["24", "job-24"])
def test_con_004_numeric_id_is_accepted(text: str) -> None:
    assert parse_legacy_job_id(text) == 24
    assert parse_legacy_group_id(text.replace("job", "group")) == 24


@pytest.mark.parametrize("text", ["", "0", "-1", "٢", "run-1", "job-", "job-job-1", "9" * 19])
def test_con_004_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a job id"):
        parse_legacy_job_id(text)


def test_con_004_flat_body_splits_into_job_fields_and_params() -> None:
    body = {
        "topic": "sea",
        "model": None,
        "timeout": 60,
        "type": "deep",
        "params": {"topic": "light"},
        "priority": 3,
        "name": "n",
        "webhook_url": "http://a.example",
        "webhook_events": ["succeeded"],
    }
    triggered = parse_flat_job(body, path_type="story")
    assert triggered.params == {"topic": "light", "timeout": 60, "type": "deep"}
    assert (triggered.type, triggered.priority, triggered.name) == ("story", 3, "n")
    assert (triggered.webhook_url, triggered.webhook_events) == ("http://a.example", ["succeeded"])
    batched = parse_flat_job(body)
    assert (batched.type, batched.params) == ("deep", {"topic": "light", "timeout": 60})
    assert parse_flat_job({"template_id": "template-1"}).template_id == "template-1"


@pytest.mark.parametrize(
    "body", [{"params": 1}, {"priority": "high"}, {"command": "ls"}, {"webhook_events": "succeeded"}, {"name": 1}]
)
def test_con_004_invalid_job_field_is_refused_with_its_path(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_flat_job(body, path_type="story")
    assert refused.value.path == f".{next(iter(body))}"
    with pytest.raises(InvalidInput) as refused:
        parse_batch(LegacyBatchRequest(jobs=[{}, body]))
    assert refused.value.path == f".jobs[1].{next(iter(body))}"


def test_con_004_webhook_of_batch_is_default_of_its_jobs() -> None:
    own = {"webhook_url": "http://own.example", "webhook_events": ["failed"]}
    batch = LegacyBatchRequest(jobs=[{"type": "a"}, own], webhook_url="http://a.example", webhook_events=["succeeded"])
    assert [(job.webhook_url, job.webhook_events) for job in parse_batch(batch)] == [
        ("http://a.example", ["succeeded"]),
        ("http://own.example", ["failed"]),
    ]


def test_con_004_successor_link_is_url_encoded() -> None:
    match = Router(LEGACY).find("/jobs/a b\r\n{x}")
    assert match is not None
    endpoint = match.endpoints["GET"]
    assert deprecation_headers(endpoint, endpoint.path_values(match.values))["Link"] == (
        '</api/jobs/a%20b%0D%0A%7Bx%7D>; rel="successor-version"'
    )
