"""`rota template` and `--param`: what is sent, what is printed, what is refused before anything is sent."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.stand_in import Server, answer
from rota.cli.main import main
from rota.cli.param import param, params
from rota.cli.parser import Usage

FORM: dict[str, Any] = {
    "id": "template-1", "name": "say", "description": None, "type": "t", "command": ["echo", "{a b}"],
    "default_params": {"n": 1}, "params_schema": {"properties": {"a b": {}, "n": {}}}, "env": ["X"], "locks": [],
    "timeout": "1h", "archived_at": None,
}  # fmt: skip
STORED = {"template": FORM, "fields": ["timeout"], "warning": None}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("v=1.10", ("v", "1.10")), ("n:=[1, true]", ("n", [1, True])), ("a=", ("a", "")), ("a=b=c", ("a", "b=c")),
        ("a=@@me", ("a", "@me")), ("a=x@y", ("a", "x@y")), ("p=@file.md", ("p", "é\n")),
        ("p:=@file.json", ("p", {"k": 1})),
    ],
)  # fmt: skip
def test_params(text: str, found: tuple[str, object]) -> None:
    Path("file.md").write_text("é\n", encoding="utf-8")
    Path("file.json").write_text('{"k": 1}')
    assert param(text) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "write it as NAME=TEXT, NAME:=JSON or NAME=@FILE"), ("=x", "write it as"), (":=1", "write it as"),
        ("n:=one", "what follows := is not JSON"), ("p=@nowhere", "nowhere cannot be read.*p=@@"),
        ("p=@raw", "raw is not UTF-8 text"), ("p:=@raw.md", "raw.md is not JSON"),
    ],
)  # fmt: skip
def test_params_that_cannot_be_read(text: str, says: str) -> None:
    Path("raw").write_bytes(b"\xff")
    Path("raw.md").write_text("x")
    with pytest.raises(Usage, match=says):
        param(text)


def test_a_param_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    assert param("p=@-") == ("p", "piped")


def sent(server: Server, *words: str, reply: Any = STORED) -> Any:
    server.replies = [answer(reply, 201)]
    assert main(["template", *words]) == 0
    return server.requests[-1]


def test_add_by_options(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.json").write_text('{"required": ["a"]}')
    request = sent(
        server, "add", "say", "--param", "n:=1", "--schema", "s.json", "--lock", "l/{n}:shared", "--pool",
        "resource/x=2", "--worktree", "--retries", "0", "--env", "A=1", "--", "echo", "{n}", "--type", "x",
    )  # fmt: skip
    assert (request.method, request.target) == ("POST", "/api/job-templates")
    assert request.json() == {
        "name": "say", "command": ["echo", "{n}", "--type", "x"], "default_params": {"n": 1}, "retries": 0,
        "params_schema": {"required": ["a"]}, "locks": [{"key": "l/{n}", "mode": "shared"}], "pools": {"resource/x": 2},
        "worktree": True, "env": {"A": "1"},
    }  # fmt: skip
    assert capsys.readouterr() == ("template-1\n", "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("t.toml", 'name = "n"\ncommand = ["x"]\n'),
        ("t.json", '{"name": "n", "command": ["x"]}'),
        ("t", ' {"name": "n", "command": ["x"]}'),
    ],
)
def test_add_and_change_by_a_file(server: Server, file: str, text: str) -> None:
    Path(file).write_text(text)
    assert sent(server, "add", file).json() == {"name": "n", "command": ["x"]}
    request = sent(server, "change", "say", file)
    assert (request.method, request.target) == ("PUT", "/api/job-templates/say")


def test_change_by_options(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    request = sent(server, "change", "say", "--param", "k=v", "--timeout", "1h")
    assert (request.method, request.json()) == ("PATCH", {"set_default_params": {"k": "v"}, "timeout": "1h"})
    assert capsys.readouterr().out == "template-1 timeout\n"
    sent(server, "change", "say", "--timeout", "1h", reply={**STORED, "fields": [], "warning": "w"})
    assert capsys.readouterr() == ("", "rota: warning: w\nrota: say was so already; nothing was changed\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "nowhere"], "nowhere cannot be read: .*to add one by options: rota template add nowhere -- COMMAND"),
        (["add", "bad.yaml"], "bad.yaml:2"),
        (["add", "bad.toml"], "bad.toml:1"),
        (["add", "bad.json"], "bad.json:2"),
        (["add", "date.toml"], "is a date or a time"),
        (["add", "nan.toml"], "nan is no number that JSON has"),
        (["add", "list.json"], "has no fields"),
        (["add", "good.toml", "--type", "x"], "options go with a command"),
        (["change", "say"], "nothing is to be changed"),
        (["change", "say", "good.toml", "--type", "x"], "leave the options out, or the file"),
        (["example", "nothing"], "invalid choice"),
    ],
)
def test_what_cannot_be_understood_is_not_sent(
    server: Server, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "bad.yaml": "name: x\nname: y", "nan.toml": "a = nan",
        "bad.toml": "name = ", "bad.json": "{", "date.toml": "a = 2026-01-01", "list.json": "[]",
        "good.toml": 'name = "x"',
    }.items():  # fmt: skip
        Path(name).write_text(text)
    assert main(["template", *words]) == 2
    assert server.requests == []
    err = capsys.readouterr().err
    assert re.search(says, err), err


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
def test_a_file_says_the_same_in_each_of_its_forms(server: Server, name: str, text: str) -> None:
    Path(name).write_text(text)
    sent_body = sent(server, "add", name).json()
    assert sent_body == {
        "name": "say", "command": ["echo", "{word}"], "default_params": {"word": "no", "n": 1.5, "on": True},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["x=@-", "y:=@-"], "standard input can be read once"),
        (["z:=NaN"], "NaN is no number of JSON"),
        (["z:=[1e400]"], "1e400 is too large a number"),
    ],
)
def test_params_that_cannot_be_sent(texts: list[str], says: str) -> None:
    with pytest.raises(Usage, match=says):
        params(texts)


def test_list_and_show(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    old = {**FORM, "archived_at": "2026-01-01T00:00:00Z"}
    server.replies = [
        answer({"templates": [old, {**FORM, "id": "template-2"}], "next": "template-2"}),
        answer({"templates": [{**FORM, "id": "template-3", "name": "ask"}], "next": None}),
    ]
    assert main(["template", "list", "--all"]) == 0
    assert [request.target for request in server.requests] == [
        "/api/job-templates?all=1&limit=1000", "/api/job-templates?all=1&limit=1000&cursor=template-2"
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "NAME            ID          TYPE  PARAMS   COMMAND",
        "ask             template-3  t     a b*, n  echo '{a b}'",
        "say             template-2  t     a b*, n  echo '{a b}'",
        "say (archived)  template-1  t     a b*, n  echo '{a b}'",
    ]
    server.replies = [answer({"templates": []})]
    assert main(["template"]) == 0
    assert capsys.readouterr().err.startswith("rota: there are no templates; `rota template example > agent.toml`")
    server.replies = [answer(FORM)]
    assert main(["template", "show", "say"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["id               template-1", "name             say"]
    assert "command          echo '{a b}'" in shown
    assert "env              X" in shown
    assert not any(line.startswith("locks") for line in shown)


def test_archive_and_back(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("archive", "unarchive"):
        assert sent(server, verb, "say", reply=FORM).target == f"/api/job-templates/say/{verb}"
        assert capsys.readouterr().out == f"template-1 say {verb}d\n"


def test_json_throughout(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for words, reply in ((["list"], {"templates": []}), (["show", "x"], FORM), (["archive", "x"], FORM)):
        server.replies = [answer(reply)]
        assert main(["template", *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == reply
    assert main(["template", "example", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].startswith("# A job for a CLI agent")


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_a_template_or_a_command_and_not_both(server: Server, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--template", "say", "--", "echo", "x"]) == 2
    assert "template say brings its own command, so leave out 'echo'" in capsys.readouterr().err
    assert main([verb]) == 2
    assert "there is no command to" in capsys.readouterr().err
    assert server.requests == []


def test_submit_of_a_template(server: Server) -> None:
    server.replies = [answer({"result": "submitted", "job": {"id": "job-1", "status": "QUEUED"}, "warning": None}, 201)]
    assert main(["submit", "--template", "say", "--param", "a=1", "--env", "X=1", "--base", "main"]) == 0
    body = server.requests[-1].json()
    assert {name: body[name] for name in ("template", "params", "env_given", "base")} == {
        "template": "say", "params": {"a": "1"}, "env_given": ["X"], "base": "main",
    }  # fmt: skip
    assert "command" not in body
