"""Recorded errors of failed jobs, and jobs that cannot be started."""

from __future__ import annotations

import signal
from functools import partial

from tests.e2e.direct_client import DirectClient
from tests.e2e.rig import ChildControl, Rota, eventually


def test_error_contains_exit_code_and_tail_of_stderr(rota: Rota) -> None:
    """LESSONS Retry: errors were empty strings."""
    rota.start()
    script = 'i=0; while [ $i -lt 500 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 3'
    shown = rota.wait_for_end(rota.post_job(["sh", "-c", script]))
    headline, *tail = shown["run"]["error"].splitlines()
    assert headline == "exit code 3"
    assert tail == [f"line {number}" for number in range(480, 500)]
    for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM):
        shown = rota.wait_for_end(rota.post_job(["sh", "-c", f"echo last words >&2; kill -{int(number)} $$"]))
        assert shown["exit_code"] == 128 + number
        assert shown["run"]["error"] == f"killed by {number.name}\nlast words\n"
    assert rota.wait_for_end(rota.post_job(["false"]))["run"]["error"] == "exit code 1"
    invalid_utf8 = rota.wait_for_end(rota.post_job(["sh", "-c", r"printf 'bad \377 byte\n' >&2; exit 1"]))
    assert "bad � byte" in invalid_utf8["run"]["error"]


def test_missing_program_fails_alone(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: one spawn failure stopped the tick for all."""
    rota.start()
    output = rota.run("submit", "--", "/no/such/program", "--flag")
    assert (output.out, output.err) == ("job-1\n", "rota: warning: program not found (yet): /no/such/program\n")
    other = rota.post_job(children.immediate("other"))
    assert rota.wait_for_end(other)["status"] == "COMPLETED"
    shown = rota.show("job-1")
    assert (shown["status"], shown["dispatch_failures"], shown["run"]) == ("QUEUED", 1, None)
    assert shown["last_failure"] == "program not found: /no/such/program"
    assert (shown["wait"]["kind"], shown["wait"]["detail"]) == (
        "delay",
        f"could not be started: program not found: /no/such/program; next try at {shown['not_before']}",
    )
    assert shown["wait"]["detail"] in rota.run("list").out
    assert rota.run("why", "job-1").out == f"job-1 is QUEUED: {shown['wait']['detail']}\n"
    behind = rota.post_job(children.immediate("behind"), after=[{"job": "job-1", "policy": "failed"}])
    rota.set_start_delays("10ms")
    rota.run("breaker", "reset", "job-1")
    rota.wait("job-1", code=1)
    shown = rota.show("job-1")
    assert (shown["status"], shown["dispatch_failures"], shown["exit_code"]) == ("FAILED", 3, 1)
    assert shown["reason"] == "circuit-broken: program not found: /no/such/program"
    assert shown["run"] is None, "a job that never ran has no run"
    assert rota.wait_for_end(behind)["status"] == "COMPLETED"


def test_predecessor_may_build_the_program(rota: Rota) -> None:
    """LESSONS Dispatch: accepted silently and could never run. Here the submit warns, and the job runs."""
    build = "printf '#!/bin/sh\\necho built\\n' > tool; chmod +x tool"
    builder = rota.submit("--", "sh", "-c", build)
    output = rota.run("submit", "--after", builder, "--", "./tool")
    user_job = output.lines[0]
    rota.wait(user_job)
    assert rota.run("logs", user_job).out == "built\n"
    assert rota.show(user_job)["dispatch_failures"] == 0


def test_other_start_failures_name_the_cause(rota: Rota) -> None:
    """Each message says what is wrong. A valid job is not affected by simultaneous failures."""
    rota.start()
    rota.set_global_size(-1)
    rota.set_start_delays("10ms")
    (rota.cwd / "plain").write_text("just text")
    (rota.cwd / "shebang").write_text("#!/no/such/interpreter\n")
    (rota.cwd / "shebang").chmod(0o755)
    (rota.cwd / "noexec").write_text("\x00\x01")
    (rota.cwd / "noexec").chmod(0o755)
    texts = {
        rota.submit("--", "./plain"): "permission denied: ./plain is not executable",
        rota.submit(
            "--", "./shebang"
        ): "interpreter not found: the first line of ./shebang names a program that does not exist",
        rota.submit("--", "./noexec"): "not a program: ./noexec has no #! line and is not a binary for this machine",
        rota.submit("--cwd", "/no/such/place", "--", "true"): "working directory does not exist: /no/such/place",
    }
    rota.wait(rota.post_job(["true"]))
    rota.wait(*texts, code=1)
    assert {job: rota.show(job)["reason"] for job in texts} == {
        job: f"circuit-broken: {text}" for job, text in texts.items()
    }


def test_unusable_jobs_directory_holds_every_start(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(2)
    jobs = rota.home / "jobs"
    jobs.rename(rota.home / "aside")
    jobs.write_text("a file in its place")
    waiting = [rota.post_job(children.immediate(name)) for name in ("one", "two", "three")]
    reason = f"{jobs} cannot be used: Not a directory; no jobs start until it is usable"
    eventually(lambda: rota.status()["errors"], description="the error in status")
    assert rota.status()["errors"] == [reason]
    result = rota.api("GET", "/ready")
    assert (result.status, result.json()["reasons"]) == (503, [reason])
    assert f"error          {reason}\n" in rota.run("status").out
    assert reason in rota.run("doctor").out
    for job in waiting:
        assert rota.run("why", job).out == f"{job} is QUEUED: {reason}\n"
        assert rota.show(job)["dispatch_failures"] == 0
    for options, output in ((["--dry-run"], "would start 0"), ([], "started 0")):
        assert rota.run("tick", *options).err.startswith(f"rota: {output}: {reason}; ")
    rota.crash()
    rota.start()
    eventually(lambda: rota.status()["errors"] == [reason], description="the error after a restart")
    assert children.read_available() == []

    jobs.unlink()
    (rota.home / "aside").rename(jobs)
    rota.wait(*waiting)
    assert len(children.read_available()) == 6, "each job ran once"
    assert rota.status()["errors"] == []
    assert rota.api("GET", "/ready").status == 200


def test_unusable_jobs_directory_holds_direct_executions(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(2)
    jobs = rota.home / "jobs"
    jobs.rename(rota.home / "aside")
    jobs.write_text("a file in its place")
    job = rota.post_job(children.immediate("job"))
    eventually(lambda: rota.status()["errors"], description="the error in status")
    direct = DirectClient(rota, *children.immediate("direct"))
    direct.wait_for_stderr("no jobs start until it is usable")
    requeued = partial(rota.run, "events", "--kind", "reservation.requeued")
    eventually(lambda: requeued().out.count("requeued") > 1, description="trials")
    assert children.read_available() == []
    jobs.unlink()
    (rota.home / "aside").rename(jobs)
    assert direct.finish().code == 0
    rota.wait(job)
    assert sorted(children.read_available()) == ["direct begins", "direct ends", "job begins", "job ends"]


def test_unusable_reservations_directory_is_reported_once_and_holds_the_start(
    rota: Rota, children: ChildControl
) -> None:
    rota.start()
    directory = rota.home / "reservations"
    directory.rename(rota.home / "aside")
    directory.write_text("a file in its place")
    direct = DirectClient(rota, *children.immediate("direct"))
    direct.wait_for_stderr("no jobs start until it is usable")
    eventually(
        lambda: rota.run("events", "--kind", "reservation.requeued").out.count("requeued") > 2, description="attempts"
    )
    directory.unlink()
    (rota.home / "aside").rename(directory)
    output = direct.finish()
    reason = f"{directory} cannot be used: Not a directory; no jobs start until it is usable"
    assert output.err.splitlines() == [f"rota: reservation-1: {reason}", "rota: reservation-1 starts"]
    assert children.read_available() == ["direct begins", "direct ends"]
