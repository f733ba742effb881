"""The cost of a job as the queue grows, with the real engine and store and children that end at once.

There are no processes, so that a cost that grows with the queue cannot hide behind the cost of a spawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from rota.clock import SystemClock
from rota.db.store import Store
from rota.engine.dispatch import StartOrders
from rota.engine.engine import Engine
from rota.engine.transaction import Settings, TurnRequest
from rota.executor.port import ExecutorMessage, ExecutorOrder, ExitReport, RunInventory, StartConfirmation, StartOrder
from rota.jobs.submission import DefaultEnvironment, Dependency, LockRequest, Submission
from rota.jobs.submit import submit
from rota.kernel.pools import PoolPolicy, PoolSizes

_ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})


class InstantExecutor:
    """An executor whose children end when they start."""

    def __init__(self) -> None:
        self._messages: list[ExecutorMessage] = [RunInventory(runs=[])]
        self.ended = 0

    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        at = datetime.now(UTC).timestamp()
        for order in orders:
            if isinstance(order, StartOrder):
                self._messages.append(StartConfirmation(run=order.run, pid=1, start_time=1))
                self._messages.append(ExitReport(run=order.run, at=at, code=0))
                self.ended += 1

    def receive(self) -> list[ExecutorMessage]:
        messages, self._messages = self._messages, []
        return messages

    supports_prefetch = False
    supervisor_pid = 0

    def withdraw(self, series: int, timeout: float) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...


class QueueBench:
    def __init__(self, store: Store, home: Path, sizes: dict[str, int]) -> None:
        self.executor = InstantExecutor()
        self._engine = Engine(
            open_session=store.session,
            executor=self.executor,
            clock=SystemClock(),
            settings=_settings({"global": 0}),
            start_orders=StartOrders(home, home / "jobs"),
            publish=lambda _: None,
            submit_probes=lambda _: None,
        )
        self._sizes = sizes
        self._engine.start()
        self._engine.turn()

    def enqueue(self, submissions: Sequence[Submission]) -> None:
        for first in range(0, len(submissions), 10_000):
            part = submissions[first : first + 10_000]
            responses: list[Any] = []
            request = partial(submit, submissions=part, default_environment=_ENVIRONMENT, actor=None)
            self._engine.turn([TurnRequest(request, responses.append)])
            if isinstance(responses[0], Exception):
                raise responses[0]
            while self._engine.has_more:
                self._engine.turn()

    def measure_job(self, count: int) -> float:
        """Return microseconds per job for the next `count` jobs to start and end."""
        self._engine.settings = _settings(self._sizes)
        goal = self.executor.ended + count
        started = time.perf_counter()
        while self.executor.ended < goal:
            self._engine.turn()
        return (time.perf_counter() - started) / count * 1e6


def _settings(sizes: dict[str, int]) -> Settings:
    return Settings(
        pool_sizes=PoolSizes({"flow/*": 1, **sizes}),
        policy=PoolPolicy(),
        batch_size=None,
        kill_after=timedelta(seconds=5),
        start_timeout=timedelta(minutes=5),
    )


def _job(**fields: Any) -> Submission:
    return Submission(command=["/bin/true"], **fields)


def flat(count: int) -> list[Submission]:
    return [_job() for _ in range(count)]


def full_pool_in_front(count: int) -> list[Submission]:
    """Build jobs of which all but the last hundred wait for a pool of size 0."""
    return [_job(type="held", priority=1) for _ in range(count - 100)] + [_job(type="free") for _ in range(100)]


def one_lock(count: int) -> list[Submission]:
    return [_job(locks=[LockRequest(key="repo")]) for _ in range(count)]


def chain(count: int) -> list[Submission]:
    after: list[list[Dependency]] = [[]] + [[Dependency(job=f"j{n}")] for n in range(count - 1)]
    return [_job(local=f"j{n}", after=before) for n, before in enumerate(after)]


def fan(count: int) -> list[Submission]:
    """Build a first job, then parallel jobs after it, then one after all of them."""
    middle = [_job(local=f"j{n}", after=[Dependency(job="first")]) for n in range(count - 2)]
    last = _job(local="last", after=[Dependency(job=f"j{n}") for n in range(count - 2)])
    return [_job(local="first"), *middle, last]


SHAPES: dict[str, tuple[Callable[[int], list[Submission]], dict[str, int]]] = {
    "flat queue": (flat, {"global": 1}),
    "a full pool before a free one": (full_pool_in_front, {"global": 1, "type/held": 0}),
    "one exclusive lock": (one_lock, {"global": 4}),
    "chain": (chain, {"global": 4}),
    "fan-out and fan-in": (fan, {"global": 4}),
}
