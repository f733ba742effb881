"""`rota graph` against the stand-in: what it asks, what it prints, and how it fits a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.stand_in import Server, answer, problem
from rota.cli.graph import fitted
from rota.cli.main import main

EMPTY = "Outcome: No scheduled jobs"
TEXT = "job-2 QUEUED [b]\n`-- after:success -> job-1 RUNNING"


def drawing(text: str = TEXT, left_out: int = 0) -> dict[str, Any]:
    return {"text": text, "left_out": left_out}


def tagged(value: Any, tag: str) -> bytes:
    return answer(value).replace(b"\r\n", f'\r\nETag: "{tag}"\r\n'.encode(), 1)


UNCHANGED = b"HTTP/1.1 304 Not Modified\r\n\r\n"


def test_the_drawing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer(drawing()), answer(drawing(EMPTY))]
    assert main(["graph"]) == 0
    assert capsys.readouterr() == (f"{TEXT}\n", "")
    assert main(["graph", "--all", "--job", "7", "--max-depth", "0"]) == 0
    assert capsys.readouterr() == (f"{EMPTY}\n", "")
    assert [request.target for request in server.requests] == [
        "/api/graph?format=dag",
        "/api/graph?format=dag&all=1&job=job-7&max_depth=0",
    ]


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--format", "dag", "--json"]])
def test_nodes_and_edges(server: Server, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """A line each, as in the seed."""
    node = {"id": "job-1", "status": "QUEUED", "command": "echo ä", "wait": None}
    edge = {"from": "job-1", "to": "job-9", "after": {"policy": "success"}}
    server.replies = [answer({"nodes": [node, node], "edges": [edge]}), answer({"nodes": [], "edges": []})]
    assert main(["graph", *words]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {"nodes": [node, node], "edges": [edge]}
    assert out.splitlines()[2] == '    {"id": "job-1", "status": "QUEUED", "command": "echo ä", "wait": null},'
    assert len(out.splitlines()) == 9
    assert main(["graph", *words]) == 0
    assert json.loads(capsys.readouterr().out) == {"nodes": [], "edges": []}
    assert {request.target for request in server.requests} == {"/api/graph?format=json"}


def test_what_is_left_out_is_said_beside_the_data(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    rest = {"nodes": [], "edges": [], "left_out": 9}
    server.replies = [answer(drawing(left_out=9501)), answer(drawing(left_out=1)), answer(rest)]
    main(["graph"])
    note = "rota: 9501 more jobs; --job JOB looks at one, --format json has all\n"
    assert capsys.readouterr() == (f"{TEXT}\n", note)
    main(["graph"])
    assert capsys.readouterr().err.startswith("rota: 1 more job; ")
    main(["graph", "--json"])
    captured = capsys.readouterr()
    assert json.loads(captured.out) == rest
    assert captured.err == "rota: 9 more jobs; --job JOB looks at one of them\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--max-depth", "-1"], "rota: --max-depth takes a number of steps, 0 or more\n"),
        (["--job", "plan"], "rota: not a job id: 'plan'; a job id looks like job-24\n"),
        (["--format", "svg"], "choose from"),
    ],
)
def test_what_cannot_be_understood_is_2(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert main(["graph", *words]) == 2
    assert complaint in capsys.readouterr().err
    assert server.requests == []


def test_what_others_call_it(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dag"]) == 2
    assert capsys.readouterr().err == "rota: there is no verb 'dag'; did you mean `rota graph`?\n"
    assert server.requests == []


def test_watch_prints_what_is_new_and_nothing_else(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = problem(503, "unavailable", "the scheduler stops")
    server.replies = [tagged(drawing(), "a"), UNCHANGED, tagged(drawing(EMPTY), "b"), stopped]
    assert main(["graph", "--watch"]) == 1
    assert capsys.readouterr() == (f"{TEXT}\n\n{EMPTY}\n\n", "rota: the scheduler stops\n")
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, '"a"', '"a"', '"b"']
    assert {request.target for request in server.requests} == {"/api/graph?format=dag&wait=2"}


def test_watch_as_json_is_a_line_for_each_graph(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [tagged({"nodes": [], "edges": []}, "a"), problem(503, "unavailable", "the scheduler stops")]
    assert main(["graph", "--watch", "--json"]) == 1
    assert capsys.readouterr().out == '{"nodes": [], "edges": []}\n'


def test_a_terminal_gets_what_it_has_room_for() -> None:
    tall = drawing("\n".join(f"job-{number} QUEUED" for number in range(1, 8)))
    assert fitted(drawing(), width=80, height=24) == TEXT.split("\n")
    assert fitted(tall, width=80, height=7) == tall["text"].split("\n")
    assert fitted(tall, width=80, height=3) == [
        "job-1 QUEUED",
        "job-2 QUEUED",
        "... 5 more lines; without --watch they are all there",
    ]
    assert fitted(drawing(), width=12, height=24) == ["job-2 QUE...", "`-- after..."]
    assert fitted(drawing(left_out=7), width=80, height=3)[-1] == (
        "... 7 more jobs; --job JOB looks at one, --format json has all"
    )
