"""Trouble that is nobody's job: no supervisor to be had, a machine without room, records that cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import FakeExecutor, Raw, Scheduler
from rota.core.status import Status
from rota.engine.dispatch import Starter
from rota.engine.engine import Engine
from rota.engine.work import Request, Work
from rota.errors import StorageFull, Unavailable
from rota.executor.port import Accounts, Exited, FailedToStart, Lost, Message, Refused, Started, Trouble
from rota.store.session import Session


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
        broken.setattr("rota.engine.pace.choose", lambda *_: 1 / 0)
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


def test_a_start_without_room_is_made_up_for(scheduler: Scheduler) -> None:
    """It comes up, says so, refuses clearly, and goes on when there is room: with every waiting job looked at."""
    job = scheduler.submit(delay="1h")
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    is_full = True

    def open_session() -> Session:
        if is_full:
            raise StorageFull("the disk is full")
        return scheduler.session

    engine = Engine(
        open_session=open_session,
        executor=scheduler.executor,
        clock=scheduler.clock,
        settings=scheduler.settings,
        starter=Starter(scheduler.home, scheduler.home / "jobs"),
        publish=scheduler.events.extend,
        ask=scheduler.questions.extend,
    )
    engine.start()
    answers: list[object] = []
    for _ in range(2):
        engine.turn([Request(lambda _: 1, answers.append)])
    assert [type(answer) for answer in answers] == [StorageFull, StorageFull]
    assert engine.held_by == "the disk is full"
    assert not engine.has_more, "it would spin"
    assert scheduler.executor.inbox, "nobody is spoken to before the store is open"
    is_full = False
    scheduler.clock.advance(hours=2)
    scheduler.session, scheduler.engine = scheduler.store.session(), engine
    scheduler.turn()
    assert engine.troubles == []
    assert scheduler.started() == [job]


@pytest.mark.parametrize("kind", ["exited", "failed to start"])
def test_an_end_that_cannot_be_booked_ends_its_own_job(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    scheduler = make_scheduler(**{"global": 2})
    bad, good, behind = scheduler.submit(locks=["k"]), scheduler.submit(), scheduler.submit(locks=["k"])
    run = scheduler.run_of(bad)
    at = scheduler.clock.moment.timestamp()
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.conclude", lambda *_: 1 / 0)
        broken.setattr("rota.engine.finish.fail_dispatch", lambda *_: 1 / 0)
        end = Exited(run=run, at=at, code=0) if kind == "exited" else FailedToStart(run=run, error="no")
        scheduler.say(end, Started(run=scheduler.run_of(good), pid=1, start_time=1))
    found = scheduler.job(bad)
    assert (found.status, found.exit_code) == (Status.FAILED, 1)
    assert found.reason == "scheduler data error: division by zero"
    assert scheduler.executor.acknowledged == [run]
    assert scheduler.status(good) is Status.RUNNING
    assert behind in scheduler.started(), "its locks and its place are free"
    assert scheduler.engine.troubles == []


def test_an_end_that_cannot_even_be_failed_is_said_and_told_again(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduler.submit()
    end = Exited(run=scheduler.run_of(job), at=scheduler.clock.moment.timestamp(), code=4)
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.finish", lambda *_, **__: 1 / 0)
        broken.setattr("rota.engine.finish.fail_for_good", lambda *_, **__: 1 / 0)
        scheduler.say(end)
    assert scheduler.executor.acknowledged == []
    assert scheduler.engine.troubles == ["the end of run-1 cannot be booked: ZeroDivisionError('division by zero')"]
    assert scheduler.engine.held_by is None, "the others start"
    scheduler.say(end)  # as at the next connection
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 4)
    assert scheduler.engine.troubles == []


def test_a_start_that_cannot_be_booked_is_made_up_for_by_its_end(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduler.submit()
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.book_start", lambda *_: 1 / 0)
        scheduler.start(job)
    assert scheduler.show(job).status == "RUNNING"
    scheduler.end(job)
    assert scheduler.status(job) is Status.COMPLETED


def test_a_refused_start_leaves_no_job_behind(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    for delay in (1, 2):
        run = scheduler.run_of(job)
        scheduler.say(Refused(run=run, error="not understood"))
        assert scheduler.executor.stops[-1] == run, "whatever has its number is not wanted"
        assert scheduler.status(job) is Status.QUEUED
        scheduler.clock.advance(seconds=delay)
        scheduler.end(following) if delay == 1 else scheduler.turn()
        assert scheduler.run_of(job) > run
    scheduler.say(Refused(run=scheduler.run_of(job), error="not understood"))
    found = scheduler.job(job)
    assert found.status is Status.FAILED
    assert found.reason == "circuit-broken: the supervisor refused to start it: not understood"


def test_a_refused_start_of_a_cancelled_job_ends_it(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.say(Refused(run=scheduler.run_of(job), error="not understood"))
    assert scheduler.status(job) is Status.CANCELLED


def test_a_refusal_that_nobody_waits_for_changes_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    scheduler.say(Refused(run=scheduler.run_of(job), error="known already"))
    assert scheduler.status(job) is Status.RUNNING


def test_what_keeps_ends_from_being_told_is_said_while_it_does(scheduler: Scheduler) -> None:
    scheduler.say(Trouble(trouble="disk full; not told: run-1"))
    assert scheduler.engine.troubles == ["disk full; not told: run-1"]
    scheduler.say(Trouble(trouble=None))
    assert scheduler.engine.troubles == []
    scheduler.say(Trouble(trouble="disk full; not told: run-1"))
    scheduler.say(Lost(reason="it was killed"))
    assert scheduler.engine.troubles == []


def test_a_store_that_does_not_answer_is_said_while_it_is_waited_for(scheduler: Scheduler) -> None:
    seen: list[list[str]] = []

    def wait(_work: Work) -> None:
        for seconds in (9, 2):
            scheduler.clock.advance(seconds=seconds)
            seen.append(scheduler.engine.obstacles)

    scheduler.do(wait)
    assert seen == [[], ["a turn has not ended for 11 s: the store may not answer"]]
    assert scheduler.engine.obstacles == []
