"""`rota completion`: scripts that shells accept, and completions of verbs and options."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.e2e.rig import Rota

pytestmark = pytest.mark.executable

COMPLETE = r"""
source /dev/stdin
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$(complete -p rota | sed 's/.*-F \([^ ]*\).*/\1/') rota "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def test_bash_completes_commands_and_options(rota: Rota) -> None:
    script = rota.run("completion", "bash").out
    assert not rota.home.exists(), "completion needs no scheduler"
    bash = shutil.which("bash")
    if bash is None:
        pytest.fail("bash is needed to test what it completes")
    subprocess.run([bash, "-n"], input=script.encode(), check=True)

    def complete(*words: str) -> set[str]:
        result = subprocess.run(
            [bash, "--norc", "-c", COMPLETE, "bash", *words], input=script, capture_output=True, text=True, check=True
        )
        return {word.strip() for word in result.stdout.splitlines()}

    assert complete("rota", "su") >= {"submit"}
    assert complete("rota", "") >= {"submit", "list", "show", "logs", "wait", "why", "cancel", "pool", "config", "down"}
    assert complete("rota", "submit", "--a") >= {"--after"}
    assert complete("rota", "pool", "") >= {"list", "set"}
    assert complete("rota", "work", "") >= {"list", "show", "sync"}
    assert complete("rota", "work", "list", "--") >= {"--source", "--ready", "--limit"}
    assert complete("rota", "list", "--") >= {"--by", "--format", "--fields", "--status"}
    assert complete("rota", "list", "--by", "") >= {"target", "flow", "pool", "group"}
    assert complete("rota", "show", "--format", "") >= {"table", "block", "json"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts_of_other_shells_are_valid(rota: Rota, shell: str) -> None:
    script = rota.run("completion", shell).out
    assert "submit" in script
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=script.encode(), check=True)


def test_unknown_shell_is_refused(rota: Rota) -> None:
    output = rota.run("completion", "cmd.exe", code=2)
    assert output.out == ""
