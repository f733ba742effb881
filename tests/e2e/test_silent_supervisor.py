"""A suspended supervisor, or one with hanging starts: it is reported, and nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually, kill


@pytest.fixture
def short_timeout_rota(rota: Rota) -> Rota:
    """A scheduler that treats a supervisor as silent after one second."""
    rota.run("config", "set", "scheduler.start_timeout", "1s")
    rota.start()
    return rota


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """Suspend the process, like Ctrl-Z, a debugger or a frozen container."""
    os.kill(pid, signal.SIGSTOP)
    eventually(
        lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", description="suspended"
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def wait_until_silent(rota: Rota) -> Any:
    return eventually(lambda: rota.status()["supervisor_silent_since"], description="a silent supervisor")


def test_suspended_supervisor_is_named_and_starts_the_job_later(
    short_timeout_rota: Rota, children: ChildControl
) -> None:
    rota, supervisor = short_timeout_rota, short_timeout_rota.supervisor_pid
    rota.set_global_size(2)
    with suspended(supervisor):
        job = rota.post_job(children.immediate("once"))
        since = wait_until_silent(rota)
        other = rota.post_job(children.immediate("other"))
        (text,) = rota.status()["errors"]
        assert text.startswith(
            f"the supervisor (pid {supervisor}) has been silent since {since[:10]} {since[11:19]} UTC"
        )
        assert f"has not confirmed the start of {job}; nothing more is started until it answers" in text
        assert text in rota.run("status").out
        assert rota.run("why", job).out.endswith(f"{text}\n")
        assert rota.run("why", other).out == f"{other} is QUEUED: {text}\n"
        doctor = rota.run("doctor", code=1).out
        assert f"fail  supervisor  pid {supervisor} has not answered since {since}" in doctor
        ready = rota.api("GET", "/ready")
        assert (ready.status, ready.json()["reasons"]) == (503, [text])
        assert rota.show(job)["status"] == "RUNNING"
    assert {rota.wait_for_end(job_id)["status"] for job_id in (job, other)} == {"COMPLETED"}
    assert rota.show(job)["dispatch_failures"] == 0
    assert sorted(children.read_available()) == ["once begins", "once ends", "other begins", "other ends"]
    assert rota.api("GET", "/ready").status == 200
    assert rota.status()["supervisor_silent_since"] is None


def test_killed_silent_supervisor_is_replaced_and_the_job_runs_once(
    short_timeout_rota: Rota, children: ChildControl
) -> None:
    rota, supervisor = short_timeout_rota, short_timeout_rota.supervisor_pid
    with suspended(supervisor):
        job = rota.post_job(children.immediate("once"))
        wait_until_silent(rota)
        kill(supervisor)
    assert rota.wait_while(job, "RUNNING")["status"] == "QUEUED"
    shown = rota.show(job)
    assert (shown["dispatch_failures"], shown["last_failure"]) == (
        1,
        "the supervisor did not answer, and never started it",
    )
    rota.run("breaker", "reset", job)
    assert rota.wait_for_end(job)["status"] == "COMPLETED"
    assert children.read_available() == ["once begins", "once ends"]


def test_cancel_and_down_report_a_silent_supervisor(short_timeout_rota: Rota, children: ChildControl) -> None:
    rota, supervisor = short_timeout_rota, short_timeout_rota.supervisor_pid
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(job)
    with suspended(supervisor):
        wait_until_silent(rota)
        (text,) = rota.status()["errors"]
        cancelling = rota.spawn("cancel", job)
        assert cancelling.stderr is not None
        assert cancelling.stderr.readline().decode() == f"rota: waiting for {job} to end; {text}\n"
        assert "a stop was requested (cancelled by " in rota.run("why", job).out
        stopping = rota.spawn("down", "--kill", "--grace", "0s")
        assert stopping.stderr is not None
        first = stopping.stderr.readline().decode()
        assert first.startswith(f"rota: stopping; waiting for {job} (")
        assert first.endswith(f"; {text}\n")
    assert rota.finish(stopping).err.endswith("rota: stopped\n")
    rota.finish(cancelling)
    rota.start()
    assert rota.show(job)["status"] == "CANCELLED"


def test_down_explains_a_remaining_supervisor(short_timeout_rota: Rota, children: ChildControl) -> None:
    rota, supervisor = short_timeout_rota, short_timeout_rota.supervisor_pid
    with suspended(supervisor):
        job = rota.post_job(children.immediate("once"))
        wait_until_silent(rota)
        output = rota.run("down", "--grace", "600ms", code=1)
        assert "the scheduler has stopped" in output.err
        assert f"left running: {job} (" in output.err
        assert f"`kill -CONT {supervisor}`" in output.err.splitlines()[-1]
    assert rota.wait(job).code == 0
    assert children.read_available() == ["once begins", "once ends"]


def test_new_scheduler_works_with_a_silent_supervisor(short_timeout_rota: Rota, children: ChildControl) -> None:
    rota, supervisor = short_timeout_rota, short_timeout_rota.supervisor_pid
    with suspended(supervisor):
        job = rota.post_job(children.immediate("once"))
        rota.crash()
        rota.start()
        assert rota.supervisor_pid == supervisor
        since = wait_until_silent(rota)
        message = (
            f"the supervisor (pid {supervisor}) has been silent since at least {since[:10]} {since[11:19]} UTC;"
            f" nothing more is started until it answers: `kill -CONT {supervisor}`"
        )
        assert rota.status()["errors"][0].startswith(message)
        others = [rota.post_job(children.immediate(name)) for name in ("second", "third")]
        assert message in rota.run("why", job).out
        assert rota.api("GET", "/ready").status == 503
    assert {rota.wait_for_end(job_id)["status"] for job_id in (job, *others)} == {"COMPLETED"}
    assert children.read_available() == [
        f"{name} {act}" for name in ("once", "second", "third") for act in ("begins", "ends")
    ]


def test_supervisor_with_hanging_starts_is_silent(short_timeout_rota: Rota, children: ChildControl) -> None:
    """The supervisor answers, but never confirms a start, as with an unavailable mount."""
    rota = short_timeout_rota
    rota.set_global_size(-1)
    logs = [rota.home / f"jobs/{number}/stdout.log" for number in (1, 2)]
    for log in logs:
        log.parent.mkdir()
        os.mkfifo(log)
    stuck = [rota.post_job(children.immediate(name)) for name in ("first", "second")]
    wait_until_silent(rota)
    third = rota.post_job(children.immediate("third"))
    assert "has not confirmed the start of job-1, job-2;" in rota.run("why", third).out
    assert rota.show(third)["status"] == "QUEUED"
    readers = [os.open(log, os.O_RDONLY | os.O_NONBLOCK) for log in logs]
    assert {rota.wait_for_end(job)["status"] for job in (*stuck, third)} == {"COMPLETED"}
    for reader in readers:
        os.close(reader)
    assert sorted(children.read_available())[::2] == ["first begins", "second begins", "third begins"]
