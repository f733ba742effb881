"""`/metrics`, `/health` and `/ready` of a real scheduler, as a scraper and a service manager read them."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.docs.page import rows
from tests.e2e.rig import ChildControl, Rota, eventually, kill

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, rota: Rota) -> Rota:
    if request.param == "postgres":
        rota.run("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    return rota


def get(rota: Rota, target: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = rota.connection()
    connection.request("GET", target, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def scrape(rota: Rota) -> Callable[..., float]:
    families = parse_text(get(rota, "/metrics")[1])
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }

    def read(name: str, **labels: str) -> float:
        return values.get((name, *sorted(labels.items())), 0.0)

    return read


def test_jobs_update_metrics(home: Rota, children: ChildControl) -> None:
    for code in (0, 0, 3):
        home.wait_for_end(home.post_job(["sh", "-c", f"sleep 0.01; exit {code}"], type="build"))
    running = home.post_job(children.gated("one"))
    queued = home.post_job(children.immediate("two"))
    assert children.read_lines() == ["one begins"]
    home.wait_for_start(running)
    metric = scrape(home)
    assert metric("rota_runs_total", status="COMPLETED", type="build") == 2
    assert metric("rota_runs_total", status="FAILED", type="build") == 1
    assert metric("rota_run_duration_seconds_count", type="build") == 3
    assert 0.03 <= metric("rota_run_duration_seconds_sum", type="build") < 30
    assert metric("rota_jobs_submitted_total") == 5
    assert metric("rota_start_duration_seconds_count") == 4
    assert (metric("rota_jobs", status="RUNNING"), metric("rota_jobs", status="QUEUED")) == (1, 1)
    assert (metric("rota_pool_used", pool="global"), metric("rota_pool_queued", pool="global")) == (1, 1)
    assert metric("rota_http_requests_total", method="POST", route="/api/jobs", code="2xx") == 5
    assert home.api("GET", "/api/jobs/job-4711").status == 404
    assert home.api("GET", "/unknown/path").status == 404
    metric = scrape(home)
    assert metric("rota_http_requests_total", method="GET", route="/api/jobs/{job}", code="4xx") == 1
    assert metric("rota_http_requests_total", method="other", route="other", code="4xx") == 1
    assert metric("rota_ready") == 1
    assert abs(time.time() - metric("process_start_time_seconds")) < 300
    assert metric("process_resident_memory_bytes") > 10e6
    assert 0 < metric("process_open_fds") < metric("process_max_fds")
    assert metric("process_cpu_seconds_total") > 0
    text = get(home, "/metrics")[1]
    assert "job-" not in text, "no id is a label"
    children.release("one")
    home.wait_for_end(queued)


def test_triggered_schedule_updates_metrics(rota: Rota) -> None:
    rota.start()
    rota.run("schedule", "add", "nightly", "--cron", "0 3 * * *", "--", "true")
    rota.wait_for_end(rota.run("schedule", "trigger", "nightly").out.strip())
    metric = scrape(rota)
    assert metric("rota_schedules_enabled") == 1
    assert metric("rota_schedule_fires_total", state="fired") == 1
    assert metric("rota_schedule_lateness_seconds_count") == 0


def test_both_formats_and_the_docs_list_the_same_metrics(rota: Rota) -> None:
    rota.start()
    rota.wait_for_end(rota.post_job(["true"]))
    plain, text = get(rota, "/metrics")
    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    openmetrics, openmetrics_text = get(rota, "/metrics", Accept=PROMETHEUS)
    assert openmetrics.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert openmetrics_text.endswith("# EOF\n")
    by_name = {family.name: family for family in parse_text(text)}
    named = {family.name: family.type for family in parse_openmetrics(openmetrics_text)}  # type: ignore[no-untyped-call]
    assert {name.removesuffix("_info") for name in by_name} == set(named)
    exported = {_full_name(family): [family.type, label_names(text, family)] for family in by_name.values()}
    documented = {
        cells[0].strip("`"): [cells[1], cells[2].replace("`", "")]
        for cells in rows("reference/metrics.md", "List of metrics")
    }
    assert {name: cells[0] for name, cells in documented.items()} == {
        name: kind for name, (kind, _) in exported.items()
    }
    for name, (_, labels) in exported.items():
        assert labels in ("", documented[name][1]), f"{name}: {labels}"


def _full_name(family: Any) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def label_names(text: str, family: Any) -> str:
    """Label names of the family, or an empty string without samples."""
    names = [name for sample in family.samples for name in sample.labels if name != "le"]
    return ", ".join(dict.fromkeys(names))


def test_counters_reset_with_the_scheduler(rota: Rota) -> None:
    rota.start()
    rota.wait_for_end(rota.post_job(["true"]))
    assert scrape(rota)("rota_jobs_submitted_total") == 1
    rota.crash()
    rota.start()
    assert scrape(rota)("rota_jobs_submitted_total") == 0


def test_health_and_ready_through_pause_and_stop(rota: Rota, children: ChildControl) -> None:
    pid = rota.start()
    assert rota.api("GET", "/health").json() == {"status": "ok", "pid": pid}
    assert rota.api("GET", "/ready").json() == {"status": "ready"}
    rota.run("pause")
    assert rota.api("GET", "/ready").status == 200, "a paused scheduler is ready"
    rota.run("resume")
    job = rota.post_job(children.gated("one"))
    assert children.read_lines() == ["one begins"]
    rota.wait_for_start(job)
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: rota.api("GET", "/ready").status == 503)
    response, text = get(rota, "/ready")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert int(response.headers["Retry-After"]) > 0
    assert '"reasons":["the scheduler is stopping"]' in text
    assert '"code":"unavailable"' in text
    assert rota.api("GET", "/health").status == 200
    assert scrape(rota)("rota_ready") == 0
    children.release("one")


def test_not_ready_without_a_supervisor(rota: Rota) -> None:
    rota.start()
    log = rota.home / "supervisor.log"
    log.rename(rota.home / "supervisor.log.old")
    log.mkdir()  # a new supervisor cannot open its log
    kill(rota.supervisor_pid)
    assert eventually(lambda: rota.api("GET", "/ready").status == 503)
    assert eventually(lambda: b"nothing can be started: " in rota.api("GET", "/ready").body)
    assert rota.api("GET", "/health").status == 200
    assert scrape(rota)("rota_ready") == 0
    log.rmdir()
    assert eventually(lambda: rota.api("GET", "/ready").status == 200)
