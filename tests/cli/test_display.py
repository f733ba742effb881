"""`rota list` and `rota show` as they were told to look: by options, by the configuration, by nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from cli.stand_in import Server, answer
from rota.cli.main import main

CAPACITY = {"kind": "capacity", "detail": "waiting on pool global (1/1)", "on": ["pool:global"]}
DEPS = {"kind": "dependencies", "detail": "waiting on job job-1", "on": ["job:1"]}


def job(number: int, status: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "name": f"n{number}", "command": ["true"], "priority": 0, **fields}


JOBS = [
    job(1, "RUNNING", target="web", pools={"global": 1}, run={"id": "run-1", "worker": "local/1"}),
    job(2, "QUEUED", target=None, wait=CAPACITY, pools={"global": 1, "flow/x": 1}),
    job(3, "WAITING_ON_DEPS", target="web", wait=DEPS, pools={"resource/gpu": 1}),
]


def text(block: str) -> str:
    return dedent(block).lstrip("\n")


def given(server: Server, display: object = None) -> None:
    server.replies = [answer({"jobs": JOBS, "next": None, "counts": {"COMPLETED": 2, "FAILED": 1}})] * 9
    if display is not None:
        server.routes["GET /api/display"] = answer(display)


def test_columns_that_were_asked_for(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
    assert main(["list", "--fields", "id, wait,run.worker"]) == 0
    assert capsys.readouterr().out == text(
        """
        ID     WAIT                          RUN.WORKER
        job-1                                local/1
        job-2  waiting on pool global (1/1)
        job-3  waiting on job job-1
        """
    )


def test_blocks(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
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


def test_by_target(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
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
            rota: 3 finished jobs hidden (2 COMPLETED, 1 FAILED); --all shows them
            """
        ),
    )


def test_by_pool_in_blocks(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
    server.routes["GET /api/pools"] = answer({"pools": {"global": {"size": 1, "used": 1}}, "each": {"flow": 2}})
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


def test_by_in_json(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
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
    assert captured.err == ""


def test_nothing_by_target(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer({"jobs": [], "next": None, "counts": {}})] * 2
    assert main(["list", "--by", "target"]) == 0
    assert capsys.readouterr() == ("", "rota: no active jobs\n")
    assert main(["list", "--by", "target", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == []


CONFIGURED = {
    "list": {"format": "block", "fields": ["id", "wait"]},
    "show": {"format": "table", "fields": ["status", "title"]},
}


def test_the_configuration_holds_where_no_option_says_otherwise(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    given(server, CONFIGURED)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.startswith(
        "id                 job-1\nwait               -\n\nid                 job-2\n"
    )
    assert main(["list", "--format", "table"]) == 0
    assert capsys.readouterr().out.startswith("ID     WAIT\njob-1\njob-2  waiting on pool")
    assert main(["list", "--fields", "id"]) == 0
    assert capsys.readouterr().out.startswith("id                 job-1\n\nid                 job-2\n")
    server.replies = [answer(job(7, "QUEUED"))] * 2
    assert main(["show", "7"]) == 0
    assert capsys.readouterr().out == "STATUS  NAME/COMMAND\nQUEUED  n7\n"
    assert main(["show", "7", "--fields", "id,after", "--format", "block"]) == 0
    assert capsys.readouterr().out == "id                 job-7\nafter              -\n"


@pytest.mark.parametrize("option", [["--json"], ["--format", "json"], ["--json", "--format", "json"]])
def test_json_is_whole_whatever_people_have_configured(
    server: Server, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    given(server, CONFIGURED)
    assert main(["list", *option]) == 0
    answered = {"jobs": JOBS, "next": None, "counts": {"COMPLETED": 2, "FAILED": 1}}
    assert capsys.readouterr() == (json.dumps(answered, indent=2) + "\n", "")
    server.replies = [answer(JOBS[1])]
    assert main(["show", "2", *option]) == 0
    assert json.loads(capsys.readouterr().out) == JOBS[1]
    assert [request.target for request in server.requests if "display" in request.target] == []


def test_some_jobs_only(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
    assert main(["list", "--type", "a/b", "--target", "web", "--status", "queued", "--limit", "5"]) == 0
    assert server.requests[0].target == "/api/jobs?status=QUEUED&type=a%2Fb&target=web&limit=5"
    assert main(["list", "--name", "x"]) == 0
    assert capsys.readouterr().err == "rota: finished jobs are left out; --all lists them too\n"


def test_json_as_configured_format_is_whole_too(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server, {"list": {"format": "json", "fields": ["id"]}})
    assert main(["list"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == JOBS


def test_json_of_some_fields(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    given(server)
    assert main(["list", "--json", "--fields", "id,wait,mark,run.worker"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == [
        {"id": "job-1", "wait": None, "mark": "*", "run.worker": "local/1"},
        {"id": "job-2", "wait": CAPACITY, "mark": "+", "run.worker": None},
        {"id": "job-3", "wait": DEPS, "mark": "-", "run.worker": None},
    ]


def test_a_scheduler_from_before_an_upgrade_knows_of_no_display(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    given(server)
    server.routes["GET /api/display"] = answer({"code": "not-found", "detail": "no such thing"}, 404)
    assert main(["list"]) == 0
    assert capsys.readouterr().out.startswith("ID     STATUS")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--fields", "id,stauts"], "there is no field 'stauts'; did you mean status?"),
        (["show", "1", "--fields", "artifacts"], "there is no field 'artifacts'; did you mean produces?"),
        (["list", "--fields", ""], "a field without a name"),
        (["list", "--json", "--format", "table"], "--json and --format table exclude each other; leave one out"),
        (["show", "1", "--json", "--format", "block"], "--json and --format block exclude each other"),
        (["list", "--format", "xml"], "invalid choice: 'xml'"),
        (["list", "--by", "colour"], "invalid choice: 'colour'"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_anybody_is_asked(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert server.requests == []


def test_letters_that_the_output_does_not_have(server: Server) -> None:
    server.replies = [answer({"jobs": [job(1, "QUEUED") | {"name": "日é"}], "next": None, "counts": {}})] * 2

    def listed(*words: str) -> bytes:
        command = [sys.executable, "-X", "utf8=0", "-m", "rota", "list", "--fields", "name", *words]
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert listed() == b"NAME\n\\u65e5\xe9\n"
    assert json.loads(listed("--json"))["jobs"] == [{"name": "日é"}]
