"""`timeout`, `idle_timeout`, `skip_if` and `delay`, with durations short enough to wait for."""

from __future__ import annotations

from datetime import datetime, timedelta

from e2e.rig import Rota, Stage, lives


def test_a_timeout_ends_the_tree_as_a_failure(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.submit("--timeout", "400ms", *stage.actor("slow"))
    assert stage.hear() == ["slow begins"]
    pid = rota.running(job)["pid"]
    rota.wait(job, code=124)
    assert not lives(pid)
    shown = rota.show(job)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 124, "timed out after 400ms")
    assert shown["run"]["error"].startswith("timed out after 400ms")
    behind = rota.post(stage.walk_on("behind"), after=[{"job": job, "policy": "failed"}])
    assert rota.ended(behind)["status"] == "COMPLETED"


def test_silence_has_a_timeout_of_its_own(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: alive but stuck for 12.5 h."""
    rota.start()
    rota.set_global(-1)
    # Longer than its limit in all, never silent for as long as that.
    chatty = rota.submit("--idle-timeout", "1s", "--", "sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.4; done")
    silent = rota.submit("--idle-timeout", "500ms", *stage.actor("silent"))
    rota.wait(silent, code=124)
    assert rota.show(silent)["reason"] == "timed out after 500ms without output"
    rota.wait(chatty)


def test_skip_if_decides_after_the_claim_in_the_jobs_surroundings(rota: Rota, stage: Stage) -> None:
    (rota.cwd / "marker").write_text("")
    skipped = rota.submit(
        "--skip-if", "test -e marker && echo $WHY && echo more", *stage.walk_on("skipped"), env={"WHY": "done before"}
    )
    rota.wait(skipped)
    shown = rota.show(skipped)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("SKIPPED", 0, "done before")
    assert shown["run"]["status"] == "SKIPPED"
    ran = rota.submit("--skip-if", "echo no; exit 3", *stage.walk_on("ran"))
    behind = rota.submit("--after", skipped, *stage.walk_on("behind"))
    stuck = rota.submit("--skip-if", f"read x < {stage.gate('never')}", "--timeout", "300ms", *stage.walk_on("stuck"))
    rota.wait(ran, behind)
    rota.wait(stuck, code=124)
    assert stage.heard() == ["ran begins", "ran ends", "behind begins", "behind ends"]
    assert rota.ask("logs", ran).out == "", "what skip_if says is not the job's output"


def test_a_delayed_job_waits_its_time_and_holds_nobody_up(rota: Rota, stage: Stage) -> None:
    delayed = rota.submit("--delay", "1200ms", *stage.walk_on("delayed"))
    shown = rota.show(delayed)
    assert (shown["status"], shown["wait"]["kind"]) == ("QUEUED", "delay")
    not_before = datetime.fromisoformat(shown["not_before"])
    assert not_before - datetime.fromisoformat(shown["created_at"]) == timedelta(seconds=1.2)
    assert shown["wait"]["detail"].startswith("not before 20")
    assert rota.status()["waiting"] == {"delay": 1}
    assert f"{delayed}: not before" in rota.status()["idle_because"]
    quick = rota.submit(*stage.walk_on("quick"))
    rota.wait(quick, delayed)
    assert stage.heard() == ["quick begins", "quick ends", "delayed begins", "delayed ends"]
    started = datetime.fromisoformat(rota.show(delayed)["started_at"])
    assert not_before <= started < not_before + timedelta(seconds=10)
