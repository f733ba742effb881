"""`rota retry`, and what the other commands make of a chain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.stand_in import Server, answer, chunked, problem
from rota.cli.field import excuse
from rota.cli.main import main

TOLD: dict[str, Any] = {"job": {"id": "job-9"}, "text": "job-9 retries job-7 (FAILED)", "blocked": [], "warning": None}


def test_the_new_job_is_data_and_the_rest_is_talk(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/job-runs/job-7/retry": answer({**TOLD, "warning": "job-8 stays BLOCKED"}, 201)}
    assert main(["retry", "7"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "job-9\n"
    assert captured.err == "rota: job-9 retries job-7 (FAILED)\nrota: job-8 stays BLOCKED\n"


def test_a_run_is_named_as_such(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/job-runs/run-3/retry": answer(TOLD, 201)}
    assert main(["retry", "run-3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == TOLD


def test_a_conflict_is_exit_code_4(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(409, "conflict", "job-7 is running; wait for it")]
    assert main(["retry", "job-7"]) == 4
    assert capsys.readouterr().err == "rota: job-7 is running; wait for it\n"


def test_a_lost_answer_is_asked_for_with_the_same_key(server: Server) -> None:
    server.replies = [b"", answer(TOLD, 200)]
    assert main(["retry", "job-7"]) == 0
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert len(server.requests) == 2


def test_submit_says_what_was_asked_for_and_nothing_else(server: Server) -> None:
    for words in (["--retries", "2"], ["--retry", "night"], []):
        server.replies = [answer({"result": "submitted", "job": {"id": "job-1"}, "warning": None}, 201)]
        assert main(["submit", *words, "--", "true"]) == 0
    sent = [{key: request.json().get(key) for key in ("retries", "retry")} for request in server.requests]
    nothing = {"retries": None, "retry": None}
    assert sent == [{**nothing, "retries": 2}, {**nothing, "retry": "night"}, nothing]


def test_follow_goes_on_with_the_chain(server: Server, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Named by its first job long after: each run in its turn, from its beginning, whatever the first was cut to."""
    ended = {"id": "job-1", "status": "FAILED", "reason": "exit code 1", "retry_of": None}
    second = {**ended, "id": "job-4", "reason": "timed out after 2m", "retry_of": "job-1", "permanently_failed": False}
    third = {"id": "job-6", "status": "COMPLETED", "reason": None, "retry_of": "job-4"}
    server.routes = {
        "GET /api/jobs/job-1/logs": answer({"stdout": {"size": 4}}),
        "GET /api/jobs/job-1/logs/stdout?offset=0&limit=4": chunked(b"1\n2\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=2&limit=1048576": chunked(b"2\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=4&follow=1": chunked(b"3\n", b""),
        "GET /api/jobs/job-4/logs/stdout?offset=0&follow=1": chunked(b"4\n", b""),
        "GET /api/jobs/job-6/logs/stdout?offset=0&follow=1": chunked(b"5\n", b""),
        **{f"GET /api/jobs/{name}?wait=0": answer(third) for name in ("job-1", "job-4", "job-6")},
        **{f"GET /api/jobs/{each['id']}": answer(each) for each in (ended, second, third)},
    }
    assert main(["logs", "1", "--follow", "--stream", "stdout", "--tail", "1"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == b"2\n3\n4\n5\n"
    assert captured.err.decode().splitlines() == [
        "rota: job-1 FAILED: exit code 1; going on with job-4, timed out after 2m; retried",
        "rota: job-4 FAILED: timed out after 2m; going on with job-6",
    ]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ({"status": "QUEUED", "wait": {"detail": "not before T"}, "reason": "retry 2 of 3", "attempt": 3},
         "retry 2 of 3, not before T"),
        ({"status": "RUNNING", "reason": "retry 2 of 3", "attempt": 3}, "retry 2 of 3"),
        ({"status": "QUEUED", "wait": {"detail": "waiting on locks"}, "attempt": 4}, "attempt 4, waiting on locks"),
        ({"status": "RUNNING", "attempt": 1}, ""),
        ({"status": "FAILED", "reason": "exit code 1", "permanently_failed": False}, "exit code 1; retried"),
        ({"status": "FAILED", "reason": "exit code 1", "permanently_failed": True, "attempt": 4}, "exit code 1"),
        ({"status": "COMPLETED", "reason": None, "attempt": 2, "permanently_failed": False}, ""),
        ({"status": "BLOCKED_BY_DEPENDENCY", "reason": "no", "wait": {"detail": "no"}}, "no"),
    ],
)  # fmt: skip
def test_a_list_says_which_try_it_is_and_what_is_to_come(job: dict[str, object], text: str) -> None:
    assert excuse(job) == text
