"""What is kept of a failure, and what happens when a child cannot even be started."""

from __future__ import annotations

import signal

from e2e.rig import Rota, Stage


def test_the_error_has_the_code_and_the_end_of_stderr(rota: Rota) -> None:
    """LESSONS Retry: errors were empty strings."""
    rota.start()
    script = 'i=0; while [ $i -lt 500 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 3'
    shown = rota.ended(rota.post(["sh", "-c", script]))
    first, *tail = shown["run"]["error"].splitlines()
    assert first == "exit code 3"
    assert tail == [f"line {number}" for number in range(480, 500)]
    for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM):
        shown = rota.ended(rota.post(["sh", "-c", f"echo last words >&2; kill -{int(number)} $$"]))
        assert shown["exit_code"] == 128 + number
        assert shown["run"]["error"] == f"killed by {number.name}\nlast words\n"
    assert rota.ended(rota.post(["false"]))["run"]["error"] == "exit code 1"
    binary = rota.ended(rota.post(["sh", "-c", r"printf 'bad \377 byte\n' >&2; exit 1"]))
    assert "bad � byte" in binary["run"]["error"]


def test_a_program_that_is_not_there_fails_alone(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: one spawn failure stopped the tick for all."""
    rota.start()
    said = rota.ask("submit", "--", "/no/such/program", "--flag")
    assert (said.out, said.err) == ("job-1\n", "rota: warning: program not found (yet): /no/such/program\n")
    other = rota.post(stage.walk_on("other"))
    assert rota.ended(other)["status"] == "COMPLETED"
    shown = rota.show("job-1")
    assert (shown["status"], shown["dispatch_failures"], shown["run"]) == ("QUEUED", 1, None)
    assert shown["last_failure"] == "program not found: /no/such/program"
    assert shown["wait"]["kind"] == "delay"
    behind = rota.post(stage.walk_on("behind"), after=[{"job": "job-1", "policy": "failed"}])
    rota.wait("job-1", code=1)
    shown = rota.show("job-1")
    assert (shown["status"], shown["dispatch_failures"], shown["exit_code"]) == ("FAILED", 3, 1)
    assert shown["reason"] == "circuit-broken: program not found: /no/such/program"
    assert shown["run"] is None, "what never ran has no run"
    assert rota.ended(behind)["status"] == "COMPLETED"


def test_a_predecessor_may_build_the_program(rota: Rota) -> None:
    """LESSONS Dispatch: accepted silently and could never run; here it is said, and then it can."""
    build = "printf '#!/bin/sh\\necho built\\n' > tool; chmod +x tool"
    builder = rota.submit("--", "sh", "-c", build)
    said = rota.ask("submit", "--after", builder, "--", "./tool")
    user = said.lines[0]
    rota.wait(user)
    assert rota.ask("logs", user).out == "built\n"
    assert rota.show(user)["dispatch_failures"] == 0


def test_every_other_way_not_to_start(rota: Rota) -> None:
    """Each says what to do about it; all of them fail at the same time, and a good one among them is not harmed."""
    rota.start()
    rota.set_global(-1)
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
    rota.wait(rota.post(["true"]))
    rota.wait(*texts, code=1)
    assert {job: rota.show(job)["reason"] for job in texts} == {
        job: f"circuit-broken: {text}" for job, text in texts.items()
    }
