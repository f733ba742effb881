"""Restarts and crashes of the server under a working scheduler: nothing is lost, nothing happens twice."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.db.postgres.store import PostgresStore
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import RotaError
from rota.executor.port import ExitReport, StartConfirmation, StartOrder
from rota.ids import JobId, RunId
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, SubmitOutcome, submit
from rota.kernel.status import Status
from tests.harness import Scheduler
from tests.postgres_server import Server, own_server

ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})


class Load:
    """Load that submits, starts and ends jobs turn by turn and records the responses."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.accepted: list[JobId] = []
        self.refused = 0
        self._order_count = 0
        self._running: list[RunId] = []

    def _record_response(self, response: SubmitOutcome | Exception) -> None:
        if isinstance(response, AcceptedSubmit):
            self.accepted += response.jobs
        else:
            assert isinstance(response, RotaError)
            self.refused += 1

    def turn(self, submits: int) -> None:
        """Confirm what has started since the last turn, and end what was confirmed before."""
        scheduler, now = self.scheduler, self.scheduler.clock.moment.timestamp()
        inbox = scheduler.executor.inbox
        inbox += [ExitReport(run=run, at=now, code=0) for run in self._running]
        orders = scheduler.executor.orders[self._order_count :]
        self._order_count += len(orders)
        self._running = [order.run for order in orders if isinstance(order, StartOrder)]
        inbox += [StartConfirmation(run=run, pid=run + 100, start_time=1) for run in self._running]
        submissions = [Submission(command=["true"], locks=[])]
        act: Any = partial(_submit, submissions)
        scheduler.engine.turn([TurnRequest(act, self._record_response) for _ in range(submits)])


def _submit(submissions: list[Submission], tx: Transaction) -> SubmitOutcome:
    return submit(tx, submissions, ENVIRONMENT, actor="tester")


def restart_repeatedly(server: Server, mode: str, permits: threading.Semaphore) -> None:
    for _ in range(3):
        assert permits.acquire(timeout=60)
        server.restart(mode)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_server_restart_under_load_loses_and_repeats_nothing(tmp_path: Path, mode: str) -> None:
    with own_server() as server, closing(Scheduler(PostgresStore(server.url()), tmp_path, {"global": 16})) as scheduler:
        load = Load(scheduler)
        permits = threading.Semaphore(0)
        restarts = threading.Thread(target=restart_repeatedly, args=(server, mode, permits))
        restarts.start()
        hundreds = 0
        while restarts.is_alive():
            load.turn(submits=5)
            if len(load.accepted) // 100 > hundreds:
                hundreds += 1
                permits.release()
        restarts.join()
        assert load.refused  # requests arrived while the server was down
        for _ in range(10_000):
            load.turn(submits=0)
            counts = scheduler.reader.jobs.count_by_status()
            if set(counts) <= {Status.COMPLETED}:
                break
        assert counts == {Status.COMPLETED: len(load.accepted)}  # refused submits left nothing
        assert len(set(load.accepted)) == len(load.accepted)
        assert Counter(scheduler.started_jobs()) == Counter(load.accepted)  # each job started exactly once
        events = [event for _seq, event in scheduler.reader.events.since(0, 10**6)]
        assert Counter(event.job for event in events if event.kind == "job.completed") == Counter(load.accepted)
