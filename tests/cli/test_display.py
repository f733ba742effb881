"""Display options of `rota list` and `rota show`: from options, from the configuration, and by default."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from textwrap import dedent
from typing import Any

import pytest

from rota.cli.main import main
from tests.cli.fake_scheduler import Server, json_response

CAPACITY = {"kind": "capacity", "detail": "waiting on pool global (1/1)", "topics": ["pool:global"]}
DEPS = {"kind": "dependencies", "detail": "waiting on job job-1", "topics": ["job:1"]}


def job(number: int, status: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "name": f"n{number}", "command": ["true"], "priority": 0, **fields}


JOBS = [
    job(1, "RUNNING", target="web", pools={"global": 1}, run={"id": "run-1", "worker": "local/1"}),
    job(2, "QUEUED", target=None, wait=CAPACITY, pools={"global": 1, "flow/x": 1}),
    job(3, "WAITING_ON_DEPS", target="web", wait=DEPS, pools={"resource/gpu": 1}),
]


def text(block: str) -> str:
    return dedent(block).lstrip("\n")


def prepare_replies(server: Server, display: object = None) -> None:
    server.replies = [json_response({"jobs": JOBS, "next": None, "counts": {"COMPLETED": 2, "FAILED": 1}})] * 9
    if display is not None:
        server.routes["GET /api/display"] = json_response(display)


def test_list_shows_selected_fields(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    assert main(["list", "--fields", "id, wait,run.worker"]) == 0
    assert capsys.readouterr().out == text(
        """
        ID     WAIT                          RUN.WORKER
        job-1                                local/1
        job-2  waiting on pool global (1/1)
        job-3  waiting on job job-1
        """
    )


def test_list_prints_blocks(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    assert main(["list", "--format", "block", "--fields", "id,target"]) == 0
    assert capsys.readouterr().out == text(
        """
        id                 job-1
        target             web

        id                 job-2
        target             -

        id                 job-3
        target             web
        """
    )
    assert [request.target for request in server.requests if "display" in request.target] == []


def test_list_groups_by_target(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    assert main(["list", "--by", "target"]) == 0
    assert capsys.readouterr() == (
        text(
            """
               ID     STATUS           NAME/COMMAND  PRIO  WAIT/REASON                   TIME

            target web: 2 jobs (1 running, 1 not ready)
            *  job-1  RUNNING          n1            0
            -  job-3  WAITING_ON_DEPS  n3            0     waiting on job job-1

            (no target): 1 job (1 ready)
            +  job-2  QUEUED           n2            0     waiting on pool global (1/1)
            """
        ),
        text(
            """
            rota: * running, + ready, - not ready, . ended
            rota: 3 ended jobs hidden (2 COMPLETED, 1 FAILED); --all lists them
            """
        ),
    )


def test_list_groups_by_pool_in_blocks(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    server.routes["GET /api/pools"] = json_response(
        {"pools": {"global": {"size": 1, "used": 1}}, "defaults": {"flow": 2}}
    )
    assert main(["list", "--by", "pool", "--format", "block", "--fields", "id"]) == 0
    assert capsys.readouterr().out == text(
        """
        pool global 1/1: 2 jobs (1 running, 1 ready)

        mark               * running
        id                 job-1

        mark               + ready
        id                 job-2

        pool flow/x 0/2: 1 job (1 ready)

        mark               + ready
        id                 job-2

        (no pool with a limit): 1 job (1 not ready)

        mark               - not ready
        id                 job-3
        """
    )
    assert main(["list", "--by", "pool", "--format", "block"]) == 0
    assert (
        "\n\nmark               * running\nid                 job-1\nname               n1\n" in capsys.readouterr().out
    )


def test_list_groups_in_json(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    assert main(["list", "--by", "target", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "by": "target",
        "groups": [
            {"key": "web", "counts": {"running": 1, "ready": 0, "not_ready": 1, "ended": 0}, "jobs": JOBS[::2]},
            {"key": None, "counts": {"running": 0, "ready": 1, "not_ready": 0, "ended": 0}, "jobs": JOBS[1:2]},
        ],
        "next": None,
        "counts": {"COMPLETED": 2, "FAILED": 1},
    }
    assert captured.out == json.dumps(json.loads(captured.out), indent=2) + "\n"
    assert captured.err == ""


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_grouped_list_shows_progress_on_a_terminal(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = [
        json_response({"jobs": JOBS[:2], "next": "waiting.0.1.1.2", "counts": {}}),
        json_response({"jobs": JOBS[2:], "next": None}),
    ]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["list", "--by", "target", "--fields", "id"]) == 0
    assert terminal.getvalue().startswith("\rrota: 2 jobs read\033[K\n\033[J\r\033[1A\033[J")
    assert capsys.readouterr().out.splitlines()[2:4] == ["target web: 2 jobs (1 running, 1 not ready)", "*  job-1"]


def test_grouped_list_without_jobs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response({"jobs": [], "next": None, "counts": {}})] * 2
    assert main(["list", "--by", "target"]) == 0
    assert capsys.readouterr() == ("", "rota: no active jobs\n")
    assert main(["list", "--by", "target", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == []


CONFIGURED = {
    "list": {"format": "block", "fields": ["id", "wait"]},
    "show": {"format": "table", "fields": ["status", "title"]},
}


def test_configured_display_is_the_default_of_the_options(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server, CONFIGURED)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.startswith(
        "id                 job-1\nwait               -\n\nid                 job-2\n"
    )
    assert main(["list", "--format", "table"]) == 0
    assert capsys.readouterr().out.startswith("ID     WAIT\njob-1\njob-2  waiting on pool")
    assert main(["list", "--fields", "id"]) == 0
    assert capsys.readouterr().out.startswith("id                 job-1\n\nid                 job-2\n")
    server.replies = [json_response(job(7, "QUEUED"))] * 2
    assert main(["show", "7"]) == 0
    assert capsys.readouterr().out == "STATUS  NAME/COMMAND\nQUEUED  n7\n"
    assert main(["show", "7", "--fields", "id,after", "--format", "block"]) == 0
    assert capsys.readouterr().out == "id                 job-7\nafter              -\n"


@pytest.mark.parametrize("option", [["--json"], ["--format", "json"], ["--json", "--format", "json"]])
def test_json_ignores_configured_fields(server: Server, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    prepare_replies(server, CONFIGURED)
    assert main(["list", *option]) == 0
    expected = {"jobs": JOBS, "next": None, "counts": {"COMPLETED": 2, "FAILED": 1}}
    assert capsys.readouterr() == (json.dumps(expected, indent=2) + "\n", "")
    server.replies = [json_response(JOBS[1])]
    assert main(["show", "2", *option]) == 0
    assert json.loads(capsys.readouterr().out) == JOBS[1]
    assert [request.target for request in server.requests if "display" in request.target] == []


def test_list_sends_filters(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    assert main(["list", "--type", "a/b", "--target", "web", "--status", "queued", "--limit", "5"]) == 0
    assert server.requests[1].target == "/api/jobs?status=QUEUED&type=a%2Fb&target=web&limit=5"
    assert main(["list", "--name", "x"]) == 0
    assert capsys.readouterr().err == "rota: ended jobs are not listed; --all includes them\n"


def test_configured_json_format_ignores_configured_fields(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server, {"list": {"format": "json", "fields": ["id"]}})
    assert main(["list"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == JOBS


def test_json_shows_selected_fields(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    assert main(["list", "--json", "--fields", "id,wait,mark,run.worker"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == [
        {"id": "job-1", "wait": None, "mark": "*", "run.worker": "local/1"},
        {"id": "job-2", "wait": CAPACITY, "mark": "+", "run.worker": None},
        {"id": "job-3", "wait": DEPS, "mark": "-", "run.worker": None},
    ]


def test_list_works_with_a_scheduler_without_display(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_replies(server)
    server.routes["GET /api/display"] = json_response({"code": "not-found", "detail": "no such thing"}, 404)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.startswith("ID     STATUS")


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["list", "--fields", "id,stauts"], "unknown field 'stauts'; did you mean status?"),
        (["show", "1", "--fields", "artifacts"], "unknown field 'artifacts'; did you mean produces?"),
        (["list", "--fields", ""], "empty field name"),
        (["list", "--json", "--format", "table"], "--json and --format table exclude each other; remove one"),
        (["show", "1", "--json", "--format", "block"], "--json and --format block exclude each other"),
        (["list", "--format", "xml"], "--format cannot be 'xml'; it takes one of: "),
        (["list", "--by", "colour"], "--by cannot be 'colour'; it takes one of: "),
    ],
)
def test_invalid_display_options_are_refused_before_a_request(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], output: str
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert output in captured.err
    assert server.requests == []


def test_unencodable_characters_are_escaped(server: Server) -> None:
    server.replies = [json_response({"jobs": [job(1, "QUEUED") | {"name": "日é"}], "next": None, "counts": {}})] * 2

    def run_list(*words: str) -> bytes:
        command = [sys.executable, "-X", "utf8=0", "-m", "rota", "list", "--fields", "name", *words]
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert run_list() == b"NAME\n\\u65e5\xe9\n"
    assert json.loads(run_list("--json"))["jobs"] == [{"name": "日é"}]
