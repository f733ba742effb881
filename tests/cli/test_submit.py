"""`rota submit`: options, the command, output and exit codes, against a fake scheduler."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import main
from tests.cli.fake_scheduler import RecordedRequest, Server, chunked, json_response, problem

SUBMITTED = {"result": "submitted", "job": {"id": "job-7", "status": "QUEUED"}, "warning": None}


def submit(server: Server, *words: str) -> Any:
    server.replies = [json_response(SUBMITTED, 201)]
    assert main(["submit", *words]) == 0
    return server.requests[-1].json()


def test_submit_prints_only_the_id(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    submit(server, "--", "make", "test")
    assert capsys.readouterr() == ("job-7\n", "")


def test_submit_json_is_the_whole_response(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    submit(server, "--json", "--", "true")
    assert json.loads(capsys.readouterr().out) == SUBMITTED


def test_submit_sends_directory_and_environment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "grün")
    body = submit(server, "--env", "EXTRA=a=b", "--", "true")
    assert body == {
        "command": ["true"],
        "cwd": str(tmp_path),
        "env": {**os.environ, "EXTRA": "a=b"},
        "inherit_env": False,
        "explicit_env": ["EXTRA"],
    }


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--name", "n"], "name", "n"),
        (["--type", "t"], "type", "t"),
        (["--priority", "-5"], "priority", -5),
        (
            ["--after", "job-1", "--after", "2:finished"],
            "after",
            [{"job": "job-1", "policy": "success"}, {"job": "job-2", "policy": "finished"}],
        ),
        (
            ["--lock", "repo", "--lock", "db:shared", "--lock", "a:b"],
            "locks",
            [
                {"key": "repo", "mode": "exclusive"},
                {"key": "db", "mode": "shared"},
                {"key": "a:b", "mode": "exclusive"},
            ],
        ),
        (["--pool", "gpu=2", "--pool", "resource/ollama"], "pools", {"gpu": 2, "resource/ollama": 1}),
        (["--flow", "f"], "flow", "f"),
        (["--phase", "p"], "phase", "p"),
        (["--parallelizable"], "parallelizable", True),
        (["--unique", "cards/7.md"], "unique", "cards/7.md"),
        (["--target", "web"], "target", "web"),
        (["--timeout", "1h"], "timeout", "1h"),
        (["--idle-timeout", "5m"], "idle_timeout", "5m"),
        (["--delay", "10s"], "delay", "10s"),
        (["--skip-if", "test -e x"], "skip_if", "test -e x"),
        (["--param", "v=1.10", "--param", "n:=[1]"], "params", {"v": "1.10", "n": [1]}),
        (["--cwd", "/a/../b"], "cwd", "/b"),
    ],
)
def test_option_becomes_a_field(words: list[str], field: str, value: object, server: Server) -> None:
    assert submit(server, *words, "--", "true")[field] == value


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--", "make", "-j2", "--json"], ["make", "-j2", "--json"]),
        (["make", "-j2", "--name", "x"], ["make", "-j2", "--name", "x"]),
        (["--name", "n", "git", "log", "--", "file"], ["git", "log", "--", "file"]),
        (["--", "--", "x"], ["--", "x"]),
        (["--", ""], [""]),
    ],
)
def test_remaining_arguments_are_the_command(words: list[str], command: list[str], server: Server) -> None:
    assert submit(server, *words)["command"] == command


def test_variable_that_is_not_utf8_is_dropped_with_a_warning(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BINARY", "\udcff")
    assert "BINARY" not in submit(server, "--", "true")["env"]
    assert "dropped from the environment because they are not UTF-8: BINARY" in capsys.readouterr().err


def test_quoted_shell_command_gets_a_hint(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    submit(server, "echo hi")
    captured = capsys.readouterr()
    assert captured.out == "job-7\n"
    assert "rota submit -- sh -c" in captured.err


def test_program_with_a_space_in_its_name_gets_no_hint(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "my program"
    program.touch(mode=0o755)
    submit(server, str(program))
    assert capsys.readouterr().err == ""


def test_warning_is_printed_to_stderr(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response({**SUBMITTED, "warning": "Queue delayed; respecting caps"}, 201)]
    assert main(["submit", "--", "true"]) == 0
    assert capsys.readouterr() == ("job-7\n", "rota: warning: Queue delayed; respecting caps\n")


def test_already_active_prints_the_active_job(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response({**SUBMITTED, "result": "already_active"})]
    assert main(["submit", "--", "true"]) == 0
    assert capsys.readouterr() == ("job-7\n", "rota: already active as job-7; no job was added\n")
    server.replies = [json_response({**SUBMITTED, "result": "already_active"})]
    assert main(["submit", "--json", "--", "true"]) == 0
    assert json.loads(capsys.readouterr().out) == {**SUBMITTED, "result": "already_active"}


def test_deferred_exits_with_75(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(429, "deferred", "full")]
    assert main(["submit", "--", "true"]) == 75
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rota: deferred: ")


def test_deferred_json_is_a_result(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    depth = {"total": 16, "soft": 8, "hard": 16, "by_flow": {}}
    output = {"result": "deferred", "job": None, "warning": "it is full", "depth": depth}
    document = {"type": "/problems/deferred", "title": "t", "status": 429, "detail": "it is full", "code": "deferred"}
    server.replies = [json_response({**output, **document}, 429)] * 2
    assert main(["submit", "--json", "--", "true"]) == 75
    captured = capsys.readouterr()
    assert json.loads(captured.out) == output
    assert captured.err == "rota: deferred: it is full\n"
    assert main(["submit", "--follow", "--", "true"]) == 75


def test_follow_copies_both_streams_and_returns_the_exit_code(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.routes = {
        "POST /api/jobs": json_response(SUBMITTED, 201),
        "GET /api/jobs/job-7/logs/stdout?offset=0&follow=1": chunked(b"out\xff", b"put\n", b""),
        "GET /api/jobs/job-7/logs/stderr?offset=0&follow=1": chunked(b"err\n", b""),
        "GET /api/jobs/job-7?wait=0": json_response({"id": "job-7", "status": "FAILED"}),
        "GET /api/jobs/job-7?wait=30": json_response({"id": "job-7", "status": "FAILED", "exit_code": 9}),
    }
    assert main(["submit", "--follow", "--", "true"]) == 9
    captured = capfdbinary.readouterr()
    assert captured.out == b"out\xffput\n"
    assert captured.err == b"rota: job-7\nerr\n"


def test_follow_resumes_at_the_offset_after_a_broken_connection(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.routes = {
        "GET /api/jobs/job-7/logs/stdout?offset=0&follow=1": chunked(b"one ", b"two "),
        "GET /api/jobs/job-7/logs/stdout?offset=8&follow=1": chunked(b"three", b""),
        "GET /api/jobs/job-7?wait=0": json_response({"id": "job-7", "status": "COMPLETED"}),
    }
    assert main(["logs", "job-7", "--stream", "stdout", "--follow"]) == 0
    assert capfdbinary.readouterr().out == b"one two three"


def test_follow_does_not_restart_a_stopped_scheduler(server: Server, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    away = server.home.root / "away"

    def stop(_: RecordedRequest) -> bytes:
        server.home.socket.rename(away)
        return chunked(b"one\n")

    server.routes = {"GET /api/jobs/job-7/logs/stdout?offset=0&follow=1": stop}
    assert main(["logs", "job-7", "--stream", "stdout", "--follow"]) == 1
    away.rename(server.home.socket)
    captured = capfdbinary.readouterr()
    assert captured.out == b"one\n"
    assert b"was stopped meanwhile" in captured.err
    assert not server.home.log.exists()


def test_submit_repeats_a_lost_request_with_the_same_key(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    keys = []

    def reply(request: RecordedRequest) -> bytes:
        keys.append(request.headers["idempotency-key"])
        return json_response(SUBMITTED, 201)

    server.replies = [b"", reply]
    assert main(["submit", "--", "true"]) == 0
    assert [keys[0]] * 2 == [request.headers["idempotency-key"] for request in server.requests]
