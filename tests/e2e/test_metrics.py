"""`/metrics`, `/health` and `/ready` of a real scheduler, read as a scraper and a supervisor of services read them."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text

from docs.page import rows
from e2e.rig import Rota, Stage, eventually, kill

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, rota: Rota) -> Rota:
    if request.param == "postgres":
        rota.ask("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    return rota


def asked(rota: Rota, target: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = rota.connection()
    connection.request("GET", target, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def scraped(rota: Rota) -> Callable[..., float]:
    families = read_text(asked(rota, "/metrics")[1])
    found = {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}

    def read(name: str, **labels: str) -> float:
        return found.get((name, *sorted(labels.items())), 0.0)

    return read


def test_what_jobs_leave_behind(home: Rota, stage: Stage) -> None:
    for code in (0, 0, 3):
        home.ended(home.post(["sh", "-c", f"sleep 0.01; exit {code}"], type="build"))
    running = home.post(stage.actor("one"))
    queued = home.post(stage.walk_on("two"))
    assert stage.hear() == ["one begins"]
    home.running(running)
    seen = scraped(home)
    assert seen("rota_runs_total", status="COMPLETED", type="build") == 2
    assert seen("rota_runs_total", status="FAILED", type="build") == 1
    assert seen("rota_run_duration_seconds_count", type="build") == 3
    assert 0.03 <= seen("rota_run_duration_seconds_sum", type="build") < 30
    assert seen("rota_jobs_submitted_total") == 5
    assert seen("rota_start_duration_seconds_count") == 4
    assert (seen("rota_jobs", status="RUNNING"), seen("rota_jobs", status="QUEUED")) == (1, 1)
    assert (seen("rota_pool_used", pool="global"), seen("rota_pool_queued", pool="global")) == (1, 1)
    assert seen("rota_http_requests_total", method="POST", route="/api/jobs", code="2xx") == 5
    assert home.api("GET", "/api/jobs/job-4711").status == 404
    assert home.api("GET", "/nobody/knows/this").status == 404
    seen = scraped(home)
    assert seen("rota_http_requests_total", method="GET", route="/api/jobs/{job}", code="4xx") == 1
    assert seen("rota_http_requests_total", method="other", route="other", code="4xx") == 1
    assert seen("rota_ready") == 1
    assert abs(time.time() - seen("process_start_time_seconds")) < 300
    assert seen("process_resident_memory_bytes") > 10e6
    assert 0 < seen("process_open_fds") < seen("process_max_fds")
    assert seen("process_cpu_seconds_total") > 0
    text = asked(home, "/metrics")[1]
    assert "job-" not in text, "nobody's id is a label"
    stage.release("one")
    home.ended(queued)


def test_a_schedule_that_is_triggered(rota: Rota) -> None:
    rota.start()
    rota.ask("schedule", "add", "nightly", "--cron", "0 3 * * *", "--", "true")
    rota.ended(rota.ask("schedule", "trigger", "nightly").out.strip())
    seen = scraped(rota)
    assert seen("rota_schedules_enabled") == 1
    assert seen("rota_schedule_fires_total", state="fired") == 1
    assert seen("rota_schedule_lateness_seconds_count") == 0


def test_both_forms_and_the_page_have_the_same_figures(rota: Rota) -> None:
    rota.start()
    rota.ended(rota.post(["true"]))
    plain, text = asked(rota, "/metrics")
    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    opened, open_text = asked(rota, "/metrics", Accept=PROMETHEUS)
    assert opened.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert open_text.endswith("# EOF\n")
    by_name = {family.name: family for family in read_text(text)}
    named = {family.name: family.type for family in read_open(open_text)}  # type: ignore[no-untyped-call]
    assert {name.removesuffix("_info") for name in by_name} == set(named)
    shown = {_full_name(family): [family.type, labels_of(text, family)] for family in by_name.values()}
    page = {cells[0].strip("`"): [cells[1], cells[2].replace("`", "")] for cells in rows("metrics.md", "The figures")}
    assert {name: cells[0] for name, cells in page.items()} == {name: kind for name, (kind, _) in shown.items()}
    for name, (_, labels) in shown.items():
        assert labels in ("", page[name][1]), f"{name}: {labels}"


def _full_name(family: Any) -> str:
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def labels_of(text: str, family: Any) -> str:
    """As far as there is a sample to see them by."""
    names = [name for sample in family.samples for name in sample.labels if name != "le"]
    return ", ".join(dict.fromkeys(names))


def test_figures_begin_anew_with_the_scheduler(rota: Rota) -> None:
    rota.start()
    rota.ended(rota.post(["true"]))
    assert scraped(rota)("rota_jobs_submitted_total") == 1
    rota.crash()
    rota.start()
    assert scraped(rota)("rota_jobs_submitted_total") == 0


def test_who_asks_whether_it_is_there_and_whether_it_is_ready(rota: Rota, stage: Stage) -> None:
    pid = rota.start()
    assert rota.api("GET", "/health").json() == {"status": "ok", "pid": pid}
    assert rota.api("GET", "/ready").json() == {"status": "ready"}
    rota.ask("pause")
    assert rota.api("GET", "/ready").status == 200, "somebody wanted it so"
    rota.ask("resume")
    job = rota.post(stage.actor("one"))
    assert stage.hear() == ["one begins"]
    rota.running(job)
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: rota.api("GET", "/ready").status == 503)
    response, text = asked(rota, "/ready")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert int(response.headers["Retry-After"]) > 0
    assert '"reasons":["the scheduler is stopping"]' in text
    assert '"code":"unavailable"' in text
    assert rota.api("GET", "/health").status == 200
    assert scraped(rota)("rota_ready") == 0
    stage.release("one")


def test_without_a_supervisor_it_is_not_ready_until_there_is_one(rota: Rota) -> None:
    rota.start()
    log = rota.home / "supervisor.log"
    log.rename(rota.home / "supervisor.log.old")
    log.mkdir()  # whoever is started now has nowhere to write to
    kill(rota.supervisor)
    assert eventually(lambda: rota.api("GET", "/ready").status == 503)
    (reason,) = rota.api("GET", "/ready").json()["reasons"]
    assert reason.startswith("nothing can be started: ")
    assert rota.api("GET", "/health").status == 200
    assert scraped(rota)("rota_ready") == 0
    log.rmdir()
    assert eventually(lambda: rota.api("GET", "/ready").status == 200)
