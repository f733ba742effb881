"""CON-004: the old names and words, and that docs/migration.md says what the code does."""

from __future__ import annotations

import re
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from docs.page import ROOT, rows
from rota.api.app import ENDPOINTS
from rota.api.deprecation import DEPRECATED, SUNSET, headers_of
from rota.api.endpoint import Endpoint
from rota.api.example import ENDED_JOB
from rota.api.example import JOB_RUN as RUN
from rota.api.legacy import ENDPOINTS as LEGACY
from rota.api.legacy.wanted import BatchTrigger, group_id_of, job_id_of, read_batch, read_flat
from rota.api.router import Router
from rota.config.section import is_route
from rota.core.status import Status
from rota.errors import InvalidInput
from rota.wire.job import JobForm, RunForm
from rota.wire.legacy import OLD, OLDER, SPELLINGS, LegacyJob, LegacyRun, legacy_job, legacy_run, statuses_called

# DESIGN names them, and with them what must not go away.
THERE = {
    "POST /jobs", "GET /jobs", "GET /jobs/{}", "PATCH /jobs/{}", "DELETE /jobs/{}", "GET /jobs/{}/runs",
    "POST /jobs/{}/trigger", "POST /jobs/batch/trigger", "GET /jobs/batch/{}", "POST /jobs/{}/cancel",
    "POST /scheduler/start", "POST /scheduler/stop", "GET /scheduler/status",
}  # fmt: skip
ENDED = msgspec.convert(ENDED_JOB, JobForm)
PAGE = (ROOT / "docs/migration.md").read_text()


def shape(endpoint: Endpoint) -> str:
    return re.sub(r"\{\w+\}", "{}", f"{endpoint.method} {endpoint.path}")


def test_con_004_every_endpoint_of_before_is_there_and_has_a_successor_that_is() -> None:
    assert {shape(endpoint) for endpoint in LEGACY} == THERE
    paths = {re.sub(r"\{\w+\}", "{}", endpoint.path) for endpoint in ENDPOINTS}
    for endpoint in LEGACY:
        assert endpoint.is_deprecated
        assert endpoint.successor is not None
        assert endpoint.successor.startswith("/api/")
        # Those that are not converted to endpoints yet are asked end to end.
        assert re.sub(r"\{\w+\}", "{}", endpoint.successor) in paths | NOT_YET
        assert not is_route(endpoint.path.replace("{", "").replace("}", ""))
    assert [endpoint for endpoint in ENDPOINTS if endpoint.is_deprecated] == LEGACY


NOT_YET = {"/api/scheduler", "/api/scheduler/pause", "/api/scheduler/resume"}


def test_con_004_the_page_has_every_endpoint_and_its_successor() -> None:
    table = {cells[0].strip("`"): cells[1].strip("`").partition(" ")[2] for cells in rows("migration.md", "Endpoints")}
    assert table == {f"{endpoint.method} {endpoint.path}": endpoint.successor for endpoint in LEGACY}


def test_con_004_the_page_has_the_dates() -> None:
    assert f"deprecated since {DEPRECATED:%Y-%m-%d} and stay until {SUNSET:%Y-%m-%d}" in PAGE
    assert f"Deprecation: @{DEPRECATED.timestamp():.0f}\n" in PAGE
    assert f"Sunset: {format_datetime(SUNSET, usegmt=True)}\n" in PAGE


def test_con_004_the_page_has_every_status_in_each_of_its_words() -> None:
    table = [[cell.strip("` |") for cell in cells] for cells in rows("migration.md", "Statuses")]
    shown = [status for status in Status if status is status.shown]
    assert [cells[:3] for cells in table] == [[status.value, OLD[status], OLDER[status]] for status in shown]
    also = {cells[3]: cells[0] for cells in table if cells[3]}
    assert also == {"dispatched": "RUNNING", "error": "FAILED", "canceled": "CANCELLED"}
    assert (
        {status.value.lower(): status for status in shown}
        | {word: Status(status) for word, status in also.items()}
        | {"succeeded": Status.COMPLETED}
    ) == SPELLINGS


@pytest.mark.parametrize("status", list(Status))
def test_con_004_what_a_status_is_called_here_finds_it(status: Status) -> None:
    for word in {OLD[status], OLDER[status], status.shown.value, status.shown.value.lower()}:
        found = statuses_called(word)
        assert found is not None
        assert status in found
    assert statuses_called("DONE") is None


def test_con_004_old_names_stand_beside_the_new_ones_and_only_the_status_is_another() -> None:
    job = legacy_job(ENDED)
    assert set(LegacyJob.__struct_fields__) - set(JobForm.__struct_fields__) == {
        "job_id", "job_type", "template_id", "group_id", "log_path", "artifacts", "error",
    }  # fmt: skip
    assert {name: getattr(job, name) for name in JobForm.__struct_fields__} == {
        name: getattr(ENDED, name) for name in JobForm.__struct_fields__
    }
    assert (job.job_id, job.job_type, job.artifacts, job.error) == (ENDED.id, ENDED.type, [], None)
    assert job.log_path == RUN.log_paths["stdout"]
    run = legacy_run(RUN, ENDED)
    assert {name: getattr(run, name) for name in RunForm.__struct_fields__} == {
        name: getattr(RUN, name) for name in RunForm.__struct_fields__
    }
    assert set(LegacyRun.__struct_fields__) - set(RunForm.__struct_fields__) == {
        "run_id", "job_id", "params_snapshot", "template_id", "log_path",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["24", "job-24"])
def test_con_004_an_id_may_be_a_number(text: str) -> None:
    assert job_id_of(text) == 24
    assert group_id_of(text.replace("job", "group")) == 24


@pytest.mark.parametrize("text", ["", "0", "-1", "٢", "run-1", "job-", "job-job-1", "9" * 19])
def test_con_004_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a job id"):
        job_id_of(text)


def test_con_004_a_flat_body_is_params_but_for_the_fields_of_a_job() -> None:
    body = {
        "topic": "sea", "model": None, "timeout": 60, "type": "deep", "params": {"topic": "light"}, "priority": 3,
        "name": "n", "webhook_url": "http://a.example", "webhook_events": ["succeeded"],
    }  # fmt: skip
    triggered = read_flat(body, called="story")
    assert triggered.params == {"topic": "light", "timeout": 60, "type": "deep"}
    assert (triggered.type, triggered.priority, triggered.name) == ("story", 3, "n")
    assert (triggered.webhook_url, triggered.webhook_events) == ("http://a.example", ["succeeded"])
    batched = read_flat(body)
    assert (batched.type, batched.params) == ("deep", {"topic": "light", "timeout": 60})
    assert read_flat({"template_id": "template-1"}).template_id == "template-1"


@pytest.mark.parametrize(
    "body", [{"params": 1}, {"priority": "high"}, {"command": "ls"}, {"webhook_events": "succeeded"}, {"name": 1}]
)
def test_con_004_a_field_of_a_job_is_checked_and_found_by_its_path(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_flat(body, called="story")
    assert refused.value.path == f".{next(iter(body))}"
    with pytest.raises(InvalidInput) as refused:
        read_batch(BatchTrigger(jobs=[{}, body]))
    assert refused.value.path == f".jobs[1].{next(iter(body))}"


def test_con_004_a_batchs_url_is_told_of_each_job_that_names_none() -> None:
    own = {"webhook_url": "http://own.example", "webhook_events": ["failed"]}
    batch = BatchTrigger(jobs=[{"type": "a"}, own], webhook_url="http://a.example", webhook_events=["succeeded"])
    assert [(job.webhook_url, job.webhook_events) for job in read_batch(batch)] == [
        ("http://a.example", ["succeeded"]), ("http://own.example", ["failed"]),
    ]  # fmt: skip


def test_con_004_a_successor_is_a_path_whatever_stands_in_the_places() -> None:
    found = Router(LEGACY).find("/jobs/a b\r\n{x}")
    assert found is not None
    endpoint = found.endpoints["GET"]
    assert headers_of(endpoint, endpoint.path_of(found.values))["Link"] == (
        '</api/jobs/a%20b%0D%0A%7Bx%7D>; rel="successor-version"'
    )
