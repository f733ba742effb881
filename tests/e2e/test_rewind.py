"""Rewind with real processes, a real repository and killed schedulers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.kernel.rewind import MERGE_IN_PROGRESS
from tests.e2e.rig import ChildControl, Rota, eventually, kill

COUNTED_COMMAND = [
    "sh",
    "-c",
    'echo "$0" >> ran; n=$(grep -c "^$0$" ran); echo "$0 run $n"; echo "error $n" >&2; exit "${1:-0}"',
]


def counted_command(name: str, code: int = 0) -> list[str]:
    """Command that prints its run number and appends its name to the file `ran`."""
    return [*COUNTED_COMMAND, name, str(code)]


def read_logs(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.log"))}


@pytest.fixture
def chain_jobs(rota: Rota) -> list[str]:
    """Three ended jobs in a chain, and an unrelated one."""
    rota.start()
    jobs = [rota.post_job(counted_command("one"))]
    jobs.append(rota.post_job(counted_command("two"), after=[{"job": jobs[0]}]))
    jobs.append(rota.post_job(counted_command("three"), after=[{"job": jobs[1]}]))
    jobs.append(rota.post_job(counted_command("aside")))
    for job in jobs:
        rota.wait_for_end(job)
    return jobs


def test_rewound_job_and_its_dependents_run_again(rota: Rota, chain_jobs: list[str]) -> None:
    first, second, third, unrelated = chain_jobs
    old = {job: rota.show(job)["run"]["id"] for job in chain_jobs}
    before = rota.show(first), rota.show(unrelated)
    output = rota.run("rewind", second)
    assert output.lines == [f"reset: {second}, {third}", f"last successful point: {first}", f"restarted: {second}"]
    rota.wait(second, third)
    assert Path(rota.cwd / "ran").read_text().split() == ["one", "two", "three", "aside", "two", "three"]
    assert (rota.show(first), rota.show(unrelated)) == before
    folder = rota.home / "jobs" / second.removeprefix("job-")
    number = old[second].removeprefix("run-")
    assert read_logs(folder) == {
        "stdout.log": "two run 2\n",
        "stderr.log": "error 2\n",
        f"runs/{number}/stdout.log": "two run 1\n",
        f"runs/{number}/stderr.log": "error 1\n",
    }
    assert (rota.run("logs", second).out, rota.run("logs", old[second]).out) == ("two run 2\n", "two run 1\n")
    assert rota.run("logs", second, "--run", old[second], "--stream", "stderr", "--tail", "1").err == "error 1\n"
    assert rota.run("logs", first, "--run", old[second], code=3).err.startswith(
        f"rota: {old[second]} is not a run of {first}"
    )
    new_run, old_run = rota.api("GET", f"/api/jobs/{second}/runs").json()["runs"]
    first = rota.api("GET", f"/api/jobs/{second}/runs?limit=1").json()
    rest = rota.api("GET", f"/api/jobs/{second}/runs?limit=1&cursor={first['next']}").json()
    assert (first["runs"], rest) == ([new_run], {"runs": [old_run], "next": None})
    all_runs = rota.api("GET", "/api/job-runs").json()["runs"]
    assert all_runs == sorted(all_runs, key=lambda run: -int(run["id"].removeprefix("run-")))
    assert [run for run in all_runs if run["job"] == second] == [new_run, old_run]
    assert rota.api("GET", f"/api/job-runs?job={second}&status=COMPLETED").json()["runs"] == [new_run, old_run]
    assert rota.api("GET", f"/api/job-runs?worker={new_run['worker']}&status=FAILED").json()["runs"] == []
    assert rota.api("GET", "/api/job-runs?status=LOST").status == 422
    assert rota.api("GET", "/api/job-runs?job=job-99").status == 404
    assert (new_run["superseded"], old_run["superseded"], old_run["id"]) == (False, True, old[second])
    assert Path(old_run["log_paths"]["stdout"]).read_text() == "two run 1\n"
    assert f"earlier runs       {old[second]} COMPLETED, exit code 0" in rota.run("show", second).out
    assert rota.show(second)["run"] == new_run
    outcome = folder / "outcome.json"
    eventually(outcome.exists)
    assert json.loads(outcome.read_text())["run"]["id"] == new_run["id"]


def test_rewound_job_hides_its_old_run_while_it_waits(rota: Rota, chain_jobs: list[str]) -> None:
    second = chain_jobs[1]
    rota.set_global_size(0)
    report = rota.json("rewind", second)
    assert report["restarted"] == []
    shown = rota.show(second)
    assert [shown[name] for name in ("status", "run", "exit_code", "outcome_path", "pid")] == ["QUEUED", *[None] * 4]
    folder = rota.home / "jobs" / second.removeprefix("job-")
    record = folder / "job.json"  # removed by the rewind, then written after the turn
    eventually(lambda: record.exists() and json.loads(record.read_text())["status"] == "QUEUED")
    assert not (folder / "outcome.json").exists()
    assert rota.run("logs", second).out == ""
    (folder / "stdout.log").write_text("left by a failed move\n")
    assert rota.run("logs", second).out == ""
    assert rota.api("GET", f"/api/jobs/{second}/logs").json()["stdout"]["size"] == 0
    following = rota.spawn("logs", "--follow", second)
    rota.set_global_size(1)
    assert rota.finish(following).out == "two run 2\n"


def test_rewind_is_refused_for_running_and_unknown_jobs(rota: Rota, children: ChildControl) -> None:
    first = rota.submit("--", "true")
    rota.wait(first)
    second = rota.submit("--after", first, *children.gated("second"))
    children.read_lines()
    output = rota.run("rewind", first, code=4)
    assert (output.out, output.err) == (
        "",
        f"rota: cannot rewind while jobs are running in the rewind set: {second} (RUNNING)\n",
    )
    assert rota.api("POST", f"/api/jobs/{first}/rewind").status == 409
    children.release("second")
    rota.wait(second)
    assert "no such job: job-99" in rota.run("rewind", "99", code=3).err
    assert rota.api("POST", "/api/jobs/job-99/rewind").status == 404


def git(repository: Path, *words: str, code: int = 0) -> None:
    completed = subprocess.run(["git", *words], cwd=repository, capture_output=True, check=False)
    assert completed.returncode == code, completed


def start_conflicting_merge(repository: Path) -> None:
    """Start a merge that stops at a conflict."""
    for branch in ("other", "main"):
        git(repository, "switch", "-q", *(["-c", branch] if branch == "other" else [branch]))
        (repository / "file").write_text(branch)
        git(repository, "add", "file")
        git(repository, "commit", "-q", "-m", branch)
    git(repository, "merge", "other", code=1)


def test_merge_job_cannot_be_rewound_during_a_merge(rota: Rota, repository: Path) -> None:
    rota.start()
    sentinel = rota.home / "tmp/merge-conflicts/foo.json"
    sentinel.parent.mkdir(parents=True)
    sentinel.write_text("{}")
    merge = rota.post_job(["false"], cwd=str(repository), produces=["merge_sentinel:foo", "target_branch:main"])
    after = rota.post_job(["true"], after=[{"job": merge}])
    plain = rota.post_job(["true"], cwd=str(repository), produces=["plan_branch:foo"])
    for job in (merge, after, plain):
        rota.wait_for_end(job)
    start_conflicting_merge(repository)
    output = rota.run("rewind", merge, code=4)
    assert output.err == f"rota: {MERGE_IN_PROGRESS}\n"
    assert sentinel.exists()
    assert rota.show(merge)["status"] == "FAILED"
    assert rota.json("rewind", plain)["reset"] == [plain]
    assert rota.json("rewind", after)["reset"] == [after], "no job of the rewind set merges"
    git(repository, "merge", "--abort")
    report = rota.json("rewind", merge)
    assert (report["reset"], report["restarted"]) == ([merge, after], [merge])
    assert not sentinel.exists()
    assert rota.wait_for_end(after)["reason"] == f"dependency failed for job {merge} (FAILED)"


def test_retry_suggests_the_rewind_of_a_blocked_dependent(rota: Rota) -> None:
    first = rota.submit("--", "sh", "-c", "test -e fixed")
    after = rota.submit("--after", first, "--", "true")
    rota.wait(after, code=1)
    Path(rota.cwd / "fixed").touch()
    assert f"`rota rewind {after}`" in rota.run("retry", first).err
    rota.run("rewind", after)
    rota.wait(after)
    assert rota.show(after)["status"] == "COMPLETED"


@pytest.mark.parametrize("victims", ["scheduler", "both"])
def test_rewind_survives_kills_before_files_are_moved(rota: Rota, chain_jobs: list[str], victims: str) -> None:
    """Files are not moved yet when the kill happens. The next run does not append to them."""
    second, third = chain_jobs[1], chain_jobs[2]
    rota.set_global_size(0)
    supervisor = rota.supervisor_pid
    folders = {job: rota.home / "jobs" / job.removeprefix("job-") for job in (second, third)}
    runs = {job: rota.show(job)["run"]["id"].removeprefix("run-") for job in (second, third)}
    eventually(lambda: all((folder / "outcome.json").exists() for folder in folders.values()))
    contents = {path: path.read_bytes() for folder in folders.values() for path in folder.iterdir()}
    rota.json("rewind", second)
    rota.crash()
    if victims == "both":
        kill(supervisor)
    for folder in folders.values():
        for path in folder.rglob("*.log"):
            path.unlink()
    for path, content in contents.items():
        path.write_bytes(content)
    rota.start()
    assert [rota.show(job)["status"] for job in (second, third)] == ["QUEUED", "WAITING_ON_DEPS"]
    assert rota.run("logs", second).out == ""
    rota.set_global_size(1)
    rota.wait(second, third)
    for job, name in ((second, "two"), (third, "three")):
        assert read_logs(folders[job]) == {
            "stdout.log": f"{name} run 2\n",
            "stderr.log": "error 2\n",
            f"runs/{runs[job]}/stdout.log": f"{name} run 1\n",
            f"runs/{runs[job]}/stderr.log": "error 1\n",
        }


def test_rewind_during_kills_keeps_each_run_and_log(make_rota: Callable[..., Rota]) -> None:
    """Each run has its own log and record, whatever is killed at any time."""
    rota = make_rota()
    rota.start()
    job = rota.post_job(counted_command("one"))
    after = rota.post_job(counted_command("two"), after=[{"job": job}])
    for n in range(6):
        rota.wait_for_end(after)
        rewinding = rota.spawn("rewind", job)
        if n % 2:
            kill(rota.supervisor_pid)
        else:
            rota.crash()
        output = rota.finish(rewinding)
        assert output.code == 0, output
        rota.start()
    rota.wait_for_end(after)
    for member in (job, after):
        folder = rota.home / "jobs" / member.removeprefix("job-")
        runs = rota.api("GET", f"/api/jobs/{member}/runs").json()["runs"]
        logs = {text for path, text in read_logs(folder).items() if "stdout" in path and text}
        assert all(text.count("\n") == 1 for text in logs), "no run appended to the log of another"
        assert len(logs) <= len(runs)
    assert {shown["status"] for shown in rota.jobs()} <= {"COMPLETED", "FAILED", "BLOCKED_BY_DEPENDENCY"}
