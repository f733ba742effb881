from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.stand_in import Request, Server, answer, chunked, problem
from rota.cli.main import main

DONE = {"result": "submitted", "job": {"id": "job-7", "status": "QUEUED"}, "warning": None}


def submitted(server: Server, *words: str) -> Any:
    server.replies = [answer(DONE, 201)]
    assert main(["submit", *words]) == 0
    return server.requests[-1].json()


def test_it_prints_the_id_and_nothing_else(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(server, "--", "make", "test")
    assert capsys.readouterr() == ("job-7\n", "")


def test_json_is_the_whole_answer(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(server, "--json", "--", "true")
    assert json.loads(capsys.readouterr().out) == DONE


def test_it_sends_where_and_in_what_environment_it_was_called(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "grün")
    body = submitted(server, "--env", "EXTRA=a=b", "--", "true")
    assert body == {
        "command": ["true"],
        "cwd": str(tmp_path),
        "env": {**os.environ, "EXTRA": "a=b"},
        "inherit_env": False,
        "env_given": ["EXTRA"],
    }


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--name", "n"], "name", "n"),
        (["--type", "t"], "type", "t"),
        (["--priority", "-5"], "priority", -5),
        (["--after", "job-1", "--after", "2:finished"], "after",
         [{"job": "job-1", "policy": "success"}, {"job": "job-2", "policy": "finished"}]),
        (["--lock", "repo", "--lock", "db:shared", "--lock", "a:b"], "locks",
         [{"key": "repo", "mode": "exclusive"}, {"key": "db", "mode": "shared"}, {"key": "a:b", "mode": "exclusive"}]),
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
)  # fmt: skip
def test_options(words: list[str], field: str, value: object, server: Server) -> None:
    assert submitted(server, *words, "--", "true")[field] == value


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
def test_what_follows_is_the_command(words: list[str], command: list[str], server: Server) -> None:
    assert submitted(server, *words)["command"] == command


def test_a_variable_that_is_not_text_is_left_out_and_named(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BINARY", "\udcff")
    assert "BINARY" not in submitted(server, "--", "true")["env"]
    assert "left out of the environment: BINARY" in capsys.readouterr().err


def test_a_quoted_shell_line_gets_a_hint(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(server, "echo hi")
    captured = capsys.readouterr()
    assert captured.out == "job-7\n"
    assert "rota submit -- sh -c" in captured.err


def test_a_program_with_a_space_in_its_name_gets_none(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "my program"
    program.touch(mode=0o755)
    submitted(server, str(program))
    assert capsys.readouterr().err == ""


def test_a_warning_is_talk(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer({**DONE, "warning": "Queue delayed; respecting caps"}, 201)]
    assert main(["submit", "--", "true"]) == 0
    assert capsys.readouterr() == ("job-7\n", "rota: warning: Queue delayed; respecting caps\n")


def test_already_active_prints_the_job_that_is(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer({**DONE, "result": "already_active"})]
    assert main(["submit", "--", "true"]) == 0
    assert capsys.readouterr() == ("job-7\n", "rota: already active as job-7; nothing was added\n")
    server.replies = [answer({**DONE, "result": "already_active"})]
    assert main(["submit", "--json", "--", "true"]) == 0
    assert json.loads(capsys.readouterr().out) == {**DONE, "result": "already_active"}


def test_deferred_leaves_with_75(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(429, "deferred", "full")]
    assert main(["submit", "--", "true"]) == 75
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rota: deferred: ")


def test_deferred_is_an_answer_like_the_others(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    depth = {"total": 16, "soft": 8, "hard": 16, "by_flow": {}}
    said = {"result": "deferred", "job": None, "warning": "it is full", "depth": depth}
    document = {"type": "/problems/deferred", "title": "t", "status": 429, "detail": "it is full", "code": "deferred"}
    server.replies = [answer({**said, **document}, 429)] * 2
    assert main(["submit", "--json", "--", "true"]) == 75
    captured = capsys.readouterr()
    assert json.loads(captured.out) == said
    assert captured.err == "rota: deferred: it is full\n"
    assert main(["submit", "--follow", "--", "true"]) == 75


def test_follow_copies_both_streams_and_returns_the_jobs_code(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.routes = {
        "POST /api/jobs": answer(DONE, 201),
        "GET /api/jobs/job-7/logs/stdout?offset=0&follow=1": chunked(b"out\xff", b"put\n", b""),
        "GET /api/jobs/job-7/logs/stderr?offset=0&follow=1": chunked(b"err\n", b""),
        "GET /api/jobs/job-7?wait=0": answer({"id": "job-7", "status": "FAILED"}),
        "GET /api/jobs/job-7?wait=30": answer({"id": "job-7", "status": "FAILED", "exit_code": 9}),
    }
    assert main(["submit", "--follow", "--", "true"]) == 9
    captured = capfdbinary.readouterr()
    assert captured.out == b"out\xffput\n"
    assert captured.err == b"rota: job-7\nerr\n"


def test_follow_goes_on_where_a_broken_connection_left_off(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.routes = {
        "GET /api/jobs/job-7/logs/stdout?offset=0&follow=1": chunked(b"one ", b"two "),
        "GET /api/jobs/job-7/logs/stdout?offset=8&follow=1": chunked(b"three", b""),
        "GET /api/jobs/job-7?wait=0": answer({"id": "job-7", "status": "COMPLETED"}),
    }
    assert main(["logs", "job-7", "--stream", "stdout", "--follow"]) == 0
    assert capfdbinary.readouterr().out == b"one two three"


def test_follow_does_not_bring_back_a_scheduler_that_was_stopped(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    away = server.home.root / "away"

    def stop(_: Request) -> bytes:
        server.home.socket.rename(away)
        return chunked(b"one\n")

    server.routes = {"GET /api/jobs/job-7/logs/stdout?offset=0&follow=1": stop}
    assert main(["logs", "job-7", "--stream", "stdout", "--follow"]) == 1
    away.rename(server.home.socket)
    captured = capfdbinary.readouterr()
    assert captured.out == b"one\n"
    assert b"was stopped meanwhile" in captured.err
    assert not server.home.log.exists()


def test_the_key_stays_the_same_when_the_answer_is_lost(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    keys = []

    def reply(request: Request) -> bytes:
        keys.append(request.headers["idempotency-key"])
        return answer(DONE, 201)

    server.replies = [b"", reply]
    assert main(["submit", "--", "true"]) == 0
    assert [keys[0]] * 2 == [request.headers["idempotency-key"] for request in server.requests]
