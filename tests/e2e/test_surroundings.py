"""§8 Surroundings: what of the caller reaches the child, and what of it is never shown."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from e2e.rig import Rota, Stage

SECRET = "hunter2-5c1b9f"


def _environment(rota: Rota, job: str) -> dict[str, str]:
    rota.wait(job)
    found: dict[str, str] = json.loads(rota.ask("logs", job).out)
    return found


PRINT_ENVIRONMENT = ["--", sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def test_working_directory_and_environment_are_the_callers(rota: Rota, tmp_path: Path) -> None:
    here = tmp_path / "somewhere else"
    here.mkdir()
    job = rota.submit("--", "pwd", cwd=here)
    rota.wait(job)
    assert rota.ask("logs", job).out == f"{here}\n"
    assert rota.show(job)["cwd"] == str(here)
    variables = {"COLOUR": "red", "EMPTY": "", "LINES_OF_IT": "a\nb", "UMLAUT": "grün"}
    found = _environment(
        rota, rota.submit("--env", "SIZE=3", "--env", "COLOUR=blue", *PRINT_ENVIRONMENT, env=variables)
    )
    assert {name: found[name] for name in (*variables, "SIZE")} == {**variables, "SIZE": "3", "COLOUR": "blue"}
    # The scheduler was started by the first submit; its environment is not the second one's.
    again = _environment(rota, rota.submit(*PRINT_ENVIRONMENT))
    assert not set(again) & {*variables, "SIZE"}


def test_another_directory_is_named_by_option(rota: Rota) -> None:
    (rota.cwd / "below").mkdir()
    job = rota.submit("--cwd", "below", "--", "pwd")
    rota.wait(job)
    assert rota.ask("logs", job).out == f"{rota.cwd}/below\n"


def test_what_rota_adds(rota: Rota) -> None:
    stale = {"ROTA_JOB": "job-77", "ROTA_RUN": "run-77"}
    found = _environment(rota, rota.submit("--param", "a=1.10", "--param", "b:=[2]", *PRINT_ENVIRONMENT, env=stale))
    assert found["ROTA_HOME"] == str(rota.home)
    assert (found["ROTA_JOB"], found["ROTA_RUN"]) == ("job-1", "run-1")
    assert json.loads(found["ROTA_PARAMS"]) == {"a": "1.10", "b": [2]}
    assert Path(found["ROTA_SESSION_FILE"]).parent == rota.home / "jobs/1"
    assert not [name for name in found if name.startswith("ROTA_SUPERVISOR")], "the supervisor's own business"


def test_a_child_reports_its_session(rota: Rota) -> None:
    job = rota.submit("--", "sh", "-c", 'echo /tmp/session-4711.jsonl > "$ROTA_SESSION_FILE"')
    rota.wait(job)
    assert rota.show(job)["session_path"] == "/tmp/session-4711.jsonl"


def test_a_child_speaks_to_its_own_scheduler_and_finds_its_run_on_disk(rota: Rota) -> None:
    """LESSONS Dispatch: child started before its claim was durable; record written after the side effect."""
    script = f'exec {shlex.quote(sys.executable)} -m rota show "$ROTA_JOB" --json'
    job = rota.submit("--", "sh", "-c", script)
    rota.wait(job)
    seen = json.loads(rota.ask("logs", job).out)
    assert (seen["id"], seen["status"], seen["run"]["id"]) == (job, "RUNNING", "run-1")


def test_over_http_the_schedulers_environment_and_the_home_of_the_user(rota: Rota) -> None:
    rota.start()
    command = PRINT_ENVIRONMENT[1:]
    told = rota.api("POST", "/api/jobs", {"command": command, "env": {"EXTRA": "1"}}).json()
    assert told["job"]["cwd"] == rota.env["HOME"]
    found = _environment(rota, told["job"]["id"])
    assert (found["EXTRA"], found["PATH"]) == ("1", rota.env["PATH"])


def test_the_values_of_the_environment_are_shown_nowhere(rota: Rota) -> None:
    """LESSONS Store: environment secrets shown to agents."""
    env = {"API_TOKEN": SECRET}
    jobs = [
        rota.submit("--", "sh", "-c", 'test -n "$API_TOKEN"', env=env),
        rota.submit("--env", f"OTHER={SECRET}-2", "--", "sh", "-c", 'test -n "$OTHER"; exit 1'),
        rota.submit("--", "/no/such/program", env=env),
        rota.submit("--delay", "1h", "--", "true", env=env),
    ]
    rota.wait(*jobs[:3], code=None)
    said = [
        rota.ask(*words)
        for words in (
            ["list", "--all"], ["status"], ["config", "list"], ["doctor"], ["up"], ["list", "--all", "--json"],
            *([verb, job] for job in jobs[1:3] for verb in ("show", "why", "logs")),
        )
    ]  # fmt: skip
    assert SECRET not in "".join(each.out + each.err for each in said)
    for target in ("", *(f"/{job}{part}" for job in jobs for part in ("", "/why", "/logs/stdout", "/logs/stderr"))):
        assert SECRET.encode() not in rota.api("GET", f"/api/jobs{target}").body
    rota.ask("down")
    files = [path for path in rota.home.rglob("*") if path.is_file() and not path.name.startswith("rota.db")]
    assert {"rota.log", "supervisor.log", "supervisor.journal", "job.json"} <= {path.name for path in files}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_report_that_is_no_file_wedges_nobody(rota: Rota, stage: Stage) -> None:
    """The child owns the place of its report and may put anything there."""
    rota.start()
    fifo = rota.post(["sh", "-c", 'mkfifo "$ROTA_SESSION_FILE"; exec "$@"', "sh", *stage.actor("one")[1:]])
    assert stage.hear() == ["one begins"]
    assert rota.running(fifo)["session_path"] is None
    assert rota.jobs()
    stage.release("one")
    assert rota.ended(fifo)["session_path"] is None
    link = rota.post(["sh", "-c", 'ln -s /dev/zero "$ROTA_SESSION_FILE"'])
    assert rota.ended(link)["session_path"] is None
