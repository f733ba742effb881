"""Effects leave the engine after its commit, and a refusal undoes only its own changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.db.database import SupersededError
from rota.db.session import Reader, Session
from rota.db.store import Store
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import InvalidInput, NotFound, RotaError, StorageFull, StoreError
from rota.executor.port import AcknowledgeOrder, ExecutorOrder, ExitReport, StartConfirmation, StartOrder
from rota.ids import JobId, RunId
from rota.jobs.cancel import cancel
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.events import Event
from rota.kernel.status import STARTED, TERMINAL, Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases


class DurabilityChecker(FakeExecutor):
    """Checks through a second connection that the facts behind each order are already in the store."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self.checked: list[str] = []

    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        for order in orders:
            if isinstance(order, StartOrder):
                job = self._reader.jobs.find(order.job)
                assert job is not None
                assert job.run is not None
                assert job.status in STARTED
                assert job.run.id == order.run
                self.checked.append("claim")
            if isinstance(order, AcknowledgeOrder):
                assert order.run not in {run for run, _ in self._open_runs()}
                self.checked.append("end")
        super().send(orders)

    def _open_runs(self) -> list[tuple[RunId, JobId]]:
        jobs = self._reader.jobs.find_all(self._reader.jobs.list_ids(STARTED, limit=100))
        return [(job.run.id, job.id) for job in jobs if job.run is not None]


def test_claim_is_stored_before_start_and_end_before_acknowledgement(
    store: Store, make_scheduler: Callable[..., Scheduler]
) -> None:
    """LESSONS Dispatch: child started before its claim was durable; record written after the side effect."""
    scheduler = make_scheduler()
    scheduler.session.close()
    reader = store.reader()
    checker = scheduler.executor = DurabilityChecker(reader)
    scheduler.start_engine()
    for _ in range(3):
        scheduler.submit()
    scheduler.drain()
    reader.close()
    assert checker.checked == ["claim", "claim", "end", "claim", "end", "end"]  # starts are sent first


def test_responses_and_events_come_after_the_commit(scheduler: Scheduler, store: Store) -> None:
    reader = store.reader()
    observed: list[object] = []

    def respond(response: object) -> None:
        observed.append(sum(reader.jobs.count_by_status().values()))

    def publish(events: Sequence[Event]) -> None:
        observed.append(len(reader.events.since(0, 100)) == len(events))

    scheduler.engine._publish = publish
    request = Submission(command=["true"])
    environment = DefaultEnvironment(cwd="/", variables={})
    scheduler.engine.turn([TurnRequest(lambda tx: submit(tx, [request], environment, actor=None), respond)])
    reader.close()
    assert observed == [1, True]


class FlakySession(Session):
    """Fails its next commits as a full disk does."""

    failures = 0
    error: RotaError = StorageFull("the disk is full; nothing was stored")

    def __init__(self, inner: Session) -> None:
        super().__init__(inner._db)

    def commit(self) -> list[Event]:
        if self.failures:
            self.failures -= 1
            raise self.error
        return super().commit()


class FlakyStore:
    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.name = inner.name

    def session(self) -> Session:
        return FlakySession(self._inner.session())

    def reader(self) -> Reader:
        return self._inner.reader()


class FlakyScheduler(Scheduler):
    def fail(self, commits: int = 1) -> None:
        assert isinstance(self.session, FlakySession)
        self.session.failures = commits

    def has_store_error(self) -> bool:
        return self.engine.store_error is not None


@pytest.fixture
def flaky(store: Store, tmp_path: Path) -> Iterator[FlakyScheduler]:
    scheduler = FlakyScheduler(FlakyStore(store), tmp_path)
    yield scheduler
    scheduler.close()


@pytest.mark.parametrize("failure", [StorageFull("full"), StoreError("the server is being restarted")])
def test_scheduler_retries_when_store_fails_at_startup(
    flaky: FlakyScheduler, monkeypatch: pytest.MonkeyPatch, failure: RotaError
) -> None:
    job = flaky.submit()
    monkeypatch.setattr(FlakySession, "error", failure)
    monkeypatch.setattr(FlakySession, "failures", 2)
    flaky.crash()
    assert flaky.has_store_error()
    assert flaky.started_jobs() == []
    flaky.fail(0)
    flaky.run_turns()
    assert not flaky.has_store_error()
    assert flaky.started_jobs() == [job]


def test_superseded_scheduler_does_not_retry_at_startup(flaky: FlakyScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlakySession, "error", SupersededError("another scheduler has it"))
    monkeypatch.setattr(FlakySession, "failures", 1)
    with pytest.raises(SupersededError):
        flaky.crash()


def test_failed_commit_starts_nothing_and_fails_requests(flaky: FlakyScheduler, run_sql: SqlRunner) -> None:
    flaky.fail()
    with pytest.raises(StorageFull):
        flaky.submit()
    assert flaky.has_store_error()
    assert flaky.executor.orders == []
    assert flaky.events == []
    assert run_sql("SELECT count(*) FROM job") == [(0,)]
    job = flaky.submit()
    assert not flaky.has_store_error()
    assert flaky.started_jobs() == [job]
    assert [event.kind for event in flaky.events] == ["job.submitted", "job.dispatched"]


def test_claim_is_repeated_after_failed_commit(flaky: FlakyScheduler) -> None:
    first, second = flaky.submit(), flaky.submit()
    flaky.fail(2)
    flaky.end_run(first)
    assert flaky.started_jobs() == [first]
    assert flaky.executor.acknowledged == []
    flaky.run_turns()
    assert flaky.has_store_error()
    flaky.run_turns()
    assert flaky.status(first) is Status.COMPLETED
    assert flaky.started_jobs() == [first, second]
    assert flaky.executor.acknowledged == [1]


def test_executor_messages_keep_their_order_over_failures(flaky: FlakyScheduler) -> None:
    job = flaky.submit()
    run = flaky.find_run(job)
    flaky.fail()
    flaky.receive(StartConfirmation(run=run, pid=9, start_time=1))
    flaky.fail()
    flaky.receive(ExitReport(run=run, at=0, code=4))
    assert flaky.status(job) is Status.DISPATCHED
    flaky.run_turns()
    assert (flaky.job(job).pid, flaky.status(job)) == (9, Status.FAILED)


def test_environment_is_uploaded_again_after_failed_turn(flaky: FlakyScheduler) -> None:
    flaky.fail()
    with pytest.raises(StorageFull):
        flaky.submit()
    flaky.submit()
    assert [type(order).__name__ for order in flaky.executor.orders] == ["EnvironmentUpload", "StartOrder"]


def test_ping_of_failed_turn_is_sent_by_the_next(flaky: FlakyScheduler) -> None:
    flaky.configure(start_timeout=timedelta(minutes=5))
    flaky.clock.advance(minutes=3)
    flaky.fail()
    flaky.run_turns()
    assert flaky.executor.pings == []
    flaky.run_turns()
    assert len(flaky.executor.pings) == 1


def test_start_that_was_never_ordered_is_not_overdue(flaky: FlakyScheduler) -> None:
    first, second = flaky.submit(), flaky.submit()
    flaky.fail()
    flaky.end_run(first)  # the claim of the second is undone too
    flaky.cancel(second)
    flaky.clock.advance(minutes=6)
    flaky.run_turns()
    assert flaky.engine.silence is None


def test_recovery_is_repeated_after_failed_commit(flaky: FlakyScheduler) -> None:
    job = flaky.submit()
    flaky.session.close()
    flaky.executor = FakeExecutor()
    boot, flaky.run_turns = flaky.run_turns, lambda: None  # type: ignore[method-assign]
    flaky.start_engine()
    flaky.run_turns = boot  # type: ignore[method-assign]
    flaky.fail()
    flaky.run_turns()
    assert flaky.has_store_error()
    assert flaky.started_jobs() == []
    flaky.run_turns()
    assert flaky.engine.recovery_counts == {"requeued": 1}
    assert flaky.started_jobs() == [job]


def test_refusal_in_a_batch_undoes_only_itself(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    environment = DefaultEnvironment(cwd="/", variables={})
    responses: list[Any] = []

    def make_request(**fields: Any) -> TurnRequest[Any]:
        request = Submission(**{"command": ["true"], **fields})
        return TurnRequest(lambda tx: submit(tx, [request], environment, actor=None), responses.append)

    def crash(tx: Transaction) -> None:
        submit(tx, [Submission(command=["lost"])], environment, actor=None)
        cancel(tx, JobId(1), actor="me")
        raise ZeroDivisionError

    scheduler.engine.turn(
        [
            make_request(),
            make_request(command=[]),
            TurnRequest(lambda tx: cancel(tx, JobId(99), actor="me"), responses.append),
            TurnRequest(crash, responses.append),
            make_request(),
        ]
    )
    assert [type(response).__name__ for response in responses] == [
        "AcceptedSubmit",
        "InvalidInput",
        "NotFound",
        "ZeroDivisionError",
        "AcceptedSubmit",
    ]
    assert isinstance(responses[1], InvalidInput)
    assert isinstance(responses[2], NotFound)
    stored = sorted(response.jobs[0] for response in (responses[0], responses[4]))
    assert [job for (job,) in run_sql("SELECT id FROM job ORDER BY id")] == stored
    assert [event.kind for event in scheduler.events] == ["job.submitted", "job.submitted", "job.dispatched"]
    assert scheduler.status(stored[0]) not in TERMINAL
    assert scheduler.executor.stops == []  # the order of the failed request was not sent either


def test_submit_that_database_refuses_fails_alone(scheduler: Scheduler) -> None:
    """The statements of a turn are sent to the database together."""
    responses: list[Any] = []

    def make_request(**fields: Any) -> TurnRequest[Any]:
        request = Submission(command=["true"], **fields)
        environment = DefaultEnvironment(cwd="/", variables={})
        return TurnRequest(lambda tx: submit(tx, [request], environment, actor=None), responses.append)

    scheduler.engine.turn(
        [make_request(name="one"), make_request(name="half a character: \ud800"), make_request(name="three")]
    )
    first, refused, third = responses
    assert isinstance(refused, Exception)
    assert [scheduler.job(response.jobs[0]).spec.name for response in (first, third)] == ["one", "three"]


def test_draining_engine_starts_nothing_and_records_ends(scheduler: Scheduler) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.engine.is_draining = True
    scheduler.end_run(first)
    assert scheduler.status(first) is Status.COMPLETED
    assert scheduler.started_jobs() == [first]
    assert scheduler.status(second) is Status.QUEUED
