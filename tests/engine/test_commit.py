"""Everything that leaves the engine leaves after its commit; a refusal undoes only itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import FakeExecutor, Raw, Scheduler
from rota.command.cancel import cancel
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.event import Event
from rota.core.status import STARTED, TERMINAL, Status
from rota.engine.work import Request, Work
from rota.errors import InvalidInput, NotFound, RotaError, StorageFull, StoreError
from rota.executor.port import Acknowledge, Exited, Order, Start, Started
from rota.ids import JobId, RunId
from rota.store.database import Superseded
from rota.store.port import Store
from rota.store.session import Reader, Session


class Witness(FakeExecutor):
    """Looks, through a connection of its own, whether what it is told is already in the store."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self.seen: list[str] = []

    def send(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order, Start):
                job = self._reader.job(order.job)
                assert job is not None
                assert job.run is not None
                assert job.status in STARTED
                assert job.run.id == order.run
                self.seen.append("claim")
            if isinstance(order, Acknowledge):
                assert order.run not in {run for run, _ in self._open_runs()}
                self.seen.append("end")
        super().send(orders)

    def _open_runs(self) -> list[tuple[RunId, JobId]]:
        jobs = self._reader.jobs(self._reader.list_jobs(STARTED, limit=100))
        return [(job.run.id, job.id) for job in jobs if job.run is not None]


def test_a_claim_is_on_disk_before_its_child_is_started_and_an_end_before_it_is_acknowledged(
    store: Store, make_scheduler: Callable[..., Scheduler]
) -> None:
    """LESSONS Dispatch: child started before its claim was durable; record written after the side effect."""
    scheduler = make_scheduler()
    scheduler.session.close()
    reader = store.reader()
    witness = scheduler.executor = Witness(reader)
    scheduler.boot()
    for _ in range(3):
        scheduler.submit()
    scheduler.drain()
    reader.close()
    assert witness.seen == ["claim", "claim", "end", "claim", "end", "end"]  # who waits to start goes first


def test_replies_and_events_come_after_the_commit(scheduler: Scheduler, store: Store) -> None:
    reader = store.reader()
    seen: list[object] = []

    def look(answer: object) -> None:
        seen.append(sum(reader.counts().values()))

    def publish(events: Sequence[Event]) -> None:
        seen.append(len(reader.events_since(0, 100)) == len(events))

    scheduler.engine._publish = publish
    wanted = Submission(command=["true"])
    around = Surroundings(cwd="/", variables={})
    scheduler.engine.turn([Request(lambda work: submit(work, [wanted], around, actor=None), look)])
    reader.close()
    assert seen == [1, True]


class FlakySession(Session):
    """Fails its next commits as a full disk does."""

    failures = 0
    trouble: RotaError = StorageFull("the disk is full; nothing was stored")

    def __init__(self, inner: Session) -> None:
        super().__init__(inner._db)

    def commit(self) -> list[Event]:
        if self.failures:
            self.failures -= 1
            raise self.trouble
        return super().commit()


class FlakyStore:
    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.name = inner.name

    def session(self) -> Session:
        return FlakySession(self._inner.session())

    def reader(self) -> Reader:
        return self._inner.reader()


class Flaky(Scheduler):
    def fail(self, commits: int = 1) -> None:
        assert isinstance(self.session, FlakySession)
        self.session.failures = commits

    def is_in_trouble(self) -> bool:
        return self.engine.trouble is not None


@pytest.fixture
def flaky(store: Store, tmp_path: Path) -> Iterator[Flaky]:
    scheduler = Flaky(FlakyStore(store), tmp_path)
    yield scheduler
    scheduler.close()


@pytest.mark.parametrize("trouble", [StorageFull("full"), StoreError("the server is being restarted")])
def test_a_scheduler_that_cannot_use_its_store_at_its_start_says_so_and_goes_on_trying(
    flaky: Flaky, monkeypatch: pytest.MonkeyPatch, trouble: RotaError
) -> None:
    job = flaky.submit()
    monkeypatch.setattr(FlakySession, "trouble", trouble)
    monkeypatch.setattr(FlakySession, "failures", 2)
    flaky.crash()
    assert flaky.is_in_trouble()
    assert flaky.started() == []
    flaky.fail(0)
    flaky.turn()
    assert not flaky.is_in_trouble()
    assert flaky.started() == [job]


def test_one_that_another_has_replaced_does_not(flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlakySession, "trouble", Superseded("another scheduler has it"))
    monkeypatch.setattr(FlakySession, "failures", 1)
    with pytest.raises(Superseded):
        flaky.crash()


def test_a_commit_that_fails_spawns_nothing_and_tells_everybody(flaky: Flaky, raw: Raw) -> None:
    flaky.fail()
    with pytest.raises(StorageFull):
        flaky.submit()
    assert flaky.is_in_trouble()
    assert flaky.executor.orders == []
    assert flaky.events == []
    assert raw("SELECT count(*) FROM job") == [(0,)]
    job = flaky.submit()
    assert not flaky.is_in_trouble()
    assert flaky.started() == [job]
    assert [event.kind for event in flaky.events] == ["job.submitted", "job.dispatched"]


def test_a_claim_whose_commit_failed_is_made_again(flaky: Flaky) -> None:
    first, second = flaky.submit(), flaky.submit()
    flaky.fail(2)
    flaky.end(first)
    assert flaky.started() == [first]
    assert flaky.executor.acknowledged == []
    flaky.turn()
    assert flaky.is_in_trouble()
    flaky.turn()
    assert flaky.status(first) is Status.COMPLETED
    assert flaky.started() == [first, second]
    assert flaky.executor.acknowledged == [1]


def test_what_the_executor_said_keeps_its_order_over_failures(flaky: Flaky) -> None:
    job = flaky.submit()
    run = flaky.run_of(job)
    flaky.fail()
    flaky.say(Started(run=run, pid=9, start_time=1))
    flaky.fail()
    flaky.say(Exited(run=run, at=0, code=4))
    assert flaky.status(job) is Status.DISPATCHED
    flaky.turn()
    assert (flaky.job(job).pid, flaky.status(job)) == (9, Status.FAILED)


def test_the_environment_is_told_again_after_a_turn_that_failed(flaky: Flaky) -> None:
    flaky.fail()
    with pytest.raises(StorageFull):
        flaky.submit()
    flaky.submit()
    assert [type(order).__name__ for order in flaky.executor.orders] == ["Environment", "Start"]


def test_a_stop_for_an_overdue_start_is_not_lost_with_its_turn(flaky: Flaky) -> None:
    job = flaky.submit()
    flaky.clock.advance(minutes=5)
    flaky.fail()
    flaky.turn()
    assert flaky.executor.stops == []
    flaky.turn()
    assert flaky.executor.stops == [flaky.run_of(job)]


def test_a_start_that_was_never_ordered_is_not_called_back(flaky: Flaky) -> None:
    first, second = flaky.submit(), flaky.submit()
    flaky.fail()
    flaky.end(first)  # with it goes the claim of the second
    flaky.cancel(second)
    flaky.clock.advance(minutes=6)
    flaky.turn()
    assert flaky.executor.stops == []
    assert flaky.engine.next_deadline is None


def test_recovery_is_done_again_when_its_commit_failed(flaky: Flaky) -> None:
    job = flaky.submit()
    flaky.session.close()
    flaky.executor = FakeExecutor()
    boot, flaky.turn = flaky.turn, lambda: None  # type: ignore[method-assign]
    flaky.boot()
    flaky.turn = boot  # type: ignore[method-assign]
    flaky.fail()
    flaky.turn()
    assert flaky.is_in_trouble()
    assert flaky.started() == []
    flaky.turn()
    assert flaky.engine.recovery == {"requeued": 1}
    assert flaky.started() == [job]


def test_a_refusal_in_a_batch_undoes_only_itself(scheduler: Scheduler, raw: Raw) -> None:
    around = Surroundings(cwd="/", variables={})
    answers: list[Any] = []

    def ask(**fields: Any) -> Request[Any]:
        wanted = Submission(**{"command": ["true"], **fields})
        return Request(lambda work: submit(work, [wanted], around, actor=None), answers.append)

    def break_down(work: Work) -> None:
        submit(work, [Submission(command=["lost"])], around, actor=None)
        cancel(work, JobId(1), actor="me")
        raise ZeroDivisionError

    scheduler.engine.turn(
        [
            ask(),
            ask(command=[]),
            Request(lambda work: cancel(work, JobId(99), actor="me"), answers.append),
            Request(break_down, answers.append),
            ask(),
        ]
    )
    assert [type(answer).__name__ for answer in answers] == [
        "Submitted", "InvalidInput", "NotFound", "ZeroDivisionError", "Submitted",
    ]  # fmt: skip
    assert isinstance(answers[1], InvalidInput)
    assert isinstance(answers[2], NotFound)
    stored = sorted(answer.jobs[0] for answer in (answers[0], answers[4]))
    assert [job for (job,) in raw("SELECT id FROM job ORDER BY id")] == stored
    assert [event.kind for event in scheduler.events] == ["job.submitted", "job.submitted", "job.dispatched"]
    assert scheduler.status(stored[0]) not in TERMINAL
    assert scheduler.executor.stops == []  # nor did the order of the one that broke down leave


def test_a_submit_that_the_database_cannot_take_is_refused_alone(scheduler: Scheduler) -> None:
    """Though all that a turn stores goes to it together."""
    answers: list[Any] = []

    def asked(**fields: Any) -> Request[Any]:
        wanted = Submission(command=["true"], **fields)
        around = Surroundings(cwd="/", variables={})
        return Request(lambda work: submit(work, [wanted], around, actor=None), answers.append)

    scheduler.engine.turn([asked(name="one"), asked(name="half a character: \ud800"), asked(name="three")])
    one, other, three = answers
    assert isinstance(other, Exception)
    assert [scheduler.job(each.jobs[0]).spec.name for each in (one, three)] == ["one", "three"]


def test_a_drained_engine_starts_nothing_and_books_what_ends(scheduler: Scheduler) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.engine.is_draining = True
    scheduler.end(first)
    assert scheduler.status(first) is Status.COMPLETED
    assert scheduler.started() == [first]
    assert scheduler.status(second) is Status.QUEUED
