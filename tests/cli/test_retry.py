"""`rota retry`, and retry chains in other commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.cli.main import main
from rota.cli.rendering import reason_text
from tests.cli.fake_scheduler import Server, chunked, json_response, problem

RETRIED: dict[str, Any] = {
    "job": {"id": "job-9"},
    "message": "job-9 retries job-7 (FAILED)",
    "blocked": [],
    "warning": None,
}


def test_retry_prints_the_job_to_stdout_and_messages_to_stderr(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.routes = {
        "POST /api/job-runs/job-7/retry": json_response({**RETRIED, "warning": "job-8 stays BLOCKED"}, 201)
    }
    assert main(["retry", "7"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "job-9\n"
    assert captured.err == "rota: job-9 retries job-7 (FAILED)\nrota: job-8 stays BLOCKED\n"


def test_retry_accepts_a_run(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/job-runs/run-3/retry": json_response(RETRIED, 201)}
    assert main(["retry", "run-3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == RETRIED


def test_conflict_exits_with_4(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(409, "conflict", "job-7 is running; wait for it")]
    assert main(["retry", "job-7"]) == 4
    assert capsys.readouterr().err == "rota: job-7 is running; wait for it\n"


def test_retry_repeats_a_lost_request_with_the_same_key(server: Server) -> None:
    server.replies = [b"", json_response(RETRIED, 200)]
    assert main(["retry", "job-7"]) == 0
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert len(server.requests) == 2


def test_submit_sends_only_given_retry_options(server: Server) -> None:
    for words in (["--retries", "2"], ["--retry", "night"], []):
        server.replies = [json_response({"result": "submitted", "job": {"id": "job-1"}, "warning": None}, 201)]
        assert main(["submit", *words, "--", "true"]) == 0
    sent = [{key: request.json().get(key) for key in ("retries", "retry")} for request in server.requests]
    nothing = {"retries": None, "retry": None}
    assert sent == [{**nothing, "retries": 2}, {**nothing, "retry": "night"}, nothing]


def test_follow_continues_with_the_chain(server: Server, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Each later run is printed from its beginning; --tail applies only to the first one."""
    ended = {"id": "job-1", "status": "FAILED", "reason": "exit code 1", "retry_of": None}
    second = {**ended, "id": "job-4", "reason": "timed out after 2m", "retry_of": "job-1", "permanently_failed": False}
    third = {"id": "job-6", "status": "COMPLETED", "reason": None, "retry_of": "job-4"}
    server.routes = {
        "GET /api/jobs/job-1/logs": json_response({"stdout": {"size": 4}}),
        "GET /api/jobs/job-1/logs/stdout?offset=0&limit=4": chunked(b"1\n2\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=2&limit=1048576": chunked(b"2\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=4&follow=1": chunked(b"3\n", b""),
        "GET /api/jobs/job-4/logs/stdout?offset=0&follow=1": chunked(b"4\n", b""),
        "GET /api/jobs/job-6/logs/stdout?offset=0&follow=1": chunked(b"5\n", b""),
        **{f"GET /api/jobs/{name}?wait=0": json_response(third) for name in ("job-1", "job-4", "job-6")},
        **{f"GET /api/jobs/{record['id']}": json_response(record) for record in (ended, second, third)},
    }
    assert main(["logs", "1", "--follow", "--stream", "stdout", "--tail", "1"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == b"2\n3\n4\n5\n"
    assert captured.err.decode().splitlines() == [
        "rota: job-1 FAILED: exit code 1; following job-4, timed out after 2m; retried",
        "rota: job-4 FAILED: timed out after 2m; following job-6",
    ]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (
            {"status": "QUEUED", "wait": {"detail": "not before T"}, "reason": "retry 2 of 3", "attempt": 3},
            "retry 2 of 3, not before T",
        ),
        ({"status": "RUNNING", "reason": "retry 2 of 3", "attempt": 3}, "retry 2 of 3"),
        ({"status": "QUEUED", "wait": {"detail": "waiting on locks"}, "attempt": 4}, "attempt 4, waiting on locks"),
        ({"status": "RUNNING", "attempt": 1}, ""),
        ({"status": "FAILED", "reason": "exit code 1", "permanently_failed": False}, "exit code 1; retried"),
        ({"status": "FAILED", "reason": "exit code 1", "permanently_failed": True, "attempt": 4}, "exit code 1"),
        ({"status": "COMPLETED", "reason": None, "attempt": 2, "permanently_failed": False}, ""),
        ({"status": "BLOCKED_BY_DEPENDENCY", "reason": "no", "wait": {"detail": "no"}}, "no"),
    ],
)
def test_reason_text_names_attempt_and_wait(job: dict[str, object], text: str) -> None:
    assert reason_text(job) == text
