"""`rota template` and `--param`: requests, output, and refusals before a request."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import main
from rota.cli.parser import UsageError
from rota.jobs.cli.options import parse_param, parse_params
from tests.cli.fake_scheduler import Server, json_response

TEMPLATE: dict[str, Any] = {
    "id": "template-1",
    "name": "say",
    "description": None,
    "type": "t",
    "command": ["echo", "{a b}"],
    "default_params": {"n": 1},
    "params_schema": {"properties": {"a b": {}, "n": {}}},
    "env": ["X"],
    "locks": [],
    "timeout": "1h",
    "archived_at": None,
}
STORED = {"template": TEMPLATE, "fields": ["timeout"], "warning": None}


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v=1.10", ("v", "1.10")),
        ("n:=[1, true]", ("n", [1, True])),
        ("a=", ("a", "")),
        ("a=b=c", ("a", "b=c")),
        ("a=@@me", ("a", "@me")),
        ("a=x@y", ("a", "x@y")),
        ("p=@file.md", ("p", "é\n")),
        ("p:=@file.json", ("p", {"k": 1})),
    ],
)
def test_param_syntax(text: str, expected: tuple[str, object]) -> None:
    Path("file.md").write_text("é\n", encoding="utf-8")
    Path("file.json").write_text('{"k": 1}')
    assert parse_param(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "write it as NAME=TEXT, NAME:=JSON or NAME=@FILE"),
        ("=x", "write it as"),
        (":=1", "write it as"),
        ("n:=one", "the value is not valid JSON"),
        ("p=@nowhere", "nowhere cannot be read.*p=@@"),
        ("p=@raw", "raw is not UTF-8 text"),
        ("p:=@raw.md", "raw.md is not valid JSON"),
        ('p:={"a": 1, "a": 2}', "is not valid JSON .duplicate key 'a'"),
    ],
)
def test_invalid_param_is_refused(text: str, message: str) -> None:
    Path("raw").write_bytes(b"\xff")
    Path("raw.md").write_text("x")
    with pytest.raises(UsageError, match=message):
        parse_param(text)


def test_param_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    assert parse_param("p=@-") == ("p", "piped")


def send(server: Server, *words: str, reply: Any = STORED) -> Any:
    server.replies = [json_response(reply, 201)]
    assert main(["template", *words]) == 0
    return server.requests[-1]


def test_add_sends_the_options(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.json").write_text('{"required": ["a"]}')
    request = send(
        server,
        "add",
        "say",
        "--param",
        "n:=1",
        "--schema",
        "s.json",
        "--lock",
        "l/{n}:shared",
        "--pool",
        "resource/x=2",
        "--worktree",
        "--retries",
        "0",
        "--env",
        "A=1",
        "--",
        "echo",
        "{n}",
        "--type",
        "x",
    )
    assert (request.method, request.target) == ("POST", "/api/job-templates")
    assert request.json() == {
        "name": "say",
        "command": ["echo", "{n}", "--type", "x"],
        "default_params": {"n": 1},
        "retries": 0,
        "params_schema": {"required": ["a"]},
        "locks": [{"key": "l/{n}", "mode": "shared"}],
        "pools": {"resource/x": 2},
        "worktree": True,
        "env": {"A": "1"},
    }
    assert capsys.readouterr() == ("template-1\n", "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("t.toml", 'name = "n"\ncommand = ["x"]\n'),
        ("t.json", '{"name": "n", "command": ["x"]}'),
        ("t", ' {"name": "n", "command": ["x"]}'),
    ],
)
def test_add_and_change_send_the_file(server: Server, file: str, text: str) -> None:
    Path(file).write_text(text)
    assert send(server, "add", file).json() == {"name": "n", "command": ["x"]}
    request = send(server, "change", "say", file)
    assert (request.method, request.target) == ("PUT", "/api/job-templates/say")


def test_change_sends_the_options(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    request = send(server, "change", "say", "--param", "k=v", "--timeout", "1h")
    assert (request.method, request.json()) == ("PATCH", {"set_default_params": {"k": "v"}, "timeout": "1h"})
    assert capsys.readouterr().out == "template-1 timeout\n"
    send(server, "change", "say", "--timeout", "1h", reply={**STORED, "fields": [], "warning": "w"})
    assert capsys.readouterr() == ("", "rota: warning: w\nrota: nothing changed: say already has these values\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["add", "nowhere"],
            "nowhere cannot be read: .*to add a template from options: rota template add nowhere -- COMMAND",
        ),
        (["add", "bad.yaml"], "bad.yaml:2"),
        (["add", "bad.toml"], "bad.toml:1"),
        (["add", "bad.json"], "bad.json:2"),
        (["add", "date.toml"], "is a date or a time"),
        (["add", "nan.toml"], "JSON cannot represent the number nan"),
        (["add", "list.json"], "has no fields"),
        (["add", "good.toml", "--type", "x"], "options need a command"),
        (["change", "say"], "no change given"),
        (["change", "say", "good.toml", "--type", "x"], "remove the options or the file"),
        (["example", "nothing"], "cannot be 'nothing'; it takes one of: "),
    ],
)
def test_usage_error_exits_with_2_before_a_request(
    server: Server, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "bad.yaml": "name: x\nname: y",
        "nan.toml": "a = nan",
        "bad.toml": "name = ",
        "bad.json": "{",
        "date.toml": "a = 2026-01-01",
        "list.json": "[]",
        "good.toml": 'name = "x"',
    }.items():
        Path(name).write_text(text)
    assert main(["template", *words]) == 2
    assert server.requests == []
    err = capsys.readouterr().err
    assert re.search(message, err), err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.yaml", "name: say\ncommand: [echo, '{word}']\ndefault_params: {word: no, n: 1.5, on: true}"),
        ("t.toml", 'name = "say"\ncommand = ["echo", "{word}"]\ndefault_params = {word = "no", n = 1.5, on = true}'),
        (
            "t.json",
            '{"name": "say", "command": ["echo", "{word}"], "default_params": {"word": "no", "n": 1.5, "on": true}}',
        ),
    ],
)
def test_file_formats_are_equivalent(server: Server, name: str, text: str) -> None:
    Path(name).write_text(text)
    sent_body = send(server, "add", name).json()
    assert sent_body == {
        "name": "say",
        "command": ["echo", "{word}"],
        "default_params": {"word": "no", "n": 1.5, "on": True},
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["x=@-", "y:=@-"], "standard input can be read only once"),
        (["z:=NaN"], "NaN is not a JSON number"),
        (["z:=[1e400]"], "1e400 is too large"),
    ],
)
def test_params_that_json_cannot_hold_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_params(texts)


def test_list_and_show_templates(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    old = {**TEMPLATE, "archived_at": "2026-01-01T00:00:00Z"}
    server.replies = [
        json_response({"templates": [old, {**TEMPLATE, "id": "template-2"}], "next": "template-2"}),
        json_response({"templates": [{**TEMPLATE, "id": "template-3", "name": "ask"}], "next": None}),
    ]
    assert main(["template", "list", "--all"]) == 0
    assert [request.target for request in server.requests] == [
        "/api/job-templates?all=1&limit=1000",
        "/api/job-templates?all=1&limit=1000&cursor=template-2",
    ]
    assert capsys.readouterr().out.splitlines() == [
        "NAME            ID          TYPE  PARAMS   COMMAND",
        "ask             template-3  t     a b*, n  echo '{a b}'",
        "say             template-2  t     a b*, n  echo '{a b}'",
        "say (archived)  template-1  t     a b*, n  echo '{a b}'",
    ]
    server.replies = [json_response({"templates": []})]
    assert main(["template"]) == 0
    assert capsys.readouterr().err.startswith("rota: there are no templates; `rota template example > agent.toml`")
    server.replies = [json_response(TEMPLATE)]
    assert main(["template", "show", "say"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["id               template-1", "name             say"]
    assert "command          echo '{a b}'" in shown
    assert "env              X" in shown
    assert not any(line.startswith("locks") for line in shown)


def test_archive_and_unarchive(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("archive", "unarchive"):
        assert send(server, verb, "say", reply=TEMPLATE).target == f"/api/job-templates/say/{verb}"
        assert capsys.readouterr().out == f"template-1 say {verb}d\n"


def test_json_output(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for words, reply in ((["list"], {"templates": []}), (["show", "x"], TEMPLATE), (["archive", "x"], TEMPLATE)):
        server.replies = [json_response(reply)]
        assert main(["template", *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == reply
    assert main(["template", "example", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].startswith("# A job for a CLI agent")


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_template_and_command_exclude_each_other(server: Server, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--template", "say", "--", "echo", "x"]) == 2
    assert "template say has its own command; remove 'echo'" in capsys.readouterr().err
    assert main([verb]) == 2
    assert "there is no command to" in capsys.readouterr().err
    assert server.requests == []


def test_submit_of_a_template_sends_params(server: Server) -> None:
    server.replies = [
        json_response({"result": "submitted", "job": {"id": "job-1", "status": "QUEUED"}, "warning": None}, 201)
    ]
    assert main(["submit", "--template", "say", "--param", "a=1", "--env", "X=1", "--base", "main"]) == 0
    body = server.requests[-1].json()
    assert {name: body[name] for name in ("template", "params", "explicit_env", "base")} == {
        "template": "say",
        "params": {"a": "1"},
        "explicit_env": ["X"],
        "base": "main",
    }
    assert "command" not in body
