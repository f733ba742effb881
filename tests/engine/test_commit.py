"""Effects leave the engine after its commit, and a refusal undoes only its own changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rota.db.session import Reader
from rota.db.store import Store
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import InvalidInput, NotFound
from rota.executor.port import AcknowledgeOrder, ExecutorOrder, StartOrder
from rota.ids import JobId, RunId
from rota.jobs.cancel import cancel
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.events import Event
from rota.kernel.status import STARTED, TERMINAL
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
    """LESSONS Dispatch (docs/dev/lessons.md): a child started before its claim was durable, or a record was written
    after the side effect."""
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
