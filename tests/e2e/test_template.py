"""§8: templates at the terminal and over HTTP, with the printed examples as they are, and real processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import Rota, Stage
from repository import IDENTITY, Repository

AGENT = """#!/bin/sh
for word in "$@"; do printf '<%s>\\n' "$word"; done
echo 'an agent says' > answer
git add answer && git commit -q -m 'the answer'
"""
OLLAMA = """#!/bin/sh
test "$1" = run || exit 9
mkdir "$HOME/in-use" || { echo 'the model is in use' >&2; exit 8; }
printf '%s, asked: %s\\n' "$2" "$3"
cat
echo "keeps $OLLAMA_KEEP_ALIVE"
rmdir "$HOME/in-use"
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def rota(make_rota: Callable[..., Rota], tmp_path: Path) -> Rota:
    """With stand-ins for an agent and a model."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("claude", AGENT), ("ollama", OLLAMA)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}:{Path(shutil.which('git') or '/usr/bin/git').parent}:/usr/bin:/bin"
    return make_rota(PATH=path, **IDENTITY)


def add_example(rota: Rota, which: str, at: Path) -> str:
    """As its first lines say: printed to a file, and added."""
    (at / f"{which}.toml").write_text(rota.ask("template", "example", which).out)
    return rota.ask("template", "add", f"{which}.toml", cwd=at).out.strip()


def test_the_example_of_an_agent_works_as_printed(rota: Rota, repo: Repository) -> None:
    assert add_example(rota, "agent", repo.path) == "template-1"
    prompt = "--help\n\"$(reboot)\" {model} 'é'"
    (repo.path / "task.md").write_text(prompt)
    words = ("--param", "prompt=@task.md", "--param", "model=opus", "--param", "title=a task")
    job = rota.submit("--template", "agent", *words, cwd=repo.path)
    rota.wait(job)
    shown = rota.show(job)
    assert rota.ask("logs", job).out == f"<-p>\n<--model>\n<opus>\n<-->\n<{prompt}>\n"
    assert (shown["name"], shown["type"], shown["template"]) == ("agent: a task", "agent", "template-1")
    assert shown["params"] == {"model": "opus", "title": "a task", "prompt": prompt}
    assert repo.git("show", f"rota/{job}:answer") == "an agent says"
    assert not (repo.path / "answer").exists()
    assert "an agent says" in (rota.home / "jobs" / job.removeprefix("job-") / "command.patch").read_text()
    refused = rota.ask("submit", "--template", "agent", "--param", "promt=x", cwd=repo.path, code=2)
    assert '"prompt" is a required property' in refused.err
    assert len(rota.jobs()) == 1


def test_the_example_of_a_pipeline_works_as_printed(rota: Rota) -> None:
    """Both steps could run at once but for the pool of the model."""
    rota.start()
    rota.set_global(-1)
    add_example(rota, "pipeline", rota.cwd)
    (rota.cwd / "notes.txt").write_text("notes\n")
    submit = ("--template", "pipeline", "--param")
    first = rota.submit(*submit, "input=notes.txt", "--param", "output=summary.txt")
    other = rota.submit(*submit, "input=notes.txt", "--param", "output=other.txt", "--param", "model=m")
    second = rota.submit(*submit, "input=summary.txt", "--param", "output=title.txt", "--param", "prompt=Give a title.")
    rota.wait(first, other, second)
    asked = "llama3.2, asked: Summarise this text in three sentences.\nnotes\nkeeps 10m\n"
    assert (rota.cwd / "summary.txt").read_text() == asked
    assert (rota.cwd / "title.txt").read_text() == f"llama3.2, asked: Give a title.\n{asked}keeps 10m\n"
    assert rota.show(second)["pools"] == {"global": 1, "type/llm": 1, "resource/ollama": 1}
    assert [job["attempt"] for job in rota.jobs()] == [1, 1, 1]


def test_inv_005_jobs_keep_what_they_were_made_of_over_change_archive_and_crash(rota: Rota, stage: Stage) -> None:
    running = rota.submit(*stage.actor("running"))
    assert stage.hear() == ["running begins"]
    assert rota.ask("template", "add", "say", "--param", "what=old", "--", "echo", "{what}", "{}").out == "template-1\n"
    job = rota.submit("--template", "say")
    assert rota.ask("template", "change", "say", "--param", "what=new", "--timeout", "1h").out == (
        "template-1 default_params, timeout\n"
    )
    newer = rota.submit("--template", "say")
    assert rota.ask("template", "archive", "say").out == "template-1 say archived\n"
    refused = rota.ask("submit", "--template", "say", code=4)
    assert refused.err.startswith("rota: template say is archived (since 20")
    assert "unarchive it with `rota template unarchive say`" in refused.err
    assert rota.ask("edit", newer, "--param", "what=edited").out == f"{newer} command, params\n"
    rota.crash()
    stage.release("running")
    rota.wait(running, job, newer)
    assert [rota.ask("logs", each).out for each in (job, newer)] == ["old {}\n", "edited {}\n"]
    assert rota.ask("rewind", job).code == 0
    rota.wait(job)
    assert rota.ask("logs", job).out == "old {}\n"
    assert rota.ask("template", "list").err == (
        "rota: there are no templates; `rota template example > agent.toml` writes one to start from\n"
    )
    assert rota.ask("template", "list", "--all").lines[1].startswith("say (archived)  template-1")


def test_over_http(rota: Rota) -> None:
    rota.start()
    body: dict[str, Any] = {"name": "say", "command": ["echo", "{what}"], "default_params": {"what": "x"}}
    made = rota.api("POST", "/api/job-templates", {**body, "env": {"SECRET": "s3cret"}, "locks": ["l/{what}"]})
    assert (made.status, made.json()["template"]["id"], made.json()["warning"]) == (201, "template-1", None)
    assert b"s3cret" not in made.body
    assert rota.api("POST", "/api/job-templates", body).status == 409
    for wrong, where, says in (
        ({"comand": []}, "$.comand", "a template has no field comand: did you mean command?"),
        ({"command": "x"}, "$.command", "the request body cannot be used: Expected `array | null`, got `str`"),
        ({"name": None}, "$.name", 'a template needs a name: name = "story"'),
    ):
        refused = rota.api("POST", "/api/job-templates", {**body, "name": "n", **wrong})
        assert (refused.status, refused.json()["path"]) == (422, where)
        assert refused.json()["detail"].startswith(says)
    refused = rota.api("PATCH", "/api/job-templates/say", {"params": {}})
    assert (
        refused.json()["detail"] == "a template has no field params: a template has default_params, and a params_schema"
    )
    (listed,) = rota.api("GET", "/api/job-templates").json()["templates"]
    assert listed == made.json()["template"] == rota.api("GET", "/api/job-templates/template-1").json()
    assert (listed["env"], listed["locks"]) == (["SECRET"], ["l/{what}"])
    changed = rota.api("PATCH", "/api/job-templates/say", {"timeout": "1h", "env": None}).json()
    assert (changed["fields"], changed["template"]["timeout"]) == (["timeout", "env"], "1h")
    assert rota.api("PUT", "/api/job-templates/say", body).json()["template"]["timeout"] is None
    wanted = {"template": "say", "params": {"what": "k"}}
    first = rota.api("POST", "/api/jobs", wanted, Idempotency_Key="k")
    assert (first.status, first.json()["job"]["command"]) == (201, ["echo", "k"])
    assert rota.api("POST", "/api/job-templates/say/archive").json()["archived_at"] is not None
    assert rota.api("GET", "/api/job-templates").json() == {"templates": [], "next": None}
    again = rota.api("POST", "/api/jobs", wanted, Idempotency_Key="k")
    assert again == first
    assert rota.api("POST", "/api/jobs", wanted, Idempotency_Key="other").status == 409
    batch = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": ["true"]}, wanted]})
    assert (batch.status, len(rota.jobs())) == (409, 1)
    assert rota.api("POST", "/api/job-templates/say/unarchive").json()["archived_at"] is None
    batch = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": ["true"]}, wanted]})
    assert (batch.status, rota.show("job-3")["template"]) == (201, "template-1")
    assert rota.api("GET", "/api/job-templates/stroy").status == 404


def test_a_direct_execution_of_a_template_and_a_route_of_ones_own(rota: Rota) -> None:
    words = ("--param", "n:=2", "--env", "A=template", "--timeout", "1m", "--lock", "door/{who}")
    schema = {"properties": {"who": {"type": "string"}}, "required": ["who"]}
    (rota.cwd / "schema.json").write_text(json.dumps(schema))
    script = 'echo "$1 $2 $A"; echo "$ROTA_PARAMS"'
    rota.ask("template", "add", "hi", *words, "--schema", "schema.json", "--", "sh", "-c", script, "sh", "{who}", "{n}")
    said = rota.ask("run", "--template", "hi", "--param", "who=-x", env={"A": "shell"})
    assert said.out == '-x 2 template\n{"n":2,"who":"-x"}\n'
    assert rota.ask("run", "--template", "hi", "--param", "who=y", "--env", "A=asked").lines[0] == "y 2 asked"
    assert rota.ask("run", "--template", "hi", code=2).err == 'rota: params: "who" is a required property\n'
    assert "brings its own command" in rota.ask("run", "--template", "hi", "--", "true", code=2).err
    direct = rota.api("POST", "/api/direct", {"template": "hi", "params": {"who": "d"}}).json()
    assert (direct["stdout"].splitlines()[0], direct["slot"]["name"]) == ("d 2 template", "hi")
    assert direct["slot"]["locks"] == [{"key": "door/d", "mode": "exclusive"}]
    assert rota.api("POST", "/story/v1.0", {"who": "r"}).status == 404
    rota.ask("config", "set", "direct.routes./story/v1.0", "hi")
    routed = rota.api("POST", "/story/v1.0", {"who": "r"})
    assert (routed.status, routed.json()["stdout"].splitlines()[0]) == (200, "r 2 template")
    assert rota.api("POST", "/story/v1.0", {"who": 1}).json()["detail"] == 'params.who: 1 is not of type "string"'
    assert rota.api("GET", "/story/v1.0").status == 405
    assert rota.status()["trouble"] == []
    rota.ask("template", "archive", "hi")
    refused = rota.api("POST", "/story/v1.0", {"who": "r"})
    assert refused.status == 409
    assert refused.json()["detail"].startswith("/story/v1.0 runs the template hi: template hi is archived")
    assert rota.status()["trouble"] == [
        'direct.routes "/story/v1.0" names the template hi, which is not there or is archived'
    ]
    assert "names the template hi" in rota.ask("doctor", code=None).out


def test_an_archived_template_goes_with_the_last_of_its_jobs(rota: Rota) -> None:
    rota.ask("template", "add", "say", "--", "echo", "hi")
    rota.wait(rota.submit("--template", "say"))
    rota.ask("template", "archive", "say")
    assert rota.json("gc", "--days", "0")["removed"]["templates"] == 1
    assert rota.ask("template", "list", "--all").out == ""
    assert rota.ask("template", "add", "say", "--", "echo", "hi").out == "template-2\n"
