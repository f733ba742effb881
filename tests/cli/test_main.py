"""The command line from words to exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.stand_in import Server, answer, problem
from rota import __version__
from rota.cli.main import main, split_verb
from rota.cli.parser import VERBS, full_parser, verb_parser
from rota.errors import BY_CODE, RotaError
from rota.home import Home

JOB = {"id": "job-1", "status": "QUEUED", "name": "", "command": ["true"]}


@pytest.mark.parametrize(
    ("words", "verb", "rest"),
    [
        (["list", "--all"], "list", ["--all"]),
        (["--json", "list"], "list", ["--json"]),
        (["--home", "x", "list", "--all"], "list", ["--home", "x", "--all"]),
        (["--home=x", "list"], "list", ["--home=x"]),
        (["--version"], None, ["--version"]),
        (["--home"], None, ["--home"]),
        ([], None, []),
    ],
)
def test_the_verb_is_found_among_global_options(words: list[str], verb: str | None, rest: list[str]) -> None:
    assert split_verb(words) == (verb, rest)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rota {__version__}\n"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {verb}" in out for verb in VERBS)


def test_no_words_is_a_usage_error_with_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "VERB" in captured.err


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"usage: rota {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "advice"),
    [("sumbit", "rota submit"), ("lst", "rota list"), ("cancle", "rota cancel"), ("xyzzy", "rota --help")],
)
def test_an_unknown_verb_names_the_nearest(typed: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 2
    err = capsys.readouterr().err
    assert err.startswith("rota: there is no verb")
    assert f"`{advice}`" in err


@pytest.mark.parametrize(
    "words",
    [
        ["submit"],
        ["submit", "--"],
        ["submit", "--nonsense", "--", "true"],
        ["submit", "--priority", "high", "--", "true"],
        ["submit", "--after", "job-1:maybe", "--", "true"],
        ["submit", "--after", "nonsense", "--", "true"],
        ["submit", "--pool", "gpu=two", "--", "true"],
        ["submit", "--param", "novalue", "--", "true"],
        ["submit", "--param", "n:={", "--", "true"],
        ["submit", "--env", "=x", "--", "true"],
        ["submit", "--follow", "--json", "--", "true"],
        ["submit", "--", "bad \udcff byte"],
        ["show"],
        ["show", "run-1"],
        ["wait"],
        ["wait", "--timeout", "soon", "job-1"],
        ["list", "--status", "DONE"],
        ["list", "--limit", "0"],
        ["logs", "job-1", "--tail", "-1"],
        ["logs", "job-1", "--follow", "--json"],
        ["pool", "set", "global"],
        ["pool", "set", "global", "many"],
        ["config", "get"],
        ["completion", "cmd.exe"],
        ["down", "--grace", "long"],
    ],
)
def test_usage_errors_say_so_and_exit_2(words: list[str], home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a scheduler, and without starting one."""
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rota: ")
    assert not home.log.exists()


@pytest.mark.parametrize("kind", BY_CODE.values())
def test_every_error_leaves_with_its_exit_code(
    kind: type[RotaError], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.replies = [problem(kind.http_status, kind.code, "do this next")]
    assert main(["show", "job-1"]) == kind.exit_code
    assert capsys.readouterr().err == "rota: do this next\n"


def test_what_is_very_long_is_not_said_back_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x" * 100_000]) == 2
    said = capsys.readouterr().err
    assert len(said) <= 1010
    assert said.endswith("…" + "x" * (300 - len(tail := "'; `rota --help` lists them")) + f"{tail}\n")


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Home) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.cli.why.run", interrupt)
    assert main(["why", "job-1"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_is_quiet(server: Server) -> None:
    server.replies = [answer({"jobs": [JOB] * 5000, "next": None, "counts": {}})]
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "rota", "list"], stdout=writer, stderr=subprocess.PIPE, check=False, text=True
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize(("words", "size"), [(["global", "-1"], -1), (["type/x", "2"], 2), (["--json", "a", "-1"], -1)])
def test_pool_set_takes_negative_numbers_as_typed(
    words: list[str], size: int, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.replies = [answer({})]
    assert main(["pool", "set", *words]) == 0
    assert server.requests[0].json() == {"size": size}


@pytest.mark.parametrize("words", [["--json", "pool", "list"], ["pool", "--json", "list"], ["pool", "list", "--json"]])
def test_json_may_stand_anywhere(words: list[str], server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    pools = {"pools": {"global": {"size": 1, "used": 0}}}
    server.replies = [answer(pools)]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == pools


@pytest.mark.parametrize("before", [True, False])
def test_the_home_option_wins(
    before: bool, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_HOME", "/nonexistent/home")
    server.replies = [answer({"pools": {}})]
    option = ["--home", str(server.home.root)]
    assert main([*option, "pool", "list"] if before else ["pool", "list", *option]) == 0


def test_completion_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert "idle" in out
        assert "supervise" in out


def test_the_full_parser_knows_what_each_verbs_own_does() -> None:
    words = ["submit", "--name", "x", "--", "make", "-j2"]
    whole = vars(full_parser().parse_args(words))
    own, _ = verb_parser("submit")
    assert whole.pop("verb") == "submit"
    assert vars(own.parse_args(words[1:])) == whole


def test_submit_imports_nothing_heavy(server: Server) -> None:
    """What makes a command cheap is what it does not import."""
    server.replies = [answer({"result": "submitted", "job": JOB, "warning": None}, 201)]
    script = (
        "import sys; from rota.cli.main import main; code = main(['submit', '--', 'true']);"
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    # -S: what .pth files of the environment import is not ours.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-S", "-c", script]
    result = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    code, *modules = result.stderr.split()
    heavy = {"asyncio", "dataclasses", "http", "inspect", "msgspec", "pathlib", "shutil", "subprocess", "urllib"}
    assert (code, result.stdout) == ("0", "job-1\n")
    assert not heavy & set(modules)
    assert not {"rota.client.autostart", "rota.duration", "rota.cli.render"} & set(modules)
