"""`timeout`, `idle_timeout`, `skip_if` and `delay` with short durations."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.e2e.rig import ChildControl, Rota, is_alive


def test_timeout_kills_the_process_tree_and_fails_the_job(rota: Rota, children: ChildControl) -> None:
    rota.start()
    script = f"echo $$ > shell; sleep 1000 & echo $! > child; read x < {children.make_gate('slow')}"
    job = rota.submit("--timeout", "1s", "--", "sh", "-c", script)
    rota.wait(job, code=124)
    for name in ("shell", "child"):
        assert not is_alive(int((rota.cwd / name).read_text()))
    shown = rota.show(job)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 124, "timed out after 1s")
    assert shown["run"]["error"].startswith("timed out after 1s")
    dependent = rota.post_job(children.immediate("behind"), after=[{"job": job, "policy": "failed"}])
    assert rota.wait_for_end(dependent)["status"] == "COMPLETED"


def test_idle_timeout_fails_a_job_without_output(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: alive but stuck for 12.5 h."""
    rota.start()
    rota.set_global_size(-1)
    # Runs longer than its idle timeout, but never without output for that long.
    chatty = rota.submit("--idle-timeout", "1s", "--", "sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.4; done")
    silent = rota.submit("--idle-timeout", "500ms", *children.gated("silent"))
    rota.wait(silent, code=124)
    assert rota.show(silent)["reason"] == "timed out after 500ms without output"
    rota.wait(chatty)


def test_skip_if_runs_after_the_claim_in_the_jobs_environment(rota: Rota, children: ChildControl) -> None:
    (rota.cwd / "marker").write_text("")
    skipped = rota.submit(
        "--skip-if",
        "test -e marker && echo $WHY && echo more",
        *children.immediate("skipped"),
        env={"WHY": "done before"},
    )
    rota.wait(skipped)
    shown = rota.show(skipped)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("SKIPPED", 0, "done before")
    assert shown["run"]["status"] == "SKIPPED"
    ran = rota.submit("--skip-if", "echo no; exit 3", *children.immediate("ran"))
    dependent = rota.submit("--after", skipped, *children.immediate("behind"))
    stuck = rota.submit(
        "--skip-if", f"read x < {children.make_gate('never')}", "--timeout", "300ms", *children.immediate("stuck")
    )
    rota.wait(ran, dependent)
    rota.wait(stuck, code=124)
    assert children.read_available() == ["ran begins", "ran ends", "behind begins", "behind ends"]
    assert rota.run("logs", ran).out == "", "the output of skip_if is not the output of the job"


def test_delayed_job_waits_without_blocking_others(rota: Rota, children: ChildControl) -> None:
    delayed = rota.submit("--delay", "1h", *children.immediate("delayed"))
    shown = rota.show(delayed)
    assert (shown["status"], shown["wait"]["kind"]) == ("QUEUED", "delay")
    not_before = datetime.fromisoformat(shown["not_before"])
    assert not_before - datetime.fromisoformat(shown["created_at"]) == timedelta(hours=1)
    assert shown["wait"]["detail"].startswith("not before 20")
    assert rota.status()["waiting"] == {"delay": 1}
    assert f"{delayed}: not before" in rota.status()["idle_reason"]
    rota.wait(rota.submit(*children.immediate("quick")))
    rota.run("cancel", delayed)
    short = rota.submit("--delay", "1200ms", *children.immediate("brief"))
    rota.wait(short)
    assert children.read_available() == ["quick begins", "quick ends", "brief begins", "brief ends"]
    shown = rota.show(short)
    not_before, started = (datetime.fromisoformat(shown[key]) for key in ("not_before", "started_at"))
    assert not_before <= started < not_before + timedelta(seconds=10)
