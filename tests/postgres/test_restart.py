"""The server stopped, killed and started under a scheduler at work: nothing lost, nothing twice."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness import Scheduler
from postgres_server import Server, own_server
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Answer, Submitted, submit
from rota.core.status import Status
from rota.engine.work import Request, Work
from rota.errors import RotaError
from rota.executor.port import Exited, Start, Started
from rota.ids import JobId, RunId
from rota.store.postgres.store import PostgresStore

AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})


class Load:
    """Submits, starts and ends jobs turn by turn, and remembers what it was told."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.accepted: list[JobId] = []
        self.refused = 0
        self._seen = 0
        self._running: list[RunId] = []

    def _told(self, answer: Answer | Exception) -> None:
        if isinstance(answer, Submitted):
            self.accepted += answer.jobs
        else:
            assert isinstance(answer, RotaError)
            self.refused += 1

    def turn(self, submits: int) -> None:
        """What has started since the last turn is confirmed and what was confirmed before ends."""
        scheduler, now = self.scheduler, self.scheduler.clock.moment.timestamp()
        inbox = scheduler.executor.inbox
        inbox += [Exited(run=run, at=now, code=0) for run in self._running]
        orders = scheduler.executor.orders[self._seen :]
        self._seen += len(orders)
        self._running = [order.run for order in orders if isinstance(order, Start)]
        inbox += [Started(run=run, pid=run + 100, start_time=1) for run in self._running]
        wanted = [Submission(command=["true"], locks=[])]
        act: Any = partial(_submit, wanted)
        scheduler.engine.turn([Request(act, self._told) for _ in range(submits)])


def _submit(wanted: list[Submission], work: Work) -> Answer:
    return submit(work, wanted, AROUND, actor="tester")


def restart(server: Server, mode: str, go: threading.Semaphore) -> None:
    for _ in range(3):
        assert go.acquire(timeout=60)
        server.restart(mode)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_restarted_under_load(tmp_path: Path, mode: str) -> None:
    with own_server() as server, closing(Scheduler(PostgresStore(server.url()), tmp_path, {"global": 16})) as scheduler:
        load = Load(scheduler)
        go = threading.Semaphore(0)
        restarts = threading.Thread(target=restart, args=(server, mode, go))
        restarts.start()
        asked = 0
        while restarts.is_alive():
            load.turn(submits=5)
            if len(load.accepted) // 100 > asked:
                asked += 1
                go.release()
        restarts.join()
        assert load.refused  # the load was there
        for _ in range(10_000):
            load.turn(submits=0)
            counts = scheduler.reader.counts()
            if set(counts) <= {Status.COMPLETED}:
                break
        assert counts == {Status.COMPLETED: len(load.accepted)}  # what was refused has left nothing
        assert len(set(load.accepted)) == len(load.accepted)
        assert Counter(scheduler.started()) == Counter(load.accepted)  # each was started, and once
        events = [event for _seq, event in scheduler.reader.events_since(0, 10**6)]
        assert Counter(event.job for event in events if event.kind == "job.completed") == Counter(load.accepted)
