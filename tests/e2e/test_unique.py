"""Unique keys with real commands: who comes second is told which job has the key."""

from __future__ import annotations

from e2e.rig import Rota, Stage, eventually


def test_of_many_that_race_for_a_key_one_is_submitted(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: two of two racers both won a claim, 2–7 of eight. Here the home is fresh as well."""
    rota.submit(*stage.actor("busy"))
    commands = [rota.begin("--json", "submit", "--unique", "card", *stage.walk_on(f"job{n}")) for n in range(10)]
    said = [rota.end(command) for command in commands]
    assert [each.code for each in said] == [0] * 10, said
    answers = [each.json() for each in said]
    assert sorted(each["result"] for each in answers) == ["already_active"] * 9 + ["submitted"]
    assert {each["job"]["id"] for each in answers} == {"job-2"}
    assert all(set(each) == {"result", "job", "warning"} for each in answers)
    assert len(rota.jobs()) == 2
    stage.release("busy")
    rota.wait("job-2")
    stage.heard()
    assert rota.submit("--unique", "card", "--", "true") == "job-3"


def test_who_follows_a_key_that_is_taken_follows_the_job_that_has_it(rota: Rota) -> None:
    rota.submit("--unique", "card", "--delay", "1s", "--", "sh", "-c", "echo mine; exit 7")
    said = rota.ask("submit", "--unique", "card", "--follow", "--", "echo", "never", code=7)
    assert said.out == "mine\n"
    assert "already active as job-1" in said.err


def test_a_key_is_kept_over_backoff_and_a_crash_of_the_scheduler(rota: Rota) -> None:
    rota.ask("config", "set", "retry.base", "1h")
    job = rota.submit("--unique", "card", "--retries", "1", "--", "false")
    eventually(lambda: len(rota.jobs()) == 2, what="the retry")
    rota.crash()
    said = rota.ask("submit", "--unique", "card", "--", "true")
    assert said.out == "job-2\n", "the retry that waits"
    rota.ask("cancel", job)
    assert rota.submit("--unique", "card", "--", "sleep", "60") == "job-3"
    for verb in ("retry", "rewind"):
        assert "its unique key 'card' is job-3's now" in rota.ask(verb, job, code=4).err
