"""`rota edit`, `rota move` and `rota lock`: what is sent, and what is said of the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.stand_in import Server, answer, problem
from rota.cli.main import main

JOB: dict[str, Any] = {"id": "job-3", "status": "QUEUED", "priority": 5}


def edited(*fields: str, **more: Any) -> bytes:
    return answer({"job": JOB, "fields": list(fields), "warning": None, **more})


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["--priority", "-2"], {"priority": -2}),
        (["--param", "a=1", "--param", "b:=[1]", "--unset-param", "c"],
         {"set_params": {"a": "1", "b": [1]}, "unset_params": ["c"]}),
        (["--name", "x"], {"name": "x"}),
        (["--name", ""], {"name": None}),
        (["--timeout", "none", "--idle-timeout", "5s", "--delay", "none"],
         {"timeout": None, "idle_timeout": "5s", "delay": None}),
        (["--retries", "0", "--retry", "fleet"], {"retries": 0, "retry": "fleet"}),
        (["--", "echo", "--name", "--", "x"], {"command": ["echo", "--name", "--", "x"]}),
        (["--priority", "1", "--", "echo"], {"priority": 1, "command": ["echo"]}),
    ],
)  # fmt: skip
def test_only_what_was_asked_for_is_sent(server: Server, words: list[str], sent: dict[str, Any]) -> None:
    server.routes = {"PATCH /api/jobs/job-3": edited("name")}
    assert main(["edit", "3", *words]) == 0
    assert server.requests[-1].json() == sent
    options = words[: words.index("--")] if "--" in words else words
    command = words[len(options) :]
    assert main(["edit", *options, "3", *command]) == 0, "options may stand before the job"
    assert server.requests[-1].json() == sent


def test_what_changed_is_data_and_the_rest_is_talk(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [edited("name", "priority", warning="it has no param 'z'"), edited()]
    assert main(["edit", "3", "--name", "x"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("job-3 name, priority\n", "rota: warning: it has no param 'z'\n")
    assert main(["edit", "3", "--name", "x"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "rota: job-3 was so already; nothing was changed\n")


def test_an_edit_that_starts_it_says_so_and_json_is_the_answer(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"job": {**JOB, "status": "RUNNING"}, "fields": ["not_before"], "warning": None}
    server.replies = [answer(told), answer(told)]
    assert main(["edit", "3", "--delay", "none"]) == 0
    assert capsys.readouterr().err == "rota: job-3 has started\n"
    assert main(["edit", "3", "--delay", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["edit", "3"], "nothing is to be changed"),
        (["edit", "3", "--after", "2", "--name", "x"], "--after is fixed at submit; cancel the job and submit it anew"),
        (["edit", "3", "--lock", "x"], "--lock is fixed at submit"),
        (["edit", "3", "--"], "there is no command after --"),
        (["edit", "3", "--param", "x"], "write it as NAME=TEXT"),
        (["edit", "3", "echo"], "unrecognized arguments: echo"),
        (["move", "3"], "one of the arguments --first --last --to --before --after --reorder is required"),
        (["move", "3", "--first", "--last"], "not allowed with"),
        (["move", "3", "4", "--first"], "one job is moved at a time"),
    ],
)
def test_what_cannot_be_understood_is_2_and_is_not_sent(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert main(words) == 2
    assert text in capsys.readouterr().err
    assert server.requests == []


def test_a_conflict_is_4(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(409, "conflict", "Cannot modify params after dispatch: job-3 is RUNNING")] * 2
    assert main(["edit", "3", "--param", "a=1"]) == 4
    assert main(["move", "3", "--last"]) == 4
    assert "Cannot modify params after dispatch" in capsys.readouterr().err


def test_an_edit_whose_answer_is_lost_is_not_made_twice(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [b"", edited("name")]
    assert main(["edit", "3", "--name", "x"]) == 1
    assert len(server.requests) == 1
    assert "may have been carried out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["--first"], {"first": True}), (["--last"], {"last": True}), (["--to", "2"], {"to": 2}),
        (["--before", "9"], {"before": "job-9"}), (["--after", "job-9"], {"after": "job-9"}),
    ],
)  # fmt: skip
def test_where_to_is_sent_and_its_place_is_said(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], sent: dict[str, Any]
) -> None:
    server.replies = [answer({"job": JOB, "place": 2, "moved": True})]
    assert main(["move", "3", *words]) == 0
    assert (server.requests[0].target, server.requests[0].json()) == ("/api/jobs/job-3/move", sent)
    assert capsys.readouterr().out == "job-3 place 2 of priority 5\n"


def test_one_that_stood_there_and_one_that_started(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [
        answer({"job": JOB, "place": 1, "moved": False}),
        answer({"job": {**JOB, "status": "RUNNING"}, "place": None, "moved": True}),
    ]
    assert main(["move", "3", "--first"]) == 0
    captured = capsys.readouterr()
    assert captured == ("job-3 place 1 of priority 5\n", "rota: job-3 stands there already\n")
    assert main(["move", "3", "--first"]) == 0
    assert capsys.readouterr().out == "job-3 RUNNING\n"


def test_reorder(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/queue/reorder": answer({"order": ["job-7", "job-3"], "moved": True})}
    assert main(["move", "7", "3", "--reorder"]) == 0
    assert server.requests[0].json() == {"order": ["job-7", "job-3"]}
    assert capsys.readouterr().out == "job-7\njob-3\n"


LOCKS = [
    {"key": "branch/main", "mode": None, "holders": [], "waiters": [{"id": "job-4", "mode": "shared"}], "waiting": 1},
    {"key": "repo", "mode": "exclusive", "holders": [{"id": "job-1", "mode": "exclusive"}],
     "waiters": [{"id": "slot-2", "mode": "exclusive"}, {"id": "job-3", "mode": "shared"}], "waiting": 5},
]  # fmt: skip


def test_locks_as_a_table_over_all_pages(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "GET /api/locks?limit=1000": answer({"locks": LOCKS[:1], "next": "branch/main"}),
        "GET /api/locks?limit=1000&cursor=branch%2Fmain": answer({"locks": LOCKS[1:], "next": None}),
    }
    assert main(["lock", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "LOCK         HELD       BY     IN LINE",
        "branch/main  no                job-4:shared",
        "repo         exclusive  job-1  slot-2, job-3:shared and 3 more",
    ]
    assert main(["lock", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"locks": LOCKS}


def test_a_lock_that_nobody_wants(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    free: dict[str, Any] = {"key": "a b", "mode": None, "holders": [], "waiters": [], "waiting": 0}
    server.routes = {
        "GET /api/locks?key=a%20b&limit=1000": answer({"locks": [free], "next": None}),
        "GET /api/locks?limit=1000": answer({"locks": [], "next": None}),
    }
    assert main(["lock", "list", "a b"]) == 0
    assert main(["lock"]) == 0
    talk = "rota: nobody holds a b or stands in line for it\nrota: no lock is held or wanted\n"
    assert capsys.readouterr() == ("", talk)
