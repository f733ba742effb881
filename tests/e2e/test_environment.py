"""Environment: what a child inherits from the caller, and what is never shown."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.e2e.rig import ChildControl, Rota

pytestmark = pytest.mark.executable

SECRET = "hunter2-5c1b9f"


def _environment(rota: Rota, job: str) -> dict[str, str]:
    rota.wait(job)
    environment: dict[str, str] = json.loads(rota.run("logs", job).out)
    return environment


PRINT_ENVIRONMENT = ["--", sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def test_job_gets_the_working_directory_and_environment_of_the_caller(rota: Rota, tmp_path: Path) -> None:
    directory = tmp_path / "somewhere else"
    directory.mkdir()
    job = rota.submit("--", "pwd", cwd=directory)
    rota.wait(job)
    assert rota.run("logs", job).out == f"{directory}\n"
    assert rota.show(job)["cwd"] == str(directory)
    variables = {"COLOUR": "red", "EMPTY": "", "LINES_OF_IT": "a\nb", "UMLAUT": "grün"}
    environment = _environment(
        rota, rota.submit("--env", "SIZE=3", "--env", "COLOUR=blue", *PRINT_ENVIRONMENT, env=variables)
    )
    assert {name: environment[name] for name in (*variables, "SIZE")} == {**variables, "SIZE": "3", "COLOUR": "blue"}
    # The first submit started the scheduler; the second job does not inherit that environment.
    second = _environment(rota, rota.submit(*PRINT_ENVIRONMENT))
    assert not set(second) & {*variables, "SIZE"}


def test_cwd_option_sets_the_working_directory(rota: Rota) -> None:
    (rota.cwd / "below").mkdir()
    job = rota.submit("--cwd", "below", "--", "pwd")
    rota.wait(job)
    assert rota.run("logs", job).out == f"{rota.cwd}/below\n"


def test_rota_variables_are_added(rota: Rota) -> None:
    stale = {"ROTA_JOB": "job-77", "ROTA_RUN": "run-77"}
    environment = _environment(
        rota, rota.submit("--param", "a=1.10", "--param", "b:=[2]", *PRINT_ENVIRONMENT, env=stale)
    )
    assert environment["ROTA_HOME"] == str(rota.home)
    assert (environment["ROTA_JOB"], environment["ROTA_RUN"]) == ("job-1", "run-1")
    assert json.loads(environment["ROTA_PARAMS"]) == {"a": "1.10", "b": [2]}
    assert Path(environment["ROTA_SESSION_FILE"]).parent == rota.home / "jobs/1"
    assert not [name for name in environment if name.startswith("ROTA_SUPERVISOR")], (
        "internal variables of the supervisor"
    )


def test_child_reports_its_session(rota: Rota) -> None:
    job = rota.submit("--", "sh", "-c", 'echo /tmp/session-4711.jsonl > "$ROTA_SESSION_FILE"')
    rota.wait(job)
    assert rota.show(job)["session_path"] == "/tmp/session-4711.jsonl"


def test_child_can_query_its_own_run(rota: Rota) -> None:
    """LESSONS Dispatch: child started before its claim was durable; record written after the side effect."""
    script = f'exec {shlex.quote(sys.executable)} -m rota show "$ROTA_JOB" --json'
    job = rota.submit("--", "sh", "-c", script)
    rota.wait(job)
    shown = json.loads(rota.run("logs", job).out)
    assert (shown["id"], shown["status"], shown["run"]["id"]) == (job, "RUNNING", "run-1")


def test_http_job_gets_the_environment_of_the_scheduler(rota: Rota) -> None:
    rota.start()
    command = PRINT_ENVIRONMENT[1:]
    result = rota.api("POST", "/api/jobs", {"command": command, "env": {"EXTRA": "1"}}).json()
    assert result["job"]["cwd"] == rota.env["HOME"]
    environment = _environment(rota, result["job"]["id"])
    assert (environment["EXTRA"], environment["PATH"]) == ("1", rota.env["PATH"])


def test_environment_values_are_never_shown(rota: Rota) -> None:
    """LESSONS Store: environment secrets shown to agents."""
    env = {"API_TOKEN": SECRET}
    rota.set_start_delays("10ms")
    jobs = [
        rota.submit("--", "sh", "-c", 'test -n "$API_TOKEN"', env=env),
        rota.submit("--env", f"OTHER={SECRET}-2", "--", "sh", "-c", 'test -n "$OTHER"; exit 1'),
        rota.submit("--", "/no/such/program", env=env),
        rota.submit("--delay", "1h", "--", "true", env=env),
    ]
    rota.wait(*jobs[:3], code=None)
    output = [
        rota.run(*words)
        for words in (
            ["list", "--all"],
            ["status"],
            ["config", "list"],
            ["doctor"],
            ["up"],
            ["list", "--all", "--json"],
            *([verb, job] for job in jobs[1:3] for verb in ("show", "why", "logs")),
        )
    ]
    assert SECRET not in "".join(result.out + result.err for result in output)
    for target in ("", *(f"/{job}{part}" for job in jobs for part in ("", "/why", "/logs/stdout", "/logs/stderr"))):
        assert SECRET.encode() not in rota.api("GET", f"/api/jobs{target}").body
    rota.run("down")
    files = [path for path in rota.home.rglob("*") if path.is_file() and not path.name.startswith("rota.db")]
    assert {"rota.log", "supervisor.log", "supervisor.journal", "job.json"} <= {path.name for path in files}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_session_report_that_is_not_a_file_blocks_nothing(rota: Rota, children: ChildControl) -> None:
    """The child may create anything at the path of its report."""
    rota.start()
    fifo = rota.post_job(["sh", "-c", 'mkfifo "$ROTA_SESSION_FILE"; exec "$@"', "sh", *children.gated_argv("one")])
    assert children.read_lines() == ["one begins"]
    assert rota.wait_for_start(fifo)["session_path"] is None
    assert rota.jobs()
    children.release("one")
    assert rota.wait_for_end(fifo)["session_path"] is None
    link = rota.post_job(["sh", "-c", 'ln -s /dev/zero "$ROTA_SESSION_FILE"'])
    assert rota.wait_for_end(link)["session_path"] is None
