"""Locks, observed from the children that hold them."""

from __future__ import annotations

from tests.e2e.rig import ChildControl, Rota


def test_exclusive_holders_exclude_each_other_and_shared_ones_overlap(rota: Rota, children: ChildControl) -> None:
    rota.run("pool", "set", "global", "-1")
    writer = rota.submit("--lock", "repo", *children.gated("writer"))
    readers = [rota.submit("--lock", "repo:shared", *children.gated(name)) for name in ("reader1", "reader2")]
    second = rota.submit("--lock", "repo", *children.gated("second"))
    unrelated = rota.submit("--lock", "other", *children.immediate("stranger"))
    rota.wait(unrelated)
    assert sorted(children.read_lines(3)) == ["stranger begins", "stranger ends", "writer begins"]
    waiting = rota.show(readers[0])
    assert (waiting["status"], waiting["wait"]["kind"], waiting["wait"]["detail"]) == (
        "WAITING_ON_LOCKS",
        "locks",
        "waiting on locks",
    )
    assert (
        rota.run("why", readers[0]).out
        == f"{readers[0]} is WAITING_ON_LOCKS: waiting on locks: repo (held by {writer})\n"
    )
    children.release("writer")
    assert children.read_lines() == ["writer ends"]
    assert sorted(children.read_lines(2)) == ["reader1 begins", "reader2 begins"], "both at once"
    late = rota.submit("--lock", "repo:shared", *children.immediate("late"))
    assert rota.show(late)["status"] == "WAITING_ON_LOCKS", "a shared request must not pass an earlier exclusive one"
    children.release("reader1")
    assert children.read_lines() == ["reader1 ends"]
    children.release("reader2")
    assert children.read_lines(2) == ["reader2 ends", "second begins"], "starts only after both readers end"
    children.release("second")
    rota.wait(*readers, second, late)
    assert children.read_available() == ["second ends", "late begins", "late ends"]
    assert rota.show(late)["waited_on"] == ["locks"]


def test_lock_is_released_however_its_holder_ends(rota: Rota, children: ChildControl) -> None:
    """LESSONS Waiting: dead holder blocks its lock for ever."""
    rota.set_start_delays("10ms")
    rota.run("pool", "set", "global", "-1")
    killed = rota.submit("--lock", "repo", "--", "sh", "-c", "kill -9 $$")
    missing = rota.submit("--lock", "repo", "--", "/no/such/program")
    cancelled = rota.submit("--lock", "repo", *children.gated("cancelled"))
    after = rota.submit("--lock", "repo", *children.immediate("after"))
    assert children.read_lines() == ["cancelled begins"]
    rota.run("cancel", cancelled)
    rota.wait(after)
    rota.wait(killed, code=137)
    rota.wait(missing, code=1)
