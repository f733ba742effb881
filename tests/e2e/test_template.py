"""Templates at the terminal and over HTTP, including the printed examples, with real processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Rota
from tests.repository import IDENTITY, Repository

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
    """A home with stub programs for `claude` and `ollama`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("claude", AGENT), ("ollama", OLLAMA)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}:{Path(shutil.which('git') or '/usr/bin/git').parent}:/usr/bin:/bin"
    return make_rota(PATH=path, **IDENTITY)


def add_example(rota: Rota, name: str, directory: Path) -> str:
    """Print the example to a file and add it, as its first lines say."""
    (directory / f"{name}.toml").write_text(rota.run("template", "example", name).out)
    return rota.run("template", "add", f"{name}.toml", cwd=directory).out.strip()


def test_agent_example_works_as_printed(rota: Rota, repo: Repository) -> None:
    assert add_example(rota, "agent", repo.path) == "template-1"
    prompt = "--help\n\"$(reboot)\" {model} 'é'"
    (repo.path / "task.md").write_text(prompt)
    words = ("--param", "prompt=@task.md", "--param", "model=opus", "--param", "title=a task")
    job = rota.submit("--template", "agent", *words, cwd=repo.path)
    rota.wait(job)
    shown = rota.show(job)
    assert rota.run("logs", job).out == f"<-p>\n<--model>\n<opus>\n<-->\n<{prompt}>\n"
    assert (shown["name"], shown["type"], shown["template"]) == ("agent: a task", "agent", "template-1")
    assert shown["params"] == {"model": "opus", "title": "a task", "prompt": prompt}
    assert repo.git("show", f"rota/{job}:answer") == "an agent says"
    assert not (repo.path / "answer").exists()
    assert "an agent says" in (rota.home / "jobs" / job.removeprefix("job-") / "command.patch").read_text()
    refused = rota.run("submit", "--template", "agent", "--param", "promt=x", cwd=repo.path, code=2)
    assert '"prompt" is a required property' in refused.err
    assert len(rota.jobs()) == 1


def test_pipeline_example_works_as_printed(rota: Rota) -> None:
    """Only the pool of the model keeps the two steps from running at once."""
    rota.start()
    rota.set_global_size(-1)
    add_example(rota, "pipeline", rota.cwd)
    (rota.cwd / "notes.txt").write_text("notes\n")
    submit = ("--template", "pipeline", "--param")
    first = rota.submit(*submit, "input=notes.txt", "--param", "output=summary.txt")
    other = rota.submit(*submit, "input=notes.txt", "--param", "output=other.txt", "--param", "model=m")
    second = rota.submit(*submit, "input=summary.txt", "--param", "output=title.txt", "--param", "prompt=Give a title.")
    rota.wait(first, other, second)
    request = "llama3.2, asked: Summarize this text in three sentences.\nnotes\nkeeps 10m\n"
    assert (rota.cwd / "summary.txt").read_text() == request
    assert (rota.cwd / "title.txt").read_text() == f"llama3.2, asked: Give a title.\n{request}keeps 10m\n"
    assert rota.show(second)["pools"] == {"global": 1, "type/llm": 1, "resource/ollama": 1}
    assert [job["attempt"] for job in rota.jobs()] == [1, 1, 1]


def test_inv_005_jobs_keep_their_template_over_change_archive_and_crash(rota: Rota, children: ChildControl) -> None:
    running = rota.submit(*children.gated("running"))
    assert children.read_lines() == ["running begins"]
    assert rota.run("template", "add", "say", "--param", "what=old", "--", "echo", "{what}", "{}").out == "template-1\n"
    job = rota.submit("--template", "say")
    assert rota.run("template", "change", "say", "--param", "what=new", "--timeout", "1h").out == (
        "template-1 default_params, timeout\n"
    )
    newer = rota.submit("--template", "say")
    assert rota.run("template", "archive", "say").out == "template-1 say archived\n"
    refused = rota.run("submit", "--template", "say", code=4)
    assert refused.err.startswith("rota: template say is archived (since 20")
    assert "unarchive it with `rota template unarchive say`" in refused.err
    assert rota.run("edit", newer, "--param", "what=edited").out == f"{newer} command, params\n"
    rota.crash()
    children.release("running")
    rota.wait(running, job, newer)
    assert [rota.run("logs", job_id).out for job_id in (job, newer)] == ["old {}\n", "edited {}\n"]
    assert rota.run("rewind", job).code == 0
    rota.wait(job)
    assert rota.run("logs", job).out == "old {}\n"
    assert rota.run("template", "list").err == (
        "rota: there are no templates; `rota template example > agent.toml` writes an example\n"
    )
    assert rota.run("template", "list", "--all").lines[1].startswith("say (archived)  template-1")


def test_templates_over_http(rota: Rota) -> None:
    rota.start()
    body: dict[str, Any] = {"name": "say", "command": ["echo", "{what}"], "default_params": {"what": "x"}}
    secrets = {"env": {"SECRET": "s3cret"}, "webhooks": ["http://127.0.0.1:9/hook?token=s3cret"]}
    created = rota.api("POST", "/api/job-templates", {**body, **secrets, "locks": ["l/{what}"]})
    assert (created.status, created.json()["template"]["id"], created.json()["warning"]) == (201, "template-1", None)
    assert b"s3cret" not in created.body
    assert created.json()["template"]["webhooks"] == ["http://127.0.0.1:9/hook?***"]
    assert rota.api("POST", "/api/job-templates", body).status == 409
    for change, where, detail in (
        ({"comand": []}, "$.comand", "a template has no field comand: did you mean command?"),
        ({"command": "x"}, "$.command", "the request body cannot be used: Expected `array | null`, got `str`"),
        ({"name": None}, "$.name", 'a template needs a name: name = "story"'),
    ):
        refused = rota.api("POST", "/api/job-templates", {**body, "name": "n", **change})
        assert (refused.status, refused.json()["path"]) == (422, where)
        assert refused.json()["detail"].startswith(detail)
    refused = rota.api("PATCH", "/api/job-templates/say", {"params": {}})
    assert refused.json()["detail"] == "a template has no field params: use default_params and params_schema"
    (listed,) = rota.api("GET", "/api/job-templates").json()["templates"]
    assert listed == created.json()["template"] == rota.api("GET", "/api/job-templates/template-1").json()
    assert (listed["env"], listed["locks"]) == (["SECRET"], ["l/{what}"])
    changed = rota.api("PATCH", "/api/job-templates/say", {"timeout": "1h", "env": None}).json()
    assert (changed["fields"], changed["template"]["timeout"]) == (["timeout", "env"], "1h")
    assert rota.api("PUT", "/api/job-templates/say", body).json()["template"]["timeout"] is None
    request = {"template": "say", "params": {"what": "k"}}
    first = rota.api("POST", "/api/jobs", request, Idempotency_Key="k")
    assert (first.status, first.json()["job"]["command"]) == (201, ["echo", "k"])
    assert rota.api("POST", "/api/job-templates/say/archive").json()["archived_at"] is not None
    assert rota.api("GET", "/api/job-templates").json() == {"templates": [], "next": None}
    repeated = rota.api("POST", "/api/jobs", request, Idempotency_Key="k")
    assert repeated == first
    assert rota.api("POST", "/api/jobs", request, Idempotency_Key="other").status == 409
    batch = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": ["true"]}, request]})
    assert (batch.status, len(rota.jobs())) == (409, 1)
    assert rota.api("POST", "/api/job-templates/say/unarchive").json()["archived_at"] is None
    batch = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": ["true"]}, request]})
    assert (batch.status, rota.show("job-3")["template"]) == (201, "template-1")
    assert rota.api("GET", "/api/job-templates/stroy").status == 404


def test_direct_execution_of_a_template_and_a_custom_route(rota: Rota) -> None:
    words = ("--param", "n:=2", "--env", "A=template", "--timeout", "1m", "--lock", "door/{user}")
    schema = {"properties": {"user": {"type": "string"}}, "required": ["user"]}
    (rota.cwd / "schema.json").write_text(json.dumps(schema))
    script = 'echo "$1 $2 $A"; echo "$ROTA_PARAMS"'
    rota.run(
        "template", "add", "hi", *words, "--schema", "schema.json", "--", "sh", "-c", script, "sh", "{user}", "{n}"
    )
    output = rota.run("run", "--template", "hi", "--param", "user=-x", env={"A": "shell"})
    assert output.out == '-x 2 template\n{"n":2,"user":"-x"}\n'
    assert rota.run("run", "--template", "hi", "--param", "user=y", "--env", "A=explicit").lines[0] == "y 2 explicit"
    assert rota.run("run", "--template", "hi", code=2).err == 'rota: params: "user" is a required property\n'
    assert "has its own command" in rota.run("run", "--template", "hi", "--", "true", code=2).err
    direct = rota.api("POST", "/api/direct", {"template": "hi", "params": {"user": "d"}}).json()
    assert (direct["stdout"].splitlines()[0], direct["reservation"]["name"]) == ("d 2 template", "hi")
    assert direct["reservation"]["locks"] == [{"key": "door/d", "mode": "exclusive"}]
    assert rota.api("POST", "/story/v1.0", {"user": "r"}).status == 404
    rota.run("config", "set", "direct.routes./story/v1.0", "hi")
    routed = rota.api("POST", "/story/v1.0", {"user": "r"})
    assert (routed.status, routed.json()["stdout"].splitlines()[0]) == (200, "r 2 template")
    assert rota.api("POST", "/story/v1.0", {"user": 1}).json()["detail"] == 'params.user: 1 is not of type "string"'
    assert rota.api("GET", "/story/v1.0").status == 405
    assert rota.status()["errors"] == []
    rota.run("template", "archive", "hi")
    refused = rota.api("POST", "/story/v1.0", {"user": "r"})
    assert refused.status == 409
    assert refused.json()["detail"].startswith("/story/v1.0 runs the template hi: template hi is archived")
    assert rota.status()["errors"] == [
        'direct.routes "/story/v1.0" names the template hi, which does not exist or is archived'
    ]
    assert "names the template hi" in rota.run("doctor", code=None).out


def test_archived_template_is_collected_with_its_last_job(rota: Rota) -> None:
    rota.run("template", "add", "say", "--", "echo", "hi")
    rota.wait(rota.submit("--template", "say"))
    rota.run("template", "archive", "say")
    assert rota.json("gc", "--days", "0")["removed"]["templates"] == 1
    assert rota.run("template", "list", "--all").out == ""
    assert rota.run("template", "add", "say", "--", "echo", "hi").out == "template-2\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["template", "show"], "no such template: a\\nb; "),
        (["schedule", "show"], "no such schedule: a\\nb; "),
        (["group", "show"], "no such group: a\\nb; "),
        (["breaker", "reset"], "no such breaker: a\\nb; "),
        (["lock", "list"], "lock a\\nb is not held and has no waiters\n"),
    ],
)
def test_messages_escape_a_line_break_in_an_unknown_name(rota: Rota, words: list[str], message: str) -> None:
    rota.start()
    output = rota.run(*words, "a\nb", code=None)
    assert message in output.err
    assert len(output.err.splitlines()) == 1, output.err
