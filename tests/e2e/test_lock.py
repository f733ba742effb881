"""§4: locks, seen from the children that hold them."""

from __future__ import annotations

from e2e.rig import Rota, Stage


def test_exclusive_holders_never_meet_and_shared_ones_do(rota: Rota, stage: Stage) -> None:
    rota.ask("pool", "set", "global", "-1")
    writer = rota.submit("--lock", "repo", *stage.actor("writer"))
    readers = [rota.submit("--lock", "repo:shared", *stage.actor(name)) for name in ("reader1", "reader2")]
    second = rota.submit("--lock", "repo", *stage.actor("second"))
    stranger = rota.submit("--lock", "other", *stage.walk_on("stranger"))
    rota.wait(stranger)
    assert sorted(stage.hear(3)) == ["stranger begins", "stranger ends", "writer begins"]
    waiting = rota.show(readers[0])
    assert (waiting["status"], waiting["wait"]["kind"], waiting["wait"]["detail"]) == (
        "WAITING_ON_LOCKS",
        "locks",
        "waiting on locks",
    )
    assert (
        rota.ask("why", readers[0]).out
        == f"{readers[0]} is WAITING_ON_LOCKS: waiting on locks: repo (held by {writer})\n"
    )
    stage.release("writer")
    assert stage.hear() == ["writer ends"]
    assert sorted(stage.hear(2)) == ["reader1 begins", "reader2 begins"], "together"
    late = rota.submit("--lock", "repo:shared", *stage.walk_on("late"))
    assert rota.show(late)["status"] == "WAITING_ON_LOCKS", "it must not pass the exclusive one before it"
    stage.release("reader1")
    assert stage.hear() == ["reader1 ends"]
    stage.release("reader2")
    assert stage.hear(2) == ["reader2 ends", "second begins"], "not before both are gone"
    stage.release("second")
    rota.wait(*readers, second, late)
    assert stage.heard() == ["second ends", "late begins", "late ends"]
    assert rota.show(late)["waited_on"] == ["locks"]


def test_a_lock_ends_with_its_holder_however_it_ends(rota: Rota, stage: Stage) -> None:
    """LESSONS Waiting: dead holder blocks its lock for ever."""
    rota.ask("pool", "set", "global", "-1")
    killed = rota.submit("--lock", "repo", "--", "sh", "-c", "kill -9 $$")
    missing = rota.submit("--lock", "repo", "--", "/no/such/program")
    cancelled = rota.submit("--lock", "repo", *stage.actor("cancelled"))
    after = rota.submit("--lock", "repo", *stage.walk_on("after"))
    assert stage.hear() == ["cancelled begins"]
    rota.ask("cancel", cancelled)
    rota.wait(after)
    rota.wait(killed, code=137)
    rota.wait(missing, code=1)
