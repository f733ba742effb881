"""`rota rewind`, and logs of earlier runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.cli.main import main
from tests.cli.fake_scheduler import Server, chunked, json_response, problem

REPORT: dict[str, Any] = {
    "requested_job": "job-7",
    "root": "job-7",
    "last_successful_point": ["job-6"],
    "rewind_set": ["job-7", "job-8"],
    "reset": ["job-7", "job-8"],
    "restarted": ["job-7"],
    "cancelled": ["job-8"],
    "warning": None,
}
REWIND = "POST /api/jobs/job-7/rewind"


def test_rewind_prints_the_report(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {REWIND: json_response(REPORT)}
    assert main(["rewind", "7"]) == 0
    captured = capsys.readouterr()
    assert captured.out == (
        "reset: job-7, job-8\nwere CANCELLED: job-8\nlast successful point: job-6\nrestarted: job-7\n"
    )
    assert captured.err == ""


def test_rewind_reports_missing_effects(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """LESSONS: retry silently did nothing."""
    report = {**REPORT, "requested_job": "job-3", "restarted": [], "cancelled": [], "last_successful_point": []}
    server.routes = {"POST /api/jobs/job-3/rewind": json_response(report)}
    assert main(["rewind", "job-3"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "reset: job-7, job-8\nrestarted: none\n"
    assert captured.err == (
        "rota: job-7 is the last job of the chain of job-3\n"
        "rota: nothing has started yet; `rota why job-7` explains why\n"
    )
    server.routes = {"POST /api/jobs/job-3/rewind": json_response({**report, "warning": "job-7 is BLOCKED again"})}
    main(["rewind", "job-3"])
    assert capsys.readouterr().err.endswith("rota: job-7 is BLOCKED again\n")


def test_rewind_json_is_the_report(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {REWIND: json_response(REPORT)}
    assert main(["rewind", "job-7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


def test_conflict_exits_with_4_and_unknown_job_with_3(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cannot rewind while jobs are running in the rewind set: job-7 (RUNNING)"
    server.replies = [problem(409, "conflict", text), problem(404, "not-found", "no such job: job-7")]
    assert [main(["rewind", "job-7"]), main(["rewind", "job-7"])] == [4, 3]
    assert capsys.readouterr().err == f"rota: {text}\nrota: no such job: job-7\n"


def test_rewind_repeats_a_lost_request_with_the_same_key(server: Server) -> None:
    server.replies = [b"", json_response(REPORT)]
    assert main(["rewind", "job-7"]) == 0
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


def test_logs_of_an_earlier_run(server: Server, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server.routes = {
        "GET /api/job-runs/run-12": json_response({"id": "run-12", "job": "job-7"}),
        "GET /api/jobs/job-7/logs/stdout?offset=0&limit=1048576&run=run-12": chunked(b"old\n", b""),
    }
    for words in (["run-12"], ["job-7", "--run", "run-12"]):
        assert main(["logs", *words, "--stream", "stdout"]) == 0
        assert capfdbinary.readouterr().out == b"old\n"


@pytest.mark.parametrize("words", [["run-1", "--run", "run-1"], ["job-1", "--run", "run-1", "--follow"]])
def test_contradictory_run_options_are_refused(server: Server, words: list[str]) -> None:
    assert main(["logs", *words]) == 2
    assert server.requests == []


def test_show_lists_earlier_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"id": "run-9", "status": None, "exit_code": None, "finished_at": None}
    past = {"id": "run-2", "status": "FAILED", "exit_code": 3, "finished_at": "2026-01-01T00:00:00Z"}
    server.routes = {
        "GET /api/jobs/job-7": json_response({"id": "job-7", "status": "RUNNING", "run": run}),
        "GET /api/jobs/job-7/logs": json_response({"warning": None}),
        "GET /api/jobs/job-7/runs?limit=1000": json_response({"runs": [run, past]}),
    }
    assert main(["show", "7"]) == 0
    assert capsys.readouterr().out.endswith("earlier runs       run-2 FAILED, exit code 3, 2026-01-01T00:00:00Z\n")
