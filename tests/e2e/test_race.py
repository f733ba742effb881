"""Many at once on a home where nothing runs yet."""

from __future__ import annotations

from e2e.rig import Rota, Stage, eventually


def test_twenty_submits_make_one_scheduler_and_twenty_jobs(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: two of two racers both won a claim, 2–7 of eight; 17 workers started for 4 items."""
    commands = [rota.begin("submit", *stage.walk_on(f"job{number}")) for number in range(20)]
    said = [rota.end(command) for command in commands]
    assert [each.code for each in said] == [0] * 20, said
    assert sorted(each.out for each in said) == sorted(f"job-{number}\n" for number in range(1, 21))
    for number in range(1, 21):
        assert rota.ended(f"job-{number}")["status"] == "COMPLETED"
    lines = stage.heard()
    assert sorted(lines) == sorted(f"job{number} {act}" for number in range(20) for act in ("begins", "ends"))
    assert all(lines[at].split()[0] == lines[at + 1].split()[0] for at in range(0, 40, 2)), "one at a time"
    pid = rota.scheduler
    # Those who lost may still be on their way out.
    eventually(lambda: rota.schedulers() == [pid], what="one scheduler")
    assert (rota.home / "rota.log").read_text().count(f" serves {rota.home}\n") == 1


def test_eight_ups_agree_on_one(rota: Rota) -> None:
    """LESSONS Dispatch: two dispatcher threads after stop(timeout) and start()."""
    commands = [rota.begin("--json", "up") for _ in range(8)]
    said = [rota.end(command) for command in commands]
    assert [each.code for each in said] == [0] * 8, said
    pids = {each.json()["pid"] for each in said}
    assert len(pids) == 1
    eventually(lambda: set(rota.schedulers()) == pids, what="one scheduler")


def test_down_and_up_in_quick_succession(rota: Rota, stage: Stage) -> None:
    """Starters meet one that is just leaving: they wait for it and start the next."""
    rota.start()
    for number in range(3):
        stopping, submitting = rota.begin("down"), rota.begin("submit", *stage.walk_on(f"job{number}"))
        assert rota.end(stopping).code == 0
        said = rota.end(submitting)
        assert said.code == 0, said
        rota.wait(said.lines[0])
    assert len(stage.heard()) == 6
