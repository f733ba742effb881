"""`rota gc` as a person meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from e2e.rig import Rota, Stage, eventually, kill
from e2e.test_home import _obey_modes

VICTIM = Path(__file__).with_name("gc_victim.py")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Of the store; empty for the home's own."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@pytest.fixture
def home(make_rota: Callable[..., Rota], url: str) -> Rota:
    rota = make_rota()
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(f"[store]\nurl = {json.dumps(url)}\n" if url else "")
    rota.start()
    return rota


def files_of(rota: Rota) -> list[str]:
    """The jobs whose directories are in their places, oldest first."""
    numbers = sorted(int(path.name) for path in (rota.home / "jobs").iterdir() if path.name.isdecimal())
    return [f"job-{number}" for number in numbers]


def ended(rota: Rota, count: int) -> list[str]:
    jobs = [rota.post(["sh", "-c", "echo out; echo err >&2"]) for _ in range(count)]
    for job in jobs:
        assert rota.ended(job)["status"] == "COMPLETED"
    return jobs


def test_what_has_ended_goes_and_what_is_referred_to_stays(home: Rota, stage: Stage) -> None:
    first, second = ended(home, 2)
    running = home.post(stage.actor("one"), after=[{"job": second}])
    stage.hear()
    assert home.ask("gc").err == "rota: removed 0 jobs (0 runs, 0 events, 0 bytes of files)\n"
    said = home.ask("gc", "--days", "0", "--dry-run")
    assert said.out == ""
    assert said.err.startswith("rota: would remove 1 job (1 run, 4 events, ")
    assert said.err.endswith(" kB of files); kept 1 that others refer to\n")
    assert files_of(home) == [first, second, running]
    done = home.json("gc", "--days", "0")
    assert done["jobs"] == [first]
    assert {name: done["removed"][name] for name in ("jobs", "runs", "events")} == {"jobs": 1, "runs": 1, "events": 4}
    assert done["removed"]["bytes"] > 0
    assert done["kept"] == {"referenced": 1, "worktree": 0, "files": 0}
    assert files_of(home) == [second, running]
    for verb in ("show", "why", "logs", "wait", "cancel", "retry"):
        said = home.ask(verb, first, code=3)
        assert said.err == (
            f"rota: no such job: {first}; it may have been collected, as jobs are some time after their end:"
            " `rota config get gc.days`\n"
        )
    assert home.show(running)["after"] == [{"job": second, "policy": "success"}]
    stage.release("one")
    home.ended(running)
    assert home.json("gc", "--days", "0")["jobs"] == [running, second]
    assert home.ask("list", "--all", "--json").json()["jobs"] == []
    assert home.post(["true"]) == "job-4", "no number is used again"
    assert home.status()["last_gc"]["jobs"] == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["take", "sync", "commit", "delete"])
def test_killed_at_any_step_rows_and_files_agree_at_the_next_start(home: Rota, url: str, step: str, when: str) -> None:
    jobs = ended(home, 5)
    home.ask("down")
    victim = subprocess.run([sys.executable, str(VICTIM), str(home.home), url, step, when], check=False)
    assert victim.returncode == -signal.SIGKILL
    home.start()
    left = [job["id"] for job in home.jobs()]
    assert files_of(home) == left
    assert len(left) == (3 if step == "delete" or (step, when) == ("commit", "after") else 5)
    for job in left:
        assert home.api("GET", f"/api/jobs/{job}/logs/stdout").body == b"out\n"
    assert home.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["jobs"] == len(left)
    assert files_of(home) == []
    assert not (home.home / "jobs" / ".removed").exists()
    assert home.post(["true"]) == f"job-{len(jobs) + 1}"


def _is_begun(trash: Path, asking: subprocess.Popen[bytes]) -> bool:
    return trash.exists() or asking.poll() is not None


def test_the_scheduler_is_killed_in_the_middle_again_and_again(home: Rota) -> None:
    """Wherever that hits: what is there after the next start is whole."""
    jobs = ended(home, 30)
    trash = home.home / "jobs" / ".removed"
    for _ in range(4):
        scheduler, asking = home.scheduler, home.begin("gc", "--days", "0")
        eventually(partial(_is_begun, trash, asking), what="a collection")
        kill(scheduler)
        home.end(asking)
        home.start()
        left = [job["id"] for job in home.jobs()]
        assert files_of(home) == left
        assert set(left) <= set(jobs)
    home.ask("gc", "--days", "0")
    assert files_of(home) == []


def test_files_that_cannot_be_removed_keep_their_job_and_are_named(rota: Rota) -> None:
    rota.ask("up", preexec_fn=_obey_modes)
    first, second, third = ended(rota, 3)
    place = rota.home / "jobs" / second.removeprefix("job-")
    place.chmod(0o500)
    try:
        done = rota.json("gc", "--days", "0")
        said = rota.ask("gc", "--days", "0")
    finally:
        place.chmod(0o700)
    assert done["jobs"] == [third, first]
    assert done["kept"] == {"referenced": 0, "worktree": 0, "files": 1}
    assert said.err.splitlines()[1:] == [
        f"rota: kept {second}: its files cannot be removed: {place}: no permission to remove what is in it"
    ]
    assert [job["id"] for job in rota.jobs()] == files_of(rota) == [second]
    assert rota.json("gc", "--days", "0")["jobs"] == [second]


def test_a_worktree_that_is_still_there_is_named_with_what_to_do(rota: Rota) -> None:
    rota.start()
    (job,) = ended(rota, 1)
    worktree = rota.home / "worktrees" / job
    worktree.mkdir(parents=True)
    said = rota.ask("gc", "--days", "0")
    assert said.err == (
        "rota: removed 0 jobs (0 runs, 0 events, 0 bytes of files); kept 1 with a worktree\n"
        f"rota: kept {job}: its worktree {worktree} is still there;"
        f" when its work is safe: git worktree remove {worktree}\n"
    )


def test_it_is_done_by_itself_and_not_at_the_start(rota: Rota) -> None:
    rota.ask("config", "set", "gc.days", "0")
    rota.start()
    (job,) = ended(rota, 1)
    assert rota.show(job)["id"] == job, "not at the start"
    rota.ask("config", "set", "gc.interval", "1s")
    eventually(lambda: rota.api("GET", f"/api/jobs/{job}").status == 404, what="collected unasked")
    eventually(lambda: rota.status()["last_gc"], what="and told")
    assert files_of(rota) == []


def test_bad_values_are_refused_by_name(rota: Rota) -> None:
    rota.start()
    for days in ("x", "-1", "1.5", "", "9" * 30):
        said = rota.ask("gc", f"--days={days}", code=2)
        assert said.err == f"rota: --days {days}: write a whole number of days; 0 is all that has ended\n"
    said = rota.ask("gc", "--days", "36501", code=2)
    assert said.err == "rota: days goes from 0 (all that has ended) to 36500, not 36501\n"
    for body in ({"days": "7"}, {"days": 1.5}, {"dry_run": 1}, {"day": 7}):
        answer = rota.api("POST", "/api/scheduler/gc", body)
        assert answer.status == 422, body
    answer = rota.api("POST", "/api/scheduler/gc", {"days": None, "dry_run": True})
    assert answer.json()["dry_run"] is True
    assert rota.api("POST", "/api/scheduler/gc").json()["removed"]["jobs"] == 0
    assert rota.api("GET", "/api/scheduler/gc").json()["under_way"] is None
