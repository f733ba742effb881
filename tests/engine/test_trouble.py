"""Trouble that is nobody's job: no supervisor to be had, a machine without room, records that cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import FakeExecutor, Raw, Scheduler
from rota.core.status import Status
from rota.errors import Unavailable
from rota.executor.port import Accounts, FailedToStart, Message


class Missing(FakeExecutor):
    """An executor that cannot be had for a while."""

    is_missing = True

    def receive(self) -> list[Message]:
        if self.is_missing:
            raise Unavailable("the supervisor could not be started")
        return super().receive()


def test_without_a_supervisor_everything_but_starting_goes_on(scheduler: Scheduler) -> None:
    scheduler.session.close()
    scheduler.executor = missing = Missing()
    scheduler.boot()
    job = scheduler.submit()
    assert scheduler.started() == []
    assert "the supervisor could not be started" in str(scheduler.engine.held_by)
    assert scheduler.engine.next_deadline == scheduler.clock.monotonic() + 1
    other = scheduler.submit()
    scheduler.cancel(other)
    missing.is_missing = False
    scheduler.turn()
    assert scheduler.started() == [], "it is asked again after a second, not at every turn"
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    assert scheduler.started() == [job]
    assert scheduler.engine.held_by is None


def test_trouble_of_the_machine_is_not_held_against_the_job(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    for _ in range(5):
        scheduler.say(FailedToStart(run=scheduler.run_of(job), error="disk full", is_machine=True))
        assert scheduler.status(job) is Status.QUEUED
        assert scheduler.engine.held_by == "disk full"
        before = len(scheduler.started())
        scheduler.turn()
        assert len(scheduler.started()) == before, "nothing starts until a second is over"
        scheduler.clock.advance(seconds=1)
        scheduler.turn()
        assert len(scheduler.started()) == before + 1
    assert scheduler.job(job).dispatch_failures == 0
    scheduler.start(job)
    assert scheduler.engine.held_by is None
    scheduler.end(job)
    assert scheduler.status(job) is Status.COMPLETED


def test_trouble_that_nobody_waits_for_keeps_nobody_awake(scheduler: Scheduler) -> None:
    """A deadline that stays in the past would make the loop spin."""
    job = scheduler.submit()
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="disk full", is_machine=True))
    scheduler.cancel(job)
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    assert scheduler.engine.next_deadline is None
    assert scheduler.engine.troubles == []


def test_a_waiting_job_that_cannot_be_read_fails_alone(scheduler: Scheduler, raw: Raw) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all."""
    first = scheduler.submit()
    bad = scheduler.submit(after=[first])
    behind = scheduler.submit(after=[bad])
    good = scheduler.submit(after=[first])
    raw(f"UPDATE job SET waited_on = 'nonsense' WHERE id = {bad}")
    scheduler.end(first)
    shown = scheduler.show(bad)
    assert (shown.status, shown.exit_code) == ("FAILED", 1)
    assert str(shown.reason).startswith("scheduler data error: ")
    assert scheduler.status(behind) is Status.BLOCKED_BY_DEPENDENCY
    assert scheduler.started() == [first, good]


def test_a_claimed_job_whose_record_is_gone_fails_and_frees_its_place(scheduler: Scheduler, raw: Raw) -> None:
    first, bad, good = (scheduler.submit() for _ in range(3))
    raw(f"DELETE FROM spec WHERE id = {bad}")
    scheduler.end(first)
    assert scheduler.started() == [first, good]
    assert raw(f"SELECT status, reason FROM job WHERE id = {bad}") == [
        ("FAILED", "scheduler data error: its record is gone from the store")
    ]


def test_a_defect_in_a_turn_is_said_and_the_engine_lives_on(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.engine.choose", lambda *_: 1 / 0)
        scheduler.engine.turn()
        assert scheduler.engine.troubles
    job = scheduler.submit()
    assert scheduler.started() == [job]
    assert scheduler.engine.troubles == []


def test_a_paused_job_gives_up_its_turn_at_its_locks(make_scheduler: Callable[..., Scheduler], raw: Raw) -> None:
    scheduler = make_scheduler(**{"global": 4})
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('type/x', 'ann', 0)")
    held = scheduler.submit(type="x", locks=["repo"])
    later = scheduler.submit(locks=["repo"])
    assert scheduler.detail(held) == "paused by ann"
    assert scheduler.started() == [later]


def test_accounts_come_again_after_a_loss(scheduler: Scheduler) -> None:
    scheduler.say(Accounts(runs=[]))
    assert scheduler.engine.held_by is None
