"""`rota pause`, `resume` and `clear` with the stand-in: requests, output and exit codes."""

from __future__ import annotations

import json

import pytest

from rota.cli.main import main
from tests.cli.fake_scheduler import Server, json_response, problem

AT = "2026-03-01T11:00:00Z"


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        ([], "global"),
        (["--pool", "resource/gpu"], "resource/gpu"),
        (["--pool", "global"], "global"),
        (["--flow", "review"], "flow/review"),
        (["--target", "web"], "target/web"),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume", "clear"])
def test_verb_sends_its_scope(server: Server, verb: str, words: list[str], scope: str) -> None:
    server.replies = [
        json_response({"has_changed": True, "scope": scope, "paused_by": "ann", "paused_at": AT, "cleared": 0})
    ]
    assert main([verb, *words]) == 0
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", f"/api/scheduler/{verb}")
    assert request.json() == {"scope": scope}


def test_two_scopes_are_refused(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "--flow", "a", "--target", "b"]) == 2
    assert "not allowed with" in capsys.readouterr().err
    assert server.requests == []


def test_pause_prints_actor_and_time(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    result = {"has_changed": True, "scope": "global", "paused_by": "ann", "paused_at": AT, "warning": None}
    server.replies = [
        json_response(result),
        json_response({**result, "has_changed": False, "scope": "flow/x"}),
        json_response({**result, "warning": "is that its name?"}),
    ]
    assert main(["pause"]) == 0
    assert capsys.readouterr() == (f"everything is paused by ann since {AT}\n", "")
    assert main(["pause", "--flow", "x"]) == 0
    assert capsys.readouterr() == (
        f"flow/x is paused by ann since {AT}\n",
        "rota: nothing changed: it is already paused\n",
    )
    assert main(["pause", "--flow", "x"]) == 0
    assert capsys.readouterr().err == "rota: is that its name?\n"


def test_resume_prints_the_ended_pause_or_a_notice(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = {"has_changed": False, "scope": "target/web", "paused_by": None, "paused_at": None}
    server.replies = [
        json_response({"has_changed": True, "scope": "global", "paused_by": "ann", "paused_at": AT}),
        json_response(nothing),
        json_response(nothing),
    ]
    assert main(["resume"]) == 0
    assert capsys.readouterr().out == f"everything resumed; it was paused by ann at {AT}\n"
    assert main(["resume", "--target", "web"]) == 0
    assert capsys.readouterr() == (
        "",
        "rota: target/web is not paused; nothing was changed (`rota status` lists the pauses)\n",
    )
    assert main(["resume", "--target", "web", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == nothing


@pytest.mark.parametrize(("count", "output"), [(0, "0 jobs"), (1, "1 job"), (100_000, "100000 jobs")])
def test_clear_prints_the_number_of_jobs(
    server: Server, capsys: pytest.CaptureFixture[str], count: int, output: str
) -> None:
    server.replies = [json_response({"scope": "flow/x", "cleared": count})]
    assert main(["clear", "--flow", "x"]) == 0
    assert capsys.readouterr().out == f"{output} of flow/x cancelled\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "clear"])
def test_invalid_scope_exits_with_2(server: Server, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    server.replies = [problem(422, "invalid-input", "unknown scope 'flow/a b'; it is …")]
    assert main([verb, "--flow", "a b"]) == 2
    assert capsys.readouterr().err == "rota: unknown scope 'flow/a b'; it is …\n"
