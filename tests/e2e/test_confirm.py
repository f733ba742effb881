"""Destructive verbs: a dry run changes nothing, and a terminal is asked before more than one job is affected."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import TIMEOUT, Rota, shell_exit_code


class Terminal:
    """Command on its own pseudo-terminal."""

    def __init__(self, rota: Rota, *words: str, stderr: int | None = None, controls: bool = True) -> None:
        self._screen, terminal_end = pty.openpty()
        modes = termios.tcgetattr(terminal_end)
        modes[3] |= termios.NOFLSH  # without it the kernel drops unread output when it sends the signal of Ctrl-C
        termios.tcsetattr(terminal_end, termios.TCSANOW, modes)
        self._process = subprocess.Popen(
            rota.argv(*words),
            stdin=terminal_end,
            stdout=terminal_end,
            stderr=terminal_end if stderr is None else stderr,
            env={**rota.env, "TERM": "dumb"},
            cwd=rota.cwd,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY)) if controls else None,
        )
        os.close(terminal_end)
        self.text = ""

    def read_until(self, text: str) -> None:
        while text not in self.text:
            chunk = self._read()
            assert chunk, f"no {text!r} in {self.text!r}"
            self.text += chunk

    def _read(self) -> str:
        try:
            return os.read(self._screen, 4096).decode()
        except OSError:  # the other end is closed
            return ""

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def finish(self) -> int:
        while chunk := self._read():
            self.text += chunk
        return shell_exit_code(self._process.wait(timeout=TIMEOUT))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._screen)


@contextmanager
def terminal(rota: Rota, *words: str, stderr: int | None = None, controls: bool = True) -> Iterator[Terminal]:
    started = Terminal(rota, *words, stderr=stderr, controls=controls)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def queue(rota: Rota, tmp_path: Path) -> Rota:
    """Paused home with two ended jobs, a group of three waiting jobs, and a backup."""
    failed = rota.submit("--", "false")
    later = rota.submit("--after", f"{failed}:finished", "--", "true")
    rota.wait(failed, code=1)
    rota.wait(later)
    rota.run("backup", str(tmp_path / "backup"))
    rota.run("pause")
    (rota.cwd / "flow.yaml").write_text("jobs: {a: {command: [sleep, 0]}, b: {command: [x]}, c: {command: [y]}}")
    rota.run("apply", "flow.yaml")
    return rota


def destructive_commands() -> dict[str, list[str]]:
    """Return a command line for each destructive command that affects more than one job."""
    return {
        "clear": ["clear"],
        "cancel": ["cancel", "job-3", "job-4"],
        "cancel a group": ["cancel", "group-1"],
        "group cancel": ["group", "cancel", "group-1"],
        "rewind": ["rewind", "job-1"],
        "gc": ["gc", "--days", "0"],
    }


def job_states(rota: Rota) -> Any:
    jobs = rota.json("list", "--all")["jobs"]
    return [(job["id"], job["status"], job["queued_at"]) for job in jobs]


def test_dry_run_prints_the_plan_and_changes_nothing(queue: Rota, tmp_path: Path) -> None:
    before = job_states(queue)
    cancelled = [f"would cancel job-{job} (QUEUED): {name}" for job, name in ((3, "a"), (4, "b"), (5, "c"))]
    output = {
        name: queue.run(*words, "--dry-run").lines for name, words in destructive_commands().items() if name != "gc"
    }
    assert output == {
        "clear": cancelled,
        "cancel": cancelled[:2],
        "cancel a group": cancelled,
        "group cancel": cancelled,
        "rewind": ["would reset job-1", "would reset job-2"],
    }
    assert [job["id"] for job in queue.json("clear", "--dry-run")["jobs"]] == ["job-3", "job-4", "job-5"]
    assert [job["id"] for job in queue.json("cancel", "group-1", "--dry-run")["jobs"]] == ["job-3", "job-4", "job-5"]
    report = queue.json("rewind", "1", "--dry-run")
    assert (report["dry_run"], report["reset"]) == (True, ["job-1", "job-2"])
    assert queue.json("gc", "--days", "0", "--dry-run")["removed"]["jobs"] == 2
    assert queue.run("cancel", "job-1", "job-3", "--dry-run", code=4).lines == cancelled[:1]
    pid = queue.json("status")["pid"]
    assert queue.run("down", "--dry-run").out == f"would stop the scheduler (pid {pid})\n"
    assert queue.json("down", "--dry-run", "--grace", "5s") == {
        "dry_run": True,
        "pid": pid,
        "grace": "5s",
        "kill": False,
        "running": [],
    }
    assert job_states(queue) == before
    queue.run("down")
    backup = str(tmp_path / "backup")
    assert "already has a database" in queue.run("restore", backup, "--dry-run", code=4).err
    assert queue.run("restore", backup, "--force", "--dry-run").lines[1:] == [
        "would keep the current database, with 5 jobs, aside"
    ]
    plan = queue.json("restore", backup, "--force", "--dry-run")
    assert (plan["dry_run"], plan["jobs"], plan["replaced_jobs"]) == (True, 2, 5)
    assert not list(queue.home.glob("before-restore*"))
    queue.run("up")
    assert job_states(queue) == before


def test_destructive_commands_ask_for_confirmation_on_a_terminal(queue: Rota) -> None:
    before = job_states(queue)
    for name, words in destructive_commands().items():
        with terminal(queue, *words) as screen:
            screen.read_until("[y/N]")
            screen.type("n\n")
            assert (name, screen.finish()) == (name, 1)
            assert "not confirmed; nothing was changed" in screen.text
    assert job_states(queue) == before
    with terminal(queue, "clear") as screen:
        screen.read_until("cancel 3 jobs? [y/N]")
        screen.type("\x03")
        assert screen.finish() == 130
        assert "interrupted; nothing was changed" in screen.text
    with terminal(queue, "clear") as screen:
        screen.read_until("[y/N]")
        screen.type("\x04")
        assert screen.finish() == 1
    assert job_states(queue) == before
    with terminal(queue, "clear") as screen:
        screen.read_until("[y/N]")
        later = queue.submit("--", "true")
        screen.type("y\n")
        assert screen.finish() == 0
        assert "3 jobs cancelled" in screen.text
    assert queue.json("show", later)["status"] == "QUEUED"


def test_gc_on_a_terminal_starts_a_stopped_scheduler(queue: Rota) -> None:
    queue.run("down")
    with terminal(queue, "gc", "--days", "0") as screen:
        screen.read_until("remove 2 jobs? [y/N]")
        assert "started the scheduler" in screen.text
        screen.type("n\n")
        assert screen.finish() == 1


def test_question_is_asked_although_stderr_is_redirected(queue: Rota) -> None:
    before = job_states(queue)
    with terminal(queue, "clear", stderr=subprocess.DEVNULL) as screen:
        screen.read_until("cancel 3 jobs? [y/N]")
        screen.type("n\n")
        assert screen.finish() == 1
    with terminal(queue, "clear", stderr=subprocess.DEVNULL, controls=False) as screen:
        assert screen.finish() == 2
    assert job_states(queue) == before


def test_dry_run_of_submit_prints_the_policies_and_stores_nothing(rota: Rota) -> None:
    rota.run("template", "add", "nightly", "--timeout", "5m", "--", "true")
    output = rota.run("submit", "--dry-run", "--template", "nightly", "--flow", "review", "--type", "story").lines
    assert output[0] == "would submit job-1"
    assert {tuple(line.split(None, 1)) for line in output} >= {
        ("command", "true"),
        ("flow", "review"),
        ("retry", "5 retries  [flow default; built-in (retry.fleet.max_retries)]"),
        ("timeout", "5m  [template nightly]"),
        ("idle_timeout", "none  [built-in]"),
    }
    assert "pool flow/review   1 of 1  [flow default; size: built-in (pools.flow/*)]" in output
    assert any(line.startswith("breaker type/story") for line in output)
    delayed = rota.run("submit", "--dry-run", "--delay", "1h", "--name", "late", "--", "make", "all").lines
    assert any(line.startswith("wait  ") and "not before" in line for line in delayed), delayed
    assert "command            make all" in delayed
    assert rota.json("list", "--all")["jobs"] == []
    submitted = rota.json("submit", "--retries", "2", "--delay", "1h", "--", "true")["job"]
    assert ("retry", "2 retries", "option") in {tuple(policy.values()) for policy in submitted["policies"]}
    job = rota.submit("--template", "nightly")
    rota.wait(job)
    assert "timeout            5m  [template nightly]" in rota.run("show", job).lines
    assert ("retry", "template default; built-in (retry.max_retries)") in {
        (policy["name"], policy["source"]) for policy in rota.json("show", job)["policies"]
    }


def test_no_question_for_one_job_with_yes_or_in_a_pipe(queue: Rota) -> None:
    with terminal(queue, "cancel", "job-3") as screen:
        assert (screen.finish(), "[y/N]" in screen.text) == (0, False)
    assert queue.run("cancel", "job-4").out == "job-4 CANCELLED\n"
    queue.submit("--", "true")
    with terminal(queue, "clear", "--yes") as screen:
        assert (screen.finish(), "[y/N]" in screen.text) == (0, False)
    assert {status for _, status, _ in job_states(queue)} <= {"CANCELLED", "FAILED", "COMPLETED"}


def test_down_and_restore_ask_when_several_jobs_are_affected(queue: Rota, tmp_path: Path) -> None:
    queue.run("clear")
    queue.run("resume")
    queue.set_global_size(2)
    running = [queue.submit("--", "sleep", "60") for _ in range(2)]
    for job in running:
        queue.wait_for_start(job)
    plan = queue.run("down", "--dry-run", "--kill", "--grace", "1s").lines
    assert plan[1:] == [f"would wait up to 1s for {job} (sleep 60), then kill it" for job in running]
    with terminal(queue, "down", "--kill", "--grace", "0s") as screen:
        screen.read_until("stop the scheduler while 2 jobs run? [y/N]")
        assert (
            f"{running[0]} (sleep 60) is running; if it does not end within the grace period, it is killed"
            in screen.text
        )
        screen.type("n\n")
        assert screen.finish() == 1
    assert queue.json("status")["running"] == 2
    queue.run("down", "--kill", "--grace", "0s")
    with terminal(queue, "restore", "--force", str(tmp_path / "backup")) as screen:
        screen.read_until("replace the database with its 7 jobs? [y/N]")
        screen.type("n\n")
        assert screen.finish() == 1
    queue.run("up")
    assert len(job_states(queue)) == 7


def test_restore_refuses_a_running_scheduler_before_the_question(queue: Rota, tmp_path: Path) -> None:
    with terminal(queue, "restore", "--force", str(tmp_path / "backup")) as screen:
        assert (screen.finish(), "[y/N]" in screen.text) == (4, False)
        assert "stop it with `rota down` first" in screen.text


def test_reservation_cancel_asks_before_it_ends_several_direct_executions(rota: Rota) -> None:
    rota.start()
    rota.run("pause")
    for name in ("one", "two"):
        assert rota.api("POST", "/api/reservations", {"name": name}).status == 201
    names = ["reservation-1", "reservation-2"]
    plan = ["would cancel reservation-1 (WAITING): one", "would cancel reservation-2 (WAITING): two"]
    assert rota.run("reservation", "cancel", *names, "--dry-run").lines == plan
    refused = rota.run("reservation", "cancel", names[0], "reservation-9", "--dry-run", code=3)
    assert (refused.lines, "no such reservation: reservation-9" in refused.err) == (plan[:1], True)
    assert rota.json("reservation", "cancel", names[0], "--dry-run") == {
        "dry_run": True,
        "reservations": [{"id": "reservation-1", "name": "one", "status": "WAITING"}],
    }
    with terminal(rota, "reservation", "cancel", *names) as screen:
        screen.read_until("cancel 2 direct executions? [y/N]")
        assert all(line in screen.text for line in plan)
        screen.type("n\n")
        assert screen.finish() == 1
    assert [item["id"] for item in rota.json("reservation", "list")["reservations"]] == names
    with terminal(rota, "reservation", "cancel", *names, "--yes") as screen:
        assert (screen.finish(), "[y/N]" in screen.text) == (0, False)
    assert rota.json("reservation", "list")["reservations"] == []
    assert "has already ended" not in rota.run("reservation", "cancel", names[0], "--dry-run").err


def test_cancel_and_clear_show_dependents_that_would_end(rota: Rota) -> None:
    rota.run("pause")
    first = rota.submit("--flow", "q", "--produces", "custom:review:1", "--", "true")
    rota.submit("--name", "second", "--after", first, "--", "true")
    rota.submit("--name", "third", "--after", "job-2", "--", "true")
    rota.submit("--name", "cleanup", "--after", f"{first}:failed", "--", "true")
    rota.submit("--name", "report", "--after", f"{first}:finished", "--", "true")
    rota.submit("--name", "consumer", "--needs", "custom:review:1", "--", "true")
    plan = [
        "would cancel job-1 (QUEUED): true",
        "would block job-2 (WAITING_ON_DEPS): second",
        "would skip job-4 (WAITING_ON_DEPS): cleanup",
        "would block job-6 (WAITING_ON_DEPS): consumer",
        "would block job-3 (WAITING_ON_DEPS): third",
    ]
    assert rota.run("cancel", first, "--dry-run").lines == plan
    assert rota.run("clear", "--flow", "q", "--dry-run").lines == plan
    outcomes = {job["id"]: job["outcome"] for job in rota.json("cancel", first, "--dry-run")["dependents"]}
    before = job_states(rota)
    with terminal(rota, "cancel", first) as screen:
        screen.read_until("cancel 1 job, which also ends 4 dependent jobs? [y/N]")
        screen.type("n\n")
        assert screen.finish() == 1
    assert job_states(rota) == before
    rota.run("cancel", first, "--yes")
    statuses = {job["id"]: job["status"] for job in rota.json("list", "--all")["jobs"]}
    assert {job: statuses[job] for job in outcomes} == outcomes
    assert statuses["job-5"] == "QUEUED"
