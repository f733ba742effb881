"""Unique keys with real commands: a second submit gets the job that holds the key."""

from __future__ import annotations

from tests.e2e.rig import ChildControl, Rota, eventually


def test_concurrent_submits_of_a_key_create_one_job(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: two of two racers both won a claim, 2–7 of eight. The home is new."""
    rota.submit(*children.gated("busy"))
    commands = [rota.spawn("--json", "submit", "--unique", "card", *children.immediate(f"job{n}")) for n in range(10)]
    results = [rota.finish(command) for command in commands]
    assert [result.code for result in results] == [0] * 10, results
    responses = [result.json() for result in results]
    assert sorted(response["result"] for response in responses) == ["already_active"] * 9 + ["submitted"]
    assert {response["job"]["id"] for response in responses} == {"job-2"}
    assert all(set(response) == {"result", "job", "warning"} for response in responses)
    assert len(rota.jobs()) == 2
    children.release("busy")
    rota.wait("job-2")
    children.read_available()
    assert rota.submit("--unique", "card", "--", "true") == "job-3"


def test_follow_with_an_active_key_follows_its_job(rota: Rota) -> None:
    rota.submit("--unique", "card", "--delay", "1s", "--", "sh", "-c", "echo mine; exit 7")
    output = rota.run("submit", "--unique", "card", "--follow", "--", "echo", "never", code=7)
    assert output.out == "mine\n"
    assert "already active as job-1" in output.err


def test_key_is_held_during_backoff_and_after_a_crash(rota: Rota) -> None:
    rota.run("config", "set", "retry.base", "1h")
    job = rota.submit("--unique", "card", "--retries", "1", "--", "false")
    eventually(lambda: len(rota.jobs()) == 2, description="the retry")
    rota.crash()
    output = rota.run("submit", "--unique", "card", "--", "true")
    assert output.out == "job-2\n", "the waiting retry holds the key"
    rota.run("cancel", job)
    assert rota.submit("--unique", "card", "--", "sleep", "60") == "job-3"
    for verb in ("retry", "rewind"):
        assert "its unique key 'card' is held by job-3" in rota.run(verb, job, code=4).err
