"""The engine's thread: requests from any thread, an end that refuses what comes after it, a crash that is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harness import FakeClock, Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Submitted, submit
from rota.core.event import Event
from rota.core.status import Status
from rota.engine.loop import Loop
from rota.engine.work import Request, Work
from rota.errors import Unavailable
from rota.executor.port import Account, Accounts
from rota.store.database import OutcomeUnknown

WAIT = 30
"""Seconds after which a test has failed; nothing sleeps for them."""


class Answer:
    def __init__(self) -> None:
        self._there = threading.Event()
        self.value: Any = None

    def __call__(self, value: Any) -> None:
        self.value = value
        self._there.set()

    def get(self) -> Any:
        assert self._there.wait(WAIT)
        return self.value


def submission(work: Work) -> Submitted:
    told = submit(work, [Submission(command=["true"])], Surroundings(cwd="/", variables={}), actor=None)
    assert isinstance(told, Submitted)
    return told


@pytest.fixture
def crashed() -> threading.Event:
    return threading.Event()


@pytest.fixture
def loop(scheduler: Scheduler, crashed: threading.Event) -> Iterator[Loop]:
    loop = Loop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start()
    yield loop
    loop.stop()


def ask(loop: Loop, act: Any) -> Answer:
    answer = Answer()
    loop.submit(Request(act, answer))
    return answer


def test_requests_of_many_threads_are_all_answered(loop: Loop, scheduler: Scheduler) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(ask(loop, submission) for _ in range(25))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(answer.get().jobs[0] for answer in answers) == list(range(1, 101))
    assert sum(scheduler.reader.counts().values()) == 100


def test_requests_that_wait_while_a_turn_is_under_way_share_the_next_commit(loop: Loop, scheduler: Scheduler) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(_work: Work) -> None:
        begun.set()
        assert go_on.wait(WAIT)

    held = ask(loop, hold)
    assert begun.wait(WAIT)
    commit = scheduler.session.commit
    batches: list[int] = []

    def count() -> list[Event]:
        events = commit()
        batches.append(sum(event.kind == "job.submitted" for event in events))
        return events

    scheduler.session.commit = count  # type: ignore[method-assign]
    answers = [ask(loop, submission) for _ in range(10)]
    go_on.set()
    held.get()
    for answer in answers:
        answer.get()
    assert [size for size in batches if size] == [10]


def test_the_last_turn_is_taken_and_what_comes_after_is_refused(scheduler: Scheduler, crashed: threading.Event) -> None:
    loop = Loop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start()
    accepted = ask(loop, submission)
    loop.stop()
    assert accepted.get().jobs == [1]
    assert not crashed.is_set()
    late = Answer()
    scheduler.engine.refuse([Request(submission, late)])
    assert isinstance(late.get(), Unavailable)


def test_an_engine_that_breaks_says_so(scheduler: Scheduler, crashed: threading.Event) -> None:
    class BrokenClock(FakeClock):
        def now(self) -> Any:
            raise ZeroDivisionError

    scheduler.engine._clock = BrokenClock()
    loop = Loop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start()
    assert crashed.wait(WAIT)
    loop.stop()


def test_a_refused_request_does_not_stop_the_thread(loop: Loop, scheduler: Scheduler) -> None:
    def fail(_work: Work) -> None:
        raise ZeroDivisionError

    assert isinstance(ask(loop, fail).get(), ZeroDivisionError)
    job = ask(loop, submission).get().jobs[0]
    assert scheduler.status(job) is Status.DISPATCHED


def test_it_says_when_it_is_known_what_was_recovered(scheduler: Scheduler, crashed: threading.Event) -> None:
    """`rota up` asks as soon as somebody answers: by then the report must be there."""
    job = scheduler.submit()
    scheduler.start(job)
    scheduler.executor.inbox = [Accounts(runs=[Account(run=scheduler.run_of(job), pid=4242)])]
    scheduler.engine._hearing.recovery = None  # as in a scheduler that has heard of nobody yet
    reports: list[dict[str, int] | None] = []
    begun = threading.Event()

    def note() -> None:
        reports.append(scheduler.engine.recovery)
        begun.set()

    loop = Loop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start(note)
    assert begun.wait(WAIT)
    loop.stop()
    assert reports == [{"running_jobs_adopted": 1}]


def test_who_waits_for_its_first_turn_does_not_wait_for_one_that_crashed(
    scheduler: Scheduler, crashed: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.engine, "start", lambda: 1 / 0)
    begun = threading.Event()
    loop = Loop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start(begun.set)
    assert begun.wait(WAIT)
    assert crashed.is_set()
    loop.stop()


def test_a_thread_that_can_wait_gets_the_answer_or_the_refusal(loop: Loop) -> None:
    assert loop.perform(submission).jobs == [1]

    def refused(_work: Work) -> None:
        raise Unavailable("not now")

    with pytest.raises(Unavailable, match="not now"):
        loop.perform(refused)


def test_and_does_not_wait_for_an_engine_that_has_ended(loop: Loop) -> None:
    loop.stop()
    with pytest.raises(Unavailable, match="try again"):
        loop.perform(submission)


class _Killed(BaseException):
    pass


def test_nor_for_one_that_crashed_with_its_request(loop: Loop, crashed: threading.Event) -> None:
    """What became of it nobody can know; who comes after it was not begun, and is told so."""

    def kills(_work: Work) -> None:
        raise _Killed

    with pytest.raises(OutcomeUnknown):
        loop.perform(kills)
    assert crashed.is_set()
    assert isinstance(ask(loop, submission).get(), Unavailable)


def test_a_start_may_be_waited_for_for_years(loop: Loop, scheduler: Scheduler, crashed: threading.Event) -> None:
    """No wait for the kernel can be that long."""
    years = timedelta(days=3650)
    scheduler.engine.settings = msgspec.structs.replace(scheduler.engine.settings, start_timeout=years)
    ask(loop, submission).get()
    assert ask(loop, submission).get().jobs
    assert not crashed.is_set()
