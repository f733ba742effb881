"""`rota pause`, `resume` and `clear` against the stand-in: what is asked, what is said, how it leaves."""

from __future__ import annotations

import json

import pytest

from cli.stand_in import Server, answer, problem
from rota.cli.main import main

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
def test_a_verb_is_about_everything_or_one_scope(server: Server, verb: str, words: list[str], scope: str) -> None:
    server.replies = [answer({"result": True, "scope": scope, "paused_by": "ann", "paused_at": AT, "cleared": 0})]
    assert main([verb, *words]) == 0
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", f"/api/scheduler/{verb}")
    assert request.json() == {"scope": scope}


def test_two_scopes_at_once_are_refused(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "--flow", "a", "--target", "b"]) == 2
    assert "not allowed with" in capsys.readouterr().err
    assert server.requests == []


def test_pause_says_who_and_since_when(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"result": True, "scope": "global", "paused_by": "ann", "paused_at": AT, "warning": None}
    server.replies = [
        answer(told),
        answer({**told, "result": False, "scope": "flow/x"}),
        answer({**told, "warning": "is that its name?"}),
    ]
    assert main(["pause"]) == 0
    assert capsys.readouterr() == (f"everything is paused by ann since {AT}\n", "")
    assert main(["pause", "--flow", "x"]) == 0
    assert capsys.readouterr() == (
        f"flow/x is paused by ann since {AT}\n",
        "rota: it was paused already; nothing was changed\n",
    )
    assert main(["pause", "--flow", "x"]) == 0
    assert capsys.readouterr().err == "rota: is that its name?\n"


def test_resume_says_what_it_ended_or_that_there_was_nothing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = {"result": False, "scope": "target/web", "paused_by": None, "paused_at": None}
    server.replies = [
        answer({"result": True, "scope": "global", "paused_by": "ann", "paused_at": AT}),
        answer(nothing),
        answer(nothing),
    ]
    assert main(["resume"]) == 0
    assert capsys.readouterr().out == f"everything goes on; ann had paused it at {AT}\n"
    assert main(["resume", "--target", "web"]) == 0
    assert capsys.readouterr() == (
        "",
        "rota: target/web is not paused; nothing was changed (`rota status` shows what is)\n",
    )
    assert main(["resume", "--target", "web", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == nothing


@pytest.mark.parametrize(("count", "said"), [(0, "0 jobs"), (1, "1 job"), (100_000, "100000 jobs")])
def test_clear_says_how_many(server: Server, capsys: pytest.CaptureFixture[str], count: int, said: str) -> None:
    server.replies = [answer({"scope": "flow/x", "cleared": count})]
    assert main(["clear", "--flow", "x"]) == 0
    assert capsys.readouterr().out == f"{said} of flow/x cancelled\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "clear"])
def test_a_refusal_is_2(server: Server, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    server.replies = [problem(422, "invalid-input", "unknown scope 'flow/a b'; it is …")]
    assert main([verb, "--flow", "a b"]) == 2
    assert capsys.readouterr().err == "rota: unknown scope 'flow/a b'; it is …\n"
