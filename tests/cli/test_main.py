"""Command line from arguments to exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota import __version__
from rota.cli.main import main, split_verb
from rota.cli.parser import VERBS, full_parser, verb_parser
from rota.errors import BY_CODE, RotaError
from rota.home import Home
from tests.cli.fake_scheduler import Server, json_response, problem

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
def test_verb_is_found_among_global_options(words: list[str], verb: str | None, rest: list[str]) -> None:
    assert split_verb(words) == (verb, rest)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rota {__version__}\n"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {verb}" in out for verb in VERBS)


def test_no_verb_is_a_usage_error_with_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
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
    [
        ("sumbit", "rota submit"),
        ("lst", "rota list"),
        ("clean", "rota --help"),
        ("cancle", "rota --help"),
        ("rm", "rota --help"),
        ("delete", "rota --help"),
        ("purge", "rota --help"),
        ("hwy", "rota why"),
        ("xyzzy", "rota --help"),
    ],
)
def test_unknown_verb_suggests_the_nearest(typed: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 2
    err = capsys.readouterr().err
    assert err.startswith("rota: unknown command")
    assert f"`{advice}`" in err


@pytest.mark.parametrize("verb", ["cancel", "clear", "down", "gc", "restore", "rewind"])
@pytest.mark.parametrize("cut", [slice(None, -1), slice(1, None), slice(None, 3)])
def test_misspelled_verb_never_suggests_a_destructive_one(
    verb: str, cut: slice, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = verb[cut] if verb[cut] not in VERBS else f"{verb}x"
    assert main([typed]) == 2
    assert f"`rota {verb}`" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["group", "canc", "1"], ["clear", "--ye"], ["gc", "--dry"], ["cancel", "1", "--y"]])
def test_abbreviated_actions_and_options_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().out == ""


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
def test_usage_error_exits_with_2(words: list[str], home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Usage errors need no scheduler and start none."""
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rota: ")
    assert not home.log.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pool", "set", "global", "two"], "N cannot be 'two'; it takes a whole number; see `rota pool set --help`"),
        (
            ["submit", "--priority", "high", "--", "true"],
            "--priority cannot be 'high'; it takes a whole number; see `rota submit --help`",
        ),
        (["list", "--status", "done"], "--status cannot be 'done'; it takes one of: QUEUED, "),
        (["pool", "st"], "unknown action 'st'; actions: list, set; see `rota pool --help`"),
        (["cancel"], "missing argument: JOB|GROUP; see `rota cancel --help`"),
        (["pool", "set"], "missing arguments: NAME, N; see `rota pool set --help`"),
        (["submit", "--name"], "--name: expected one argument; see `rota submit --help`"),
        (["submit", "--retrys", "3", "--", "true"], "unknown option --retrys; did you mean --retries?"),
        (["submit", "--retrie", "3", "--", "true"], "unknown option --retrie; did you mean --retries?"),
    ],
)
def test_usage_error_quotes_the_value_and_names_what_is_accepted(
    words: list[str], message: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"rota: {message}")


@pytest.mark.parametrize("kind", BY_CODE.values())
def test_every_error_has_its_exit_code(
    kind: type[RotaError], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.replies = [problem(kind.http_status, kind.code, "do this next")]
    assert main(["show", "job-1"]) == kind.exit_code
    assert capsys.readouterr().err == "rota: do this next\n"


def test_long_argument_is_shortened_in_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x" * 100_000]) == 2
    output = capsys.readouterr().err
    assert len(output) <= 1010
    assert output.endswith("…" + "x" * (300 - len(tail := "'; `rota --help` lists all commands")) + f"{tail}\n")


def test_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Home
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.jobs.cli.why.run_why", interrupt)
    assert main(["why", "job-1"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_unwritable_output_is_reported(unbuffered: str, server: Server) -> None:
    server.replies = [json_response({"jobs": [JOB], "next": None, "counts": {}})]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "rota", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    output = "rota: cannot write the output: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, output)


@pytest.mark.parametrize("words", ["logs 0", "reservation cancel 0", "webhook show 0"])
def test_invalid_id_is_quoted_as_typed(words: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert " id: '0'; " in capsys.readouterr().err


def test_closed_pipe_prints_no_error(server: Server) -> None:
    server.replies = [json_response({"jobs": [JOB] * 5000, "next": None, "counts": {}})]
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "rota", "list"], stdout=writer, stderr=subprocess.PIPE, check=False, text=True
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize(("words", "size"), [(["global", "-1"], -1), (["type/x", "2"], 2), (["--json", "a", "-1"], -1)])
def test_pool_set_accepts_negative_numbers(
    words: list[str], size: int, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.replies = [json_response({})]
    assert main(["pool", "set", *words]) == 0
    assert server.requests[0].json() == {"size": size}


@pytest.mark.parametrize("words", [["--json", "pool", "list"], ["pool", "--json", "list"], ["pool", "list", "--json"]])
def test_json_option_can_be_anywhere(words: list[str], server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    pools = {"pools": {"global": {"size": 1, "used": 0}}}
    server.replies = [json_response(pools)]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == pools


@pytest.mark.parametrize("before", [True, False])
def test_home_option_overrides_environment(
    before: bool, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_HOME", "/nonexistent/home")
    server.replies = [json_response({"pools": {}})]
    option = ["--home", str(server.home.root)]
    assert main([*option, "pool", "list"] if before else ["pool", "list", *option]) == 0


def test_completion_scripts_contain_verbs_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert "idle" in out
        assert "supervise" in out


def test_full_parser_equals_verb_parser() -> None:
    words = ["submit", "--name", "x", "--", "make", "-j2"]
    whole = vars(full_parser().parse_args(words))
    own, _ = verb_parser("submit")
    assert whole.pop("verb") == "submit"
    assert vars(own.parse_args(words[1:])) == whole


def test_submit_imports_nothing_heavy(server: Server) -> None:
    """The imports of a command determine its start time."""
    server.replies = [json_response({"result": "submitted", "job": JOB, "warning": None}, 201)]
    script = (
        "import sys; from rota.cli.main import main; code = main(['submit', '--', 'true']);"
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    # -S: ignore the imports of .pth files in the environment.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-S", "-c", script]
    result = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    code, *modules = result.stderr.split()
    heavy = {"asyncio", "dataclasses", "http", "inspect", "msgspec", "pathlib", "shutil", "subprocess", "urllib"}
    assert (code, result.stdout) == ("0", "job-1\n")
    assert not heavy & set(modules)
    assert not {"rota.client.autostart", "rota.duration", "rota.cli.rendering"} & set(modules)


def test_help_is_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: rota [-h]")
    assert main(["help", "submit"]) == 0
    assert capsys.readouterr().out.startswith("usage: rota submit")
    assert main(["help", "nosuch"]) == 2
