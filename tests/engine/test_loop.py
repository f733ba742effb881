"""The engine's thread: requests from any thread, refusals after its end, and reported crashes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rota.db.database import UnknownOutcomeError
from rota.engine.loop import EngineLoop
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import ServiceUnavailable
from rota.executor.port import RunInventory, RunReport
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, submit
from rota.kernel.events import Event
from rota.kernel.status import Status
from tests.engine.schedule_harness import AdjustableClock
from tests.harness import FakeClock, Scheduler

pytestmark = pytest.mark.both_databases

TIMEOUT_SECONDS = 30
"""Seconds after which a test fails; nothing sleeps that long."""


class ResponseSlot:
    def __init__(self) -> None:
        self._is_set = threading.Event()
        self.value: Any = None

    def __call__(self, value: Any) -> None:
        self.value = value
        self._is_set.set()

    def get(self) -> Any:
        assert self._is_set.wait(TIMEOUT_SECONDS)
        return self.value


def submit_job(tx: Transaction) -> AcceptedSubmit:
    result = submit(tx, [Submission(command=["true"])], DefaultEnvironment(cwd="/", variables={}), actor=None)
    assert isinstance(result, AcceptedSubmit)
    return result


@pytest.fixture
def crashed() -> threading.Event:
    return threading.Event()


@pytest.fixture
def loop(scheduler: Scheduler, crashed: threading.Event) -> Iterator[EngineLoop]:
    loop = EngineLoop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start()
    yield loop
    loop.stop()


def submit_request(loop: EngineLoop, act: Any) -> ResponseSlot:
    response = ResponseSlot()
    loop.submit(TurnRequest(act, response))
    return response


def test_requests_of_many_threads_are_all_answered(loop: EngineLoop, scheduler: Scheduler) -> None:
    responses: list[ResponseSlot] = []
    threads = [
        threading.Thread(target=lambda: responses.extend(submit_request(loop, submit_job) for _ in range(25)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert sorted(response.get().jobs[0] for response in responses) == list(range(1, 101))
    assert sum(scheduler.reader.jobs.count_by_status().values()) == 100


def test_requests_that_wait_during_a_turn_share_the_next_commit(loop: EngineLoop, scheduler: Scheduler) -> None:
    started, resume = threading.Event(), threading.Event()

    def hold(_tx: Transaction) -> None:
        started.set()
        assert resume.wait(TIMEOUT_SECONDS)

    held = submit_request(loop, hold)
    assert started.wait(TIMEOUT_SECONDS)
    commit = scheduler.session.commit
    batches: list[int] = []

    def count() -> list[Event]:
        events = commit()
        batches.append(sum(event.kind == "job.submitted" for event in events))
        return events

    scheduler.session.commit = count  # type: ignore[method-assign]
    responses = [submit_request(loop, submit_job) for _ in range(10)]
    resume.set()
    held.get()
    for response in responses:
        response.get()
    assert [size for size in batches if size] == [10]


def test_last_turn_is_committed_and_later_requests_are_refused(scheduler: Scheduler, crashed: threading.Event) -> None:
    loop = EngineLoop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start()
    accepted = submit_request(loop, submit_job)
    loop.stop()
    assert accepted.get().jobs == [1]
    assert not crashed.is_set()
    late = ResponseSlot()
    scheduler.engine.refuse([TurnRequest(submit_job, late)])
    assert isinstance(late.get(), ServiceUnavailable)


def test_crash_of_the_engine_is_reported(scheduler: Scheduler, crashed: threading.Event) -> None:
    class BrokenClock(FakeClock):
        def now(self) -> Any:
            raise ZeroDivisionError

    scheduler.engine._clock = BrokenClock()
    loop = EngineLoop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start()
    assert crashed.wait(TIMEOUT_SECONDS)
    loop.stop()


def test_failed_request_does_not_stop_the_thread(loop: EngineLoop, scheduler: Scheduler) -> None:
    def fail(_tx: Transaction) -> None:
        raise ZeroDivisionError

    assert isinstance(submit_request(loop, fail).get(), ZeroDivisionError)
    job = submit_request(loop, submit_job).get().jobs[0]
    assert scheduler.status(job) is Status.DISPATCHED


def test_started_callback_comes_after_recovery(scheduler: Scheduler, crashed: threading.Event) -> None:
    """`rota up` reads the recovery report as soon as the scheduler responds."""
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.executor.inbox = [RunInventory(runs=[RunReport(run=scheduler.find_run(job), pid=4242)])]
    scheduler.engine._inbox.recovery_counts = None  # as before the first inventory
    reports: list[dict[str, int] | None] = []
    started = threading.Event()

    def record() -> None:
        reports.append(scheduler.engine.recovery_counts)
        started.set()

    loop = EngineLoop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start(record)
    assert started.wait(TIMEOUT_SECONDS)
    loop.stop()
    assert reports == [{"running_jobs_adopted": 1}]


def test_started_callback_is_called_when_the_engine_crashes(
    scheduler: Scheduler, crashed: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.engine, "start", lambda: 1 / 0)
    started = threading.Event()
    loop = EngineLoop(scheduler.engine, scheduler.executor, scheduler.clock, crashed.set)
    loop.start(started.set)
    assert started.wait(TIMEOUT_SECONDS)
    assert crashed.is_set()
    loop.stop()


def test_run_in_turn_returns_the_response_or_raises(loop: EngineLoop) -> None:
    assert loop.run_in_turn(submit_job).jobs == [1]

    def refused(_tx: Transaction) -> None:
        raise ServiceUnavailable("not now")

    with pytest.raises(ServiceUnavailable, match="not now"):
        loop.run_in_turn(refused)


def test_run_in_turn_after_the_end_is_refused(loop: EngineLoop) -> None:
    loop.stop()
    with pytest.raises(ServiceUnavailable, match="try again"):
        loop.run_in_turn(submit_job)


class _KilledError(BaseException):
    pass


def test_run_in_turn_reports_unknown_outcome_after_a_crash(loop: EngineLoop, crashed: threading.Event) -> None:
    """The outcome of the crashed request is unknown; later requests were not started, and are refused."""

    def kills(_tx: Transaction) -> None:
        raise _KilledError

    with pytest.raises(UnknownOutcomeError):
        loop.run_in_turn(kills)
    assert crashed.is_set()
    assert isinstance(submit_request(loop, submit_job).get(), ServiceUnavailable)


def test_clock_set_back_is_noticed_without_an_event(
    scheduler: Scheduler, crashed: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = scheduler.clock = scheduler.engine._clock = AdjustableClock()
    job = scheduler.submit(delay="5m")
    loop = EngineLoop(scheduler.engine, scheduler.executor, clock, crashed.set)
    loop.start()
    loop.run_in_turn(lambda _: None)
    has_turned, turn = threading.Event(), scheduler.engine.turn

    def count_turn(requests: Sequence[TurnRequest[Any]]) -> None:
        turn(requests)
        if requests:  # a turn of an earlier wake-up has none
            has_turned.set()

    monkeypatch.setattr(scheduler.engine, "turn", count_turn)
    clock.advance(minutes=3)
    assert not loop.check_clock()
    assert not has_turned.is_set()
    clock.set_time("2025-12-31T00:00:00")
    assert loop.check_clock()
    assert has_turned.wait(5)
    assert scheduler.job(job).not_before == clock.now() + timedelta(minutes=5)
    assert not loop.check_clock()
    loop.stop()


def test_start_timeout_of_years_is_accepted(loop: EngineLoop, scheduler: Scheduler, crashed: threading.Event) -> None:
    """The kernel accepts no wait that long."""
    years = timedelta(days=3650)
    scheduler.engine.settings = msgspec.structs.replace(scheduler.engine.settings, start_timeout=years)
    submit_request(loop, submit_job).get()
    assert submit_request(loop, submit_job).get().jobs
    assert not crashed.is_set()
