"""Ticks by hand and by the clock: what they start, what a dry run says of them, and how far apart starts come."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from harness import Raw, Scheduler
from rota.command.tick import tick
from rota.core.fact import Head
from rota.core.status import Status
from rota.engine import dispatch
from rota.engine.work import Request
from rota.errors import StorageFull
from rota.executor.port import Account, Accounts, FailedToStart, Lost
from rota.ids import JobId, show_job
from rota.view.job import just_stored
from rota.view.status import status
from rota.wire.job import WaitForm

SCHEMA = files("rota.store.migrations") / "0001_spine.sql"
TABLES = [*re.findall(r"CREATE TABLE (\w+)", SCHEMA.read_text()), "meta"]


def names(jobs: Sequence[JobId]) -> list[str]:
    return [show_job(job) for job in jobs]


def everything(raw: Raw) -> dict[str, list[tuple[Any, ...]]]:
    return {table: sorted(raw(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


def queued(scheduler: Scheduler, count: int, **fields: Any) -> list[JobId]:
    """Jobs that stand ready because nobody may start them yet."""
    return [scheduler.submit(**fields) for _ in range(count)]


@pytest.fixture
def manual(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Only ticks by hand start anything, and room is for all."""
    scheduler = make_scheduler(**{"global": -1, "flow__*": -1})
    scheduler.configure(heartbeat="manual")
    return scheduler


# By hand.


def test_a_tick_says_what_it_started_and_what_bound_it(manual: Scheduler) -> None:
    jobs = queued(manual, 5)
    assert manual.started() == []
    assert manual.tick(2) == {"dispatched": names(jobs[:2]), "would_dispatch": [], "skipped": 3, "reason": "batch"}
    assert manual.tick() == {"dispatched": names(jobs[2:3]), "would_dispatch": [], "skipped": 2, "reason": "batch"}
    assert manual.tick(9) == {"dispatched": names(jobs[3:]), "would_dispatch": [], "skipped": 0, "reason": "ready"}
    assert manual.tick() == {"dispatched": [], "would_dispatch": [], "skipped": 0, "reason": "none"}


def test_a_batch_may_be_larger_than_what_one_snapshot_usually_shows(manual: Scheduler) -> None:
    """More jobs of a lane, and more lanes."""
    jobs = queued(manual, 150) + [manual.submit(target=f"t{n}") for n in range(60)]
    assert manual.dry_run(205)["would_dispatch"] == names(jobs[:205])
    assert manual.tick(205)["dispatched"] == names(jobs[:205])
    assert manual.started() == jobs[:205]


def test_ticks_that_come_together_are_one(manual: Scheduler) -> None:
    jobs = queued(manual, 5)
    act = partial(tick, sighting=manual.see_outside())
    manual.engine.turn([Request(partial(act, batch=n), lambda _: None) for n in (1, 3, 2)])
    assert manual.started() == jobs[:3]


def test_in_the_usual_mode_a_tick_leaves_nothing_to_the_next(scheduler: Scheduler) -> None:
    running, waiting = queued(scheduler, 2)
    assert scheduler.tick() == {"dispatched": [], "would_dispatch": [], "skipped": 1, "reason": "capacity"}
    scheduler.end(running)
    assert scheduler.started() == [running, waiting]


def test_what_is_held_is_not_counted(manual: Scheduler, raw: Raw) -> None:
    queued(manual, 2, flow="a")
    free = manual.submit()
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('flow/a', 'ann', 0)")
    assert manual.tick(9) == {"dispatched": names([free]), "would_dispatch": [], "skipped": 0, "reason": "ready"}


def test_while_nothing_can_be_started_that_is_no_lack_of_work(manual: Scheduler) -> None:
    queued(manual, 2)
    manual.engine.is_draining = True
    assert manual.tick() == {"dispatched": [], "would_dispatch": [], "skipped": 2, "reason": "capacity"}


# The dry run.


def _submit_some(scheduler: Scheduler) -> None:
    scheduler.set_pools(resource__gpu=2)
    first = scheduler.submit(locks=["repo"], priority=1)
    scheduler.submit(locks=["repo"])
    scheduler.submit(after=[first])
    scheduler.submit(pools={"resource/gpu": 2})
    scheduler.submit(pools={"resource/gpu": 1})
    scheduler.submit(delay="1s", priority=9)


def test_a_dry_run_says_what_the_next_tick_does_and_changes_nothing(manual: Scheduler, raw: Raw) -> None:
    """LESSONS Store: dry run drifted from the real submit; dry run cleaned up."""
    _submit_some(manual)
    for batch in (1, 2, 9):
        manual.clock.advance(seconds=1)  # the delayed one is due, and nobody has marked it
        before, orders, events = everything(raw), len(manual.executor.orders), len(manual.events)
        said = manual.dry_run(batch)
        assert manual.dry_run(batch) == said
        assert (everything(raw), len(manual.executor.orders), len(manual.events)) == (before, orders, events)
        assert said["dispatched"] == []
        done = manual.tick(batch)
        assert (done["dispatched"], done["skipped"], done["reason"]) == (
            said["would_dispatch"],
            said["skipped"],
            said["reason"],
        )
    assert [start.job for start in manual.executor.starts] == [6, 1, 4]


def test_it_writes_not_a_byte(tmp_path: Path, make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    wal = tmp_path / "rota.db-wal"
    if not wal.exists():
        pytest.skip("the store is not a file")
    scheduler.configure(heartbeat="manual")
    _submit_some(scheduler)
    scheduler.clock.advance(seconds=1)
    before = wal.read_bytes()
    assert scheduler.dry_run(9)["would_dispatch"] == ["job-6", "job-1", "job-4"]
    assert wal.read_bytes() == before


def test_a_dry_run_looks_at_marked_jobs_and_leaves_them_marked(
    manual: Scheduler, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the end of it: what is blocked, what that blocks, what comes after it all the same, and whose turn it is."""
    first = manual.submit("false")
    second = manual.submit(after=[first], locks=["repo"], priority=1)
    third = manual.submit(after=[f"job-{second}:finished"], locks=["repo"])
    fourth = manual.submit(after=[second])
    manual.tick()
    with monkeypatch.context() as patch:
        patch.setattr(manual.engine, "_look", lambda _: False)  # the turn ends before anybody has looked
        manual.end(first, 1)
    before = everything(raw)
    assert raw("SELECT id FROM job WHERE stirred = 1") == [(second,)]
    assert manual.dry_run(9) == {"dispatched": [], "would_dispatch": names([third]), "skipped": 0, "reason": "ready"}
    assert everything(raw) == before
    assert manual.tick(9)["dispatched"] == names([third])
    assert {manual.status(second), manual.status(fourth)} == {Status.BLOCKED_BY_DEPENDENCY}


def test_a_dry_run_sees_what_has_changed_outside(manual: Scheduler, raw: Raw) -> None:
    head = Head("/repo/.git", "main")
    manual.probe.world[head] = "a" * 40
    job = manual.submit(pin="main")
    manual.probe.world[head] = "b" * 40
    manual.look_outside()
    assert manual.status(job) is Status.WAITING_ON_DEPS
    manual.probe.world[head] = "a" * 40
    before, known = everything(raw), dict(manual.engine.known.seen)
    assert manual.dry_run()["would_dispatch"] == names([job])
    assert (everything(raw), manual.engine.known.seen) == (before, known)
    assert manual.tick()["dispatched"] == names([job])


def test_a_dry_run_that_fails_says_why_and_the_next_turn_goes_on(
    manual: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = manual.submit()

    def full(*_: Any) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(manual.session, "stirred", full)
    with pytest.raises(StorageFull):
        manual.dry_run()
    monkeypatch.undo()
    assert manual.tick()["dispatched"] == names([job])


def test_a_dry_run_is_no_tick(manual: Scheduler, make_scheduler: Callable[..., Scheduler]) -> None:
    """Nothing starts by it, then or later; nor does it take the place of the clock's own."""
    queued(manual, 2)
    manual.dry_run(2)
    manual.turn()
    assert manual.started() == []
    manual.configure(heartbeat=timedelta(minutes=3))
    assert len(manual.started()) == 1
    due = manual.engine.next_due
    manual.clock.advance(minutes=4)
    manual.dry_run()
    manual.turn()
    assert (len(manual.started()), due) == (2, datetime(2026, 1, 1, 0, 3, tzinfo=UTC))


def test_a_dry_run_tries_no_breaker(manual: Scheduler, raw: Raw) -> None:
    jobs = queued(manual, 3, type="x")
    raw("INSERT INTO breaker (key, state, until, opened_at) VALUES ('type/x', 'half_open', 0, 0)")
    before = everything(raw)
    assert manual.dry_run(9) == {
        "dispatched": [], "would_dispatch": names(jobs[:1]), "skipped": 0, "reason": "ready",
    }  # fmt: skip
    assert everything(raw) == before
    assert manual.tick(9) == {"dispatched": names(jobs[:1]), "would_dispatch": [], "skipped": 0, "reason": "ready"}


# The spawn delay.


def after(**duration: float) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(**duration)).isoformat().replace("+00:00", "Z")


def test_starts_come_no_closer_than_the_spawn_delay(wide: Scheduler) -> None:
    wide.configure(spawn_delay=timedelta(seconds=10))
    first, second, third = queued(wide, 3)
    assert wide.started() == [first]
    assert wide.show(second).wait == WaitForm(kind="delay", detail=f"not before {after(seconds=10)}", on=[])
    assert wide.why(second)["text"] == f"job-2 is QUEUED: not before {after(seconds=10)}"
    wide.end(first)
    assert wide.started() == [first], "an end is no reason to hurry"
    assert wide.engine.next_due == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    wide.clock.advance(seconds=10)
    wide.turn()
    assert wide.started() == [first, second]
    wide.clock.advance(seconds=9)
    wide.turn()
    assert wide.started() == [first, second]
    wide.clock.advance(seconds=1)
    wide.turn()
    assert wide.started() == [first, second, third]


def test_a_job_that_something_else_holds_says_that(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 1})
    scheduler.configure(spawn_delay=timedelta(seconds=10))
    queued(scheduler, 2)
    assert scheduler.detail(JobId(2)) == "waiting on pool global (1/1)"


def test_who_submits_is_told_of_the_spawn_delay_at_once(wide: Scheduler) -> None:
    wide.configure(spawn_delay=timedelta(seconds=10))
    wide.submit()
    job = wide.submit()
    told = wide.do(lambda _: None, lambda work, _asked: [just_stored(work, [job], {}, wide.sight)[job]])
    assert told.wait.detail == f"not before {after(seconds=10)}"


def test_the_last_start_is_remembered_over_a_restart(wide: Scheduler) -> None:
    wide.configure(spawn_delay=timedelta(seconds=10))
    first, second = queued(wide, 2)
    wide.end(first)
    wide.clock.advance(seconds=4)
    wide.crash()
    assert wide.started() == []
    assert wide.detail(second) == f"not before {after(seconds=10)}"
    wide.clock.advance(seconds=6)
    wide.turn()
    assert wide.started() == [second]


def test_a_clock_that_is_set_back_holds_nobody_longer_than_the_delay(wide: Scheduler) -> None:
    wide.configure(spawn_delay=timedelta(seconds=10))
    _first, second = queued(wide, 2)
    wide.clock.advance(hours=-5)
    wide.turn()
    wide.clock.advance(seconds=10)
    wide.turn()
    assert wide.started()[-1] == second


def test_a_turn_that_is_undone_was_no_start(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    wide.configure(spawn_delay=timedelta(seconds=10))

    def full() -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(wide.session, "commit", full)
        with pytest.raises(StorageFull):
            wide.submit()
    job = wide.submit()
    assert wide.started() == [job]


def test_a_tick_spreads_its_batch_over_the_spawn_delay(manual: Scheduler) -> None:
    manual.configure(spawn_delay=timedelta(seconds=1))
    jobs = queued(manual, 5)
    assert manual.dry_run(3)["would_dispatch"] == names(jobs[:3])
    said = manual.tick(3)
    assert said == {"dispatched": names(jobs[:1]), "would_dispatch": names(jobs[1:3]), "skipped": 2, "reason": "batch"}
    assert manual.why(jobs[1])["text"] == f"job-2 is QUEUED: not before {after(seconds=1)}"
    for n in (2, 3, 3, 3):
        manual.clock.advance(seconds=1)
        manual.turn()
        assert manual.started() == jobs[:n]
    assert manual.engine.next_due is None


# The heartbeat.


def test_between_ticks_all_is_booked_and_nothing_starts(manual: Scheduler) -> None:
    first = manual.submit()
    second = manual.submit(after=[first])
    assert manual.why(first)["text"] == "job-1 is QUEUED: nothing holds it; it starts with the next `rota tick`"
    assert status(manual.reader, manual.sight).idle_because == "job-1: it starts with the next `rota tick`"
    manual.tick()
    manual.end(first)
    assert (manual.status(first), manual.status(second)) == (Status.COMPLETED, Status.QUEUED)
    manual.submit(priority=9)
    manual.set_pools(**{"global": 7})
    assert manual.started() == [first]


def test_one_job_a_tick_unless_a_size_is_given(manual: Scheduler) -> None:
    jobs = queued(manual, 6)
    manual.tick()
    assert manual.started() == jobs[:1]
    text = manual.why(jobs[2])["text"]
    assert text == "job-3 is QUEUED: nothing holds it; others come before it; its turn is with a later `rota tick`"
    manual.configure(batch_size=2)
    assert manual.started() == jobs[:1]
    manual.tick()
    assert manual.started() == jobs[:3]
    manual.tick(1)
    assert manual.started() == jobs[:4]


def test_no_second_helping_until_the_next_tick(make_scheduler: Callable[..., Scheduler]) -> None:
    """What the tick found no room for waits for the next one, though its batch was not used up."""
    scheduler = make_scheduler(**{"global": 1})
    scheduler.configure(heartbeat="manual", batch_size=3)
    first, second = queued(scheduler, 2)
    assert scheduler.tick()["reason"] == "capacity"
    scheduler.end(first)
    assert scheduler.started() == [first]
    scheduler.tick()
    assert scheduler.started() == [first, second]


def test_a_start_that_fails_waits_for_the_next_tick(manual: Scheduler) -> None:
    job = manual.submit()
    manual.tick()
    manual.say(FailedToStart(run=manual.run_of(job), error="no"))
    manual.clock.advance(seconds=5)
    manual.turn()
    assert len(manual.started()) == 1
    manual.tick()
    assert len(manual.started()) == 2


def test_the_scheduler_ticks_by_itself(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(heartbeat=timedelta(minutes=3))
    scheduler.clock.advance(minutes=1)
    scheduler.turn()
    jobs = queued(scheduler, 3)
    assert scheduler.started() == []
    assert scheduler.engine.next_due == datetime(2026, 1, 1, 0, 3, tzinfo=UTC)
    assert scheduler.detail(jobs[0]) == f"not before {after(minutes=3)}"
    text = f"not before {after(minutes=3)}; it starts with the next tick"
    assert scheduler.why(jobs[0])["text"] == f"job-1 is QUEUED: {text}"
    assert scheduler.why(jobs[1])["text"].endswith("; others come before it; its turn is with a later tick")
    assert status(scheduler.reader, scheduler.sight).idle_because == f"job-1: {text}"
    for minutes, started in ((1, 0), (1, 1), (2, 1), (1, 2), (3, 3), (3, 3)):
        scheduler.clock.advance(minutes=minutes)
        scheduler.turn()
        assert scheduler.started() == jobs[:started]


def test_the_clock_of_ticks_outlives_the_scheduler(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(heartbeat=timedelta(minutes=3), batch_size=1)
    scheduler.clock.advance(minutes=3)
    jobs = queued(scheduler, 2)
    assert scheduler.started() == jobs[:1], "a tick that was due comes with the next turn"
    scheduler.clock.advance(minutes=2)
    scheduler.crash([Account(run=scheduler.run_of(jobs[0]), pid=1, has_ended=False)])
    assert scheduler.started() == []
    scheduler.clock.advance(minutes=1)
    scheduler.turn()
    assert scheduler.started() == jobs[1:]


def test_a_tick_of_the_clock_starts_what_has_to_be_looked_at_first(make_scheduler: Callable[..., Scheduler]) -> None:
    """It was decided on; that its pinned head is looked at once more takes another turn."""
    scheduler = make_scheduler(**{"global": -1})
    scheduler.probe.world[Head("/repo/.git", "main")] = "a" * 40
    scheduler.configure(heartbeat=timedelta(minutes=3))
    job = scheduler.submit(pin="main")
    other = scheduler.submit()
    scheduler.clock.advance(minutes=3)
    scheduler.turn()
    assert scheduler.started() == [job]
    scheduler.turn()
    assert scheduler.started() == [job], f"{other} waits for the next tick"


def test_a_tick_of_the_clock_waits_until_every_marked_job_has_had_its_look(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(heartbeat=timedelta(minutes=3), batch_size=2)
    late = [scheduler.submit(delay="2m", priority=1) for _ in range(4)]
    scheduler.submit()
    monkeypatch.setattr(dispatch, "LOOK", 1)
    monkeypatch.setattr(dispatch, "LOOKS", 1)
    scheduler.clock.advance(minutes=3)
    scheduler.turn()
    assert scheduler.started() == late[:2]


def test_a_tick_by_hand_looks_at_everything_first(manual: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    manual.configure(batch_size=2)
    late = [manual.submit(delay="2m", priority=1) for _ in range(4)]
    manual.submit()
    monkeypatch.setattr(dispatch, "LOOK", 1)
    monkeypatch.setattr(dispatch, "LOOKS", 1)
    manual.clock.advance(minutes=3)
    assert manual.dry_run()["would_dispatch"] == names(late[:2])
    assert manual.tick()["dispatched"] == names(late[:2])


def test_switched_off_everything_starts_at_once(manual: Scheduler) -> None:
    jobs = queued(manual, 3)
    manual.configure(heartbeat=None)
    assert manual.started() == jobs


def test_a_tick_that_cannot_be_made_wakes_nobody_and_is_made_up_for(make_scheduler: Callable[..., Scheduler]) -> None:
    """A timer in the past would have the engine turn round and round."""
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(heartbeat=timedelta(minutes=3))
    job = scheduler.submit()
    scheduler.say(Lost(reason="away"))
    scheduler.clock.advance(minutes=5)
    scheduler.turn()
    assert (scheduler.started(), scheduler.engine.next_due) == ([], None)
    scheduler.say(Accounts(runs=[]))
    assert scheduler.started() == [job]
    assert scheduler.engine.next_due == datetime(2026, 1, 1, 0, 8, tzinfo=UTC)


def test_an_idle_heartbeat_writes_nothing(make_scheduler: Callable[..., Scheduler], raw: Raw) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(heartbeat=timedelta(minutes=3))
    before = everything(raw)
    for _ in range(3):
        scheduler.clock.advance(minutes=3)
        scheduler.turn()
    assert everything(raw) == before


def test_why_sees_as_many_lanes_as_a_tick_does(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `why` says is what the next tick does, however many kinds of jobs wait."""
    monkeypatch.setattr(dispatch, "LANES", 1)
    scheduler.set_pools(**{"global": -1})
    scheduler.configure(heartbeat="manual", batch_size=2)
    first, second = scheduler.submit(type="x"), scheduler.submit(type="y")
    assert scheduler.dry_run()["would_dispatch"] == [show_job(first), show_job(second)]
    assert scheduler.why(second)["text"] == "job-2 is QUEUED: nothing holds it; it starts with the next `rota tick`"
