"""Rewind with real processes, a real repository and schedulers that are killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rota, Stage, eventually, kill
from rota.core.rewind import MID_MERGE

COUNTED = [
    "sh",
    "-c",
    'echo "$0" >> ran; n=$(grep -c "^$0$" ran); echo "$0 run $n"; echo "trouble $n" >&2; exit "${1:-0}"',
]


def counted(name: str, code: int = 0) -> list[str]:
    """Says which of its runs it is, and puts its name down."""
    return [*COUNTED, name, str(code)]


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.log"))}


@pytest.fixture
def line(rota: Rota) -> list[str]:
    """Three jobs, one after the other, and one aside; all over."""
    rota.start()
    jobs = [rota.post(counted("one"))]
    jobs.append(rota.post(counted("two"), after=[{"job": jobs[0]}]))
    jobs.append(rota.post(counted("three"), after=[{"job": jobs[1]}]))
    jobs.append(rota.post(counted("aside")))
    for job in jobs:
        rota.ended(job)
    return jobs


def test_a_rewound_job_and_all_after_it_run_again(rota: Rota, line: list[str]) -> None:
    first, second, third, aside = line
    old = {job: rota.show(job)["run"]["id"] for job in line}
    before = rota.show(first), rota.show(aside)
    said = rota.ask("rewind", second)
    assert said.lines == [f"reset: {second}, {third}", f"last successful point: {first}", f"restarted: {second}"]
    rota.wait(second, third)
    assert Path(rota.cwd / "ran").read_text().split() == ["one", "two", "three", "aside", "two", "three"]
    assert (rota.show(first), rota.show(aside)) == before
    folder = rota.home / "jobs" / second.removeprefix("job-")
    number = old[second].removeprefix("run-")
    assert files(folder) == {
        "stdout.log": "two run 2\n",
        "stderr.log": "trouble 2\n",
        f"runs/{number}/stdout.log": "two run 1\n",
        f"runs/{number}/stderr.log": "trouble 1\n",
    }
    assert (rota.ask("logs", second).out, rota.ask("logs", old[second]).out) == ("two run 2\n", "two run 1\n")
    assert rota.ask("logs", second, "--run", old[second], "--stream", "stderr", "--tail", "1").err == "trouble 1\n"
    assert rota.ask("logs", first, "--run", old[second], code=3).err.startswith(
        f"rota: {old[second]} is no run of {first}"
    )
    new, past = rota.api("GET", f"/api/jobs/{second}/runs").json()["runs"]
    first = rota.api("GET", f"/api/jobs/{second}/runs?limit=1").json()
    rest = rota.api("GET", f"/api/jobs/{second}/runs?limit=1&cursor={first['next']}").json()
    assert (first["runs"], rest) == ([new], {"runs": [past], "next": None})
    everything = rota.api("GET", "/api/job-runs").json()["runs"]
    assert everything == sorted(everything, key=lambda run: -int(run["id"].removeprefix("run-")))
    assert [run for run in everything if run["job"] == second] == [new, past]
    assert rota.api("GET", f"/api/job-runs?job={second}&status=COMPLETED").json()["runs"] == [new, past]
    assert rota.api("GET", f"/api/job-runs?worker={new['worker']}&status=FAILED").json()["runs"] == []
    assert rota.api("GET", "/api/job-runs?status=LOST").status == 422
    assert rota.api("GET", "/api/job-runs?job=job-99").status == 404
    assert (new["superseded"], past["superseded"], past["id"]) == (False, True, old[second])
    assert Path(past["log_paths"]["stdout"]).read_text() == "two run 1\n"
    assert f"earlier runs       {old[second]} COMPLETED, exit code 0" in rota.ask("show", second).out
    assert rota.show(second)["run"] == new
    outcome = folder / "outcome.json"
    eventually(outcome.exists)
    assert json.loads(outcome.read_text())["run"]["id"] == new["id"]


def test_while_it_waits_nothing_of_the_old_run_is_shown(rota: Rota, line: list[str]) -> None:
    second = line[1]
    rota.set_global(0)
    report = rota.json("rewind", second)
    assert report["restarted"] == []
    shown = rota.show(second)
    assert [shown[name] for name in ("status", "run", "exit_code", "outcome_path", "pid")] == ["QUEUED", *[None] * 4]
    folder = rota.home / "jobs" / second.removeprefix("job-")
    eventually(lambda: json.loads((folder / "job.json").read_text())["status"] == "QUEUED")
    assert not (folder / "outcome.json").exists()
    assert rota.ask("logs", second).out == ""
    (folder / "stdout.log").write_text("as if it could not be moved\n")
    assert rota.ask("logs", second).out == ""
    assert rota.api("GET", f"/api/jobs/{second}/logs").json()["stdout"]["size"] == 0
    following = rota.begin("logs", "--follow", second)
    rota.set_global(1)
    assert rota.end(following).out == "two run 2\n"


def test_refusals(rota: Rota, stage: Stage) -> None:
    first = rota.submit("--", "true")
    rota.wait(first)
    second = rota.submit("--after", first, *stage.actor("second"))
    stage.hear()
    said = rota.ask("rewind", first, code=4)
    assert (said.out, said.err) == (
        "",
        f"rota: cannot rewind while jobs are running in the rewind set: {second} (RUNNING)\n",
    )
    assert rota.api("POST", f"/api/jobs/{first}/rewind").status == 409
    stage.release("second")
    rota.wait(second)
    assert "no such job: job-99" in rota.ask("rewind", "99", code=3).err
    assert rota.api("POST", "/api/jobs/job-99/rewind").status == 404


def git(repository: Path, *words: str, code: int = 0) -> None:
    done = subprocess.run(["git", *words], cwd=repository, capture_output=True, check=False)
    assert done.returncode == code, done


def conflict(repository: Path) -> None:
    """A merge that waits to be ended."""
    for branch in ("other", "main"):
        git(repository, "switch", "-q", *(["-c", branch] if branch == "other" else [branch]))
        (repository / "file").write_text(branch)
        git(repository, "add", "file")
        git(repository, "commit", "-q", "-m", branch)
    git(repository, "merge", "other", code=1)


def test_merge_work_waits_for_the_merge_to_be_ended(rota: Rota, repository: Path) -> None:
    rota.start()
    sentinel = rota.home / "tmp/merge-conflicts/foo.json"
    sentinel.parent.mkdir(parents=True)
    sentinel.write_text("{}")
    merge = rota.post(["false"], cwd=str(repository), produces=["merge_sentinel:foo", "target_branch:main"])
    after = rota.post(["true"], after=[{"job": merge}])
    plain = rota.post(["true"], cwd=str(repository), produces=["plan_branch:foo"])
    for job in (merge, after, plain):
        rota.ended(job)
    conflict(repository)
    said = rota.ask("rewind", merge, code=4)
    assert said.err == f"rota: {MID_MERGE}\n"
    assert sentinel.exists()
    assert rota.show(merge)["status"] == "FAILED"
    assert rota.json("rewind", plain)["reset"] == [plain]
    assert rota.json("rewind", after)["reset"] == [after], "the set itself has no merge work"
    git(repository, "merge", "--abort")
    report = rota.json("rewind", merge)
    assert (report["reset"], report["restarted"]) == ([merge, after], [merge])
    assert not sentinel.exists()
    assert rota.ended(after)["reason"] == f"dependency failed for job {merge} (FAILED)"


def test_a_retry_names_the_rewind_that_helps(rota: Rota) -> None:
    first = rota.submit("--", "sh", "-c", "test -e mended")
    after = rota.submit("--after", first, "--", "true")
    rota.wait(after, code=1)
    Path(rota.cwd / "mended").touch()
    assert f"`rota rewind {after}`" in rota.ask("retry", first).err
    rota.ask("rewind", after)
    rota.wait(after)
    assert rota.show(after)["status"] == "COMPLETED"


@pytest.mark.parametrize("victims", ["scheduler", "both"])
def test_killed_right_after_a_rewind(rota: Rota, line: list[str], victims: str) -> None:
    """Before anybody could move a file: they lie as they did, and the next run does not write behind them."""
    second, third = line[1], line[2]
    rota.set_global(0)
    supervisor = rota.supervisor
    folders = {job: rota.home / "jobs" / job.removeprefix("job-") for job in (second, third)}
    runs = {job: rota.show(job)["run"]["id"].removeprefix("run-") for job in (second, third)}
    eventually(lambda: all((folder / "outcome.json").exists() for folder in folders.values()))
    was = {path: path.read_bytes() for folder in folders.values() for path in folder.iterdir()}
    rota.json("rewind", second)
    rota.crash()
    if victims == "both":
        kill(supervisor)
    for folder in folders.values():
        for path in folder.rglob("*.log"):
            path.unlink()
    for path, content in was.items():
        path.write_bytes(content)
    rota.start()
    assert [rota.show(job)["status"] for job in (second, third)] == ["QUEUED", "WAITING_ON_DEPS"]
    assert rota.ask("logs", second).out == ""
    rota.set_global(1)
    rota.wait(second, third)
    for job, name in ((second, "two"), (third, "three")):
        assert files(folders[job]) == {
            "stdout.log": f"{name} run 2\n",
            "stderr.log": "trouble 2\n",
            f"runs/{runs[job]}/stdout.log": f"{name} run 1\n",
            f"runs/{runs[job]}/stderr.log": "trouble 1\n",
        }


def test_kills_and_rewinds_at_any_moment(make_rota: Callable[..., Rota]) -> None:
    """Whatever is killed when, each run has its own log and every run is on record."""
    rota = make_rota()
    rota.start()
    job = rota.post(counted("one"))
    after = rota.post(counted("two"), after=[{"job": job}])
    for n in range(6):
        rota.ended(after)
        asked = rota.begin("rewind", job)
        if n % 2:
            kill(rota.supervisor)
        else:
            rota.crash()
        said = rota.end(asked)
        assert said.code == 0, said
        rota.start()
    rota.ended(after)
    for member in (job, after):
        folder = rota.home / "jobs" / member.removeprefix("job-")
        runs = rota.api("GET", f"/api/jobs/{member}/runs").json()["runs"]
        logs = {text for path, text in files(folder).items() if "stdout" in path and text}
        assert all(text.count("\n") == 1 for text in logs), "no run wrote behind another"
        assert len(logs) <= len(runs)
    assert {shown["status"] for shown in rota.jobs()} <= {"COMPLETED", "FAILED", "BLOCKED_BY_DEPENDENCY"}
