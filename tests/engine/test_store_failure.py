"""Commits that fail, as on a full disk: nothing leaves the engine, and the next turn repeats the work."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.db.database import SupersededError
from rota.db.session import Reader, Session
from rota.db.store import Store
from rota.errors import RotaError, StorageFull, StoreError
from rota.executor.port import ExitReport, StartConfirmation
from rota.kernel.events import Event
from rota.kernel.status import Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases


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
    original_run_turns, flaky.run_turns = flaky.run_turns, lambda: None  # type: ignore[method-assign]
    flaky.start_engine()
    flaky.run_turns = original_run_turns  # type: ignore[method-assign]
    flaky.fail()
    flaky.run_turns()
    assert flaky.has_store_error()
    assert flaky.started_jobs() == []
    flaky.run_turns()
    assert flaky.engine.recovery_counts == {"requeued": 1}
    assert flaky.started_jobs() == [job]
