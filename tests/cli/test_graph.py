"""`rota graph` with the stand-in: requests, output, and fit to a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.cli.main import main
from rota.graph.cli import fit_to_screen
from tests.cli.fake_scheduler import Server, json_response, problem

EMPTY = "Outcome: No scheduled jobs"
TEXT = "job-2 QUEUED [b]\n`-- after:success -> job-1 RUNNING"


def drawing(text: str = TEXT, skipped: int = 0) -> dict[str, Any]:
    return {"text": text, "skipped": skipped}


def response_with_etag(value: Any, tag: str) -> bytes:
    return json_response(value).replace(b"\r\n", f'\r\nETag: "{tag}"\r\n'.encode(), 1)


UNCHANGED = b"HTTP/1.1 304 Not Modified\r\n\r\n"


def test_drawing_is_printed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response(drawing()), json_response(drawing(EMPTY))]
    assert main(["graph"]) == 0
    assert capsys.readouterr() == (f"{TEXT}\n", "")
    assert main(["graph", "--all", "--job", "7", "--max-depth", "0"]) == 0
    assert capsys.readouterr() == (f"{EMPTY}\n", "")
    assert [request.target for request in server.requests] == [
        "/api/graph?format=dag",
        "/api/graph?format=dag&all=1&job=job-7&max_depth=0",
    ]


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--format", "dag", "--json"]])
def test_graph_json_has_one_node_or_edge_a_line(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Each node and edge has its own line, as in the seed."""
    node = {"id": "job-1", "status": "QUEUED", "command": "echo ä", "wait": None}
    edge = {"from": "job-1", "to": "job-9", "after": {"policy": "success"}}
    server.replies = [
        json_response({"nodes": [node, node], "edges": [edge]}),
        json_response({"nodes": [], "edges": []}),
    ]
    assert main(["graph", *words]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {"nodes": [node, node], "edges": [edge]}
    assert out.splitlines()[2] == '    {"id": "job-1", "status": "QUEUED", "command": "echo ä", "wait": null},'
    assert len(out.splitlines()) == 9
    assert main(["graph", *words]) == 0
    assert json.loads(capsys.readouterr().out) == {"nodes": [], "edges": []}
    assert {request.target for request in server.requests} == {"/api/graph?format=json"}


def test_skipped_jobs_are_reported_on_stderr(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    rest = {"nodes": [], "edges": [], "skipped": 9}
    server.replies = [json_response(drawing(skipped=9501)), json_response(drawing(skipped=1)), json_response(rest)]
    main(["graph"])
    note = "rota: 9501 more jobs; --job JOB shows one, --format json lists all\n"
    assert capsys.readouterr() == (f"{TEXT}\n", note)
    main(["graph"])
    assert capsys.readouterr().err.startswith("rota: 1 more job; ")
    main(["graph", "--json"])
    captured = capsys.readouterr()
    assert json.loads(captured.out) == rest
    assert captured.err == "rota: 9 more jobs; --job JOB shows one of them\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-depth", "-1"], "rota: --max-depth takes a number of steps, 0 or more\n"),
        (["--job", "plan"], "rota: not a job id: 'plan'; a job id looks like job-24\n"),
        (["--format", "svg"], "--format cannot be 'svg'; it takes one of: dag, json"),
    ],
)
def test_usage_error_exits_with_2(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["graph", *words]) == 2
    assert message in capsys.readouterr().err
    assert server.requests == []


def test_dag_suggests_graph(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dag"]) == 2
    assert capsys.readouterr().err == "rota: unknown command 'dag'; did you mean `rota graph`?\n"
    assert server.requests == []


def test_watch_prints_only_changed_graphs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = problem(503, "unavailable", "the scheduler stops")
    server.replies = [response_with_etag(drawing(), "a"), UNCHANGED, response_with_etag(drawing(EMPTY), "b"), stopped]
    assert main(["graph", "--watch"]) == 1
    assert capsys.readouterr() == (f"{TEXT}\n\n{EMPTY}\n\n", "rota: the scheduler stops\n")
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, '"a"', '"a"', '"b"']
    assert {request.target for request in server.requests} == {"/api/graph?format=dag&wait=2"}


def test_watch_as_json_prints_a_line_for_each_graph(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [
        response_with_etag({"nodes": [], "edges": []}, "a"),
        problem(503, "unavailable", "the scheduler stops"),
    ]
    assert main(["graph", "--watch", "--json"]) == 1
    assert capsys.readouterr().out == '{"nodes": [], "edges": []}\n'


def test_drawing_is_cut_to_the_terminal() -> None:
    tall = drawing("\n".join(f"job-{number} QUEUED" for number in range(1, 8)))
    assert fit_to_screen(drawing(), width=80, height=24) == TEXT.split("\n")
    assert fit_to_screen(tall, width=80, height=7) == tall["text"].split("\n")
    assert fit_to_screen(tall, width=80, height=3) == [
        "job-1 QUEUED",
        "job-2 QUEUED",
        "... 5 more lines; run without --watch to see all",
    ]
    assert fit_to_screen(drawing(), width=12, height=24) == ["job-2 QUE...", "`-- after..."]
    assert fit_to_screen(drawing(skipped=7), width=80, height=3)[-1] == (
        "... 7 more jobs; --job JOB shows one, --format json lists all"
    )
