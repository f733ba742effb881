"""Requests and output of `rota edit`, `rota move` and `rota lock`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.cli.main import main
from tests.cli.fake_scheduler import Server, json_response, problem

JOB: dict[str, Any] = {"id": "job-3", "status": "QUEUED", "priority": 5}


def edit_response(*fields: str, **more: Any) -> bytes:
    return json_response({"job": JOB, "fields": list(fields), "warning": None, **more})


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["--priority", "-2"], {"priority": -2}),
        (
            ["--param", "a=1", "--param", "b:=[1]", "--unset-param", "c"],
            {"set_params": {"a": "1", "b": [1]}, "unset_params": ["c"]},
        ),
        (["--name", "x"], {"name": "x"}),
        (["--name", ""], {"name": None}),
        (
            ["--timeout", "none", "--idle-timeout", "5s", "--delay", "none"],
            {"timeout": None, "idle_timeout": "5s", "delay": None},
        ),
        (["--retries", "0", "--retry", "fleet"], {"retries": 0, "retry": "fleet"}),
        (["--", "echo", "--name", "--", "x"], {"command": ["echo", "--name", "--", "x"]}),
        (["--priority", "1", "--", "echo"], {"priority": 1, "command": ["echo"]}),
    ],
)
def test_edit_sends_only_given_options(server: Server, words: list[str], sent: dict[str, Any]) -> None:
    server.routes = {"PATCH /api/jobs/job-3": edit_response("name")}
    assert main(["edit", "3", *words]) == 0
    assert server.requests[-1].json() == sent
    options = words[: words.index("--")] if "--" in words else words
    command = words[len(options) :]
    assert main(["edit", *options, "3", *command]) == 0, "options can precede the job"
    assert server.requests[-1].json() == sent


def test_edit_prints_changed_fields_to_stdout_and_notices_to_stderr(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.replies = [edit_response("name", "priority", warning="it has no param 'z'"), edit_response()]
    assert main(["edit", "3", "--name", "x"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("job-3 name, priority\n", "rota: warning: it has no param 'z'\n")
    assert main(["edit", "3", "--name", "x"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "rota: nothing changed: job-3 already has these values\n")


def test_edit_reports_a_started_job_and_prints_json(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    result = {"job": {**JOB, "status": "RUNNING"}, "fields": ["not_before"], "warning": None}
    server.replies = [json_response(result), json_response(result)]
    assert main(["edit", "3", "--delay", "none"]) == 0
    assert capsys.readouterr().err == "rota: job-3 has started\n"
    assert main(["edit", "3", "--delay", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["edit", "3"], "no change given"),
        (["edit", "3", "--after", "2", "--name", "x"], "--after cannot be edited; cancel the job and submit a new one"),
        (["edit", "3", "--lock", "x"], "--lock cannot be edited"),
        (["edit", "3", "--"], "there is no command after --"),
        (["edit", "3", "--param", "x"], "write it as NAME=TEXT"),
        (["edit", "3", "echo"], "unrecognized arguments: echo"),
        (["edit", "3", "--prioritty", "5"], "unknown option --prioritty; did you mean --priority?"),
        (["group", "list", "--al"], "unknown option --al; did you mean --all?"),
        (["list", "--zzz=3"], "unknown option --zzz; see `rota list --help`"),
        (["move", "3"], "one of the arguments --first --last --to --before --after --reorder is required"),
        (["move", "3", "--first", "--last"], "not allowed with"),
        (["move", "3", "4", "--first"], "only one job can be moved at a time"),
    ],
)
def test_usage_error_exits_with_2_before_a_request(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert main(words) == 2
    assert text in capsys.readouterr().err
    assert server.requests == []


def test_conflict_exits_with_4(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(409, "conflict", "Cannot modify params after dispatch: job-3 is RUNNING")] * 2
    assert main(["edit", "3", "--param", "a=1"]) == 4
    assert main(["move", "3", "--last"]) == 4
    assert "Cannot modify params after dispatch" in capsys.readouterr().err


def test_edit_is_not_retried_after_a_lost_response(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [b"", edit_response("name")]
    assert main(["edit", "3", "--name", "x"]) == 1
    assert len(server.requests) == 1
    assert "may have been carried out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["--first"], {"first": True}),
        (["--last"], {"last": True}),
        (["--to", "2"], {"to": 2}),
        (["--before", "9"], {"before": "job-9"}),
        (["--after", "job-9"], {"after": "job-9"}),
    ],
)
def test_move_sends_the_target_and_prints_the_place(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], sent: dict[str, Any]
) -> None:
    server.replies = [json_response({"job": JOB, "place": 2, "moved": True})]
    assert main(["move", "3", *words]) == 0
    assert (server.requests[0].target, server.requests[0].json()) == ("/api/jobs/job-3/move", sent)
    assert capsys.readouterr().out == "job-3 place 2 of priority 5\n"


def test_move_reports_an_unchanged_place_and_a_started_job(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [
        json_response({"job": JOB, "place": 1, "moved": False}),
        json_response({"job": {**JOB, "status": "RUNNING"}, "place": None, "moved": True}),
    ]
    assert main(["move", "3", "--first"]) == 0
    captured = capsys.readouterr()
    assert captured == ("job-3 place 1 of priority 5\n", "rota: nothing changed: job-3 is already at this place\n")
    assert main(["move", "3", "--first"]) == 0
    assert capsys.readouterr().out == "job-3 RUNNING\n"


def test_reorder_prints_the_new_order(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/queue/reorder": json_response({"order": ["job-7", "job-3"], "moved": True})}
    assert main(["move", "7", "3", "--reorder"]) == 0
    assert server.requests[0].json() == {"order": ["job-7", "job-3"]}
    assert capsys.readouterr().out == "job-7\njob-3\n"


LOCKS = [
    {"key": "branch/main", "mode": None, "holders": [], "waiters": [{"id": "job-4", "mode": "shared"}], "waiting": 1},
    {
        "key": "repo",
        "mode": "exclusive",
        "holders": [{"id": "job-1", "mode": "exclusive"}],
        "waiters": [{"id": "reservation-2", "mode": "exclusive"}, {"id": "job-3", "mode": "shared"}],
        "waiting": 5,
    },
]


def test_lock_table_covers_all_pages(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "GET /api/locks?limit=1000": json_response({"locks": LOCKS[:1], "next": "branch/main"}),
        "GET /api/locks?limit=1000&cursor=branch%2Fmain": json_response({"locks": LOCKS[1:], "next": None}),
    }
    assert main(["lock", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "LOCK         MODE       HOLDERS  WAITERS",
        "branch/main  free                job-4:shared",
        "repo         exclusive  job-1    reservation-2, job-3:shared and 3 more",
    ]
    assert main(["lock", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"locks": LOCKS}


def test_free_lock_prints_a_notice(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    free: dict[str, Any] = {"key": "a b", "mode": None, "holders": [], "waiters": [], "waiting": 0}
    server.routes = {
        "GET /api/locks?key=a%20b&limit=1000": json_response({"locks": [free], "next": None}),
        "GET /api/locks?limit=1000": json_response({"locks": [], "next": None}),
    }
    assert main(["lock", "list", "a b"]) == 0
    assert main(["lock"]) == 0
    notices = "rota: lock a b is not held and has no waiters\nrota: no lock is held or waited for\n"
    assert capsys.readouterr() == ("", notices)
