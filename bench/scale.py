"""What a job costs the scheduler as the queue grows: the real engine and store, with children that end at once.

Processes are left out, so that a cost that grows with the queue cannot hide behind the cost of a spawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from rota.clock import SystemClock
from rota.command.submission import AfterWanted, LockWanted, Submission, Surroundings
from rota.command.submit import submit
from rota.core.pool import Limits, PoolPolicy
from rota.engine.dispatch import Starter
from rota.engine.engine import Engine
from rota.engine.work import Request, Settings
from rota.executor.port import Accounts, Exited, Message, Order, Start, Started
from rota.store.port import Store

_AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})


class Instant:
    """An executor whose children have ended as soon as they are started."""

    def __init__(self) -> None:
        self._inbox: list[Message] = [Accounts(runs=[])]
        self.ended = 0

    def send(self, orders: Sequence[Order]) -> None:
        at = datetime.now(UTC).timestamp()
        for order in orders:
            if isinstance(order, Start):
                self._inbox.append(Started(run=order.run, pid=1, start_time=1))
                self._inbox.append(Exited(run=order.run, at=at, code=0))
                self.ended += 1

    def receive(self) -> list[Message]:
        messages, self._inbox = self._inbox, []
        return messages

    goes_ahead = False

    def withdraw(self, series: int, patience: float) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...


class Bench:
    def __init__(self, store: Store, home: Path, sizes: dict[str, int]) -> None:
        self.executor = Instant()
        self._engine = Engine(
            open_session=store.session,
            executor=self.executor,
            clock=SystemClock(),
            settings=_settings({"global": 0}),
            starter=Starter(home, home / "jobs"),
            publish=lambda _: None,
            ask=lambda _: None,
        )
        self._sizes = sizes
        self._engine.start()
        self._engine.turn()

    def queue(self, wanted: Sequence[Submission]) -> None:
        for first in range(0, len(wanted), 10_000):
            part = wanted[first : first + 10_000]
            answers: list[Any] = []
            act = partial(submit, wanted=part, around=_AROUND, actor=None)
            self._engine.turn([Request(act, answers.append)])
            if isinstance(answers[0], Exception):
                raise answers[0]
            while self._engine.has_more:
                self._engine.turn()

    def per_job(self, count: int) -> float:
        """Microseconds for each of the next `count` jobs to start and end."""
        self._engine.settings = _settings(self._sizes)
        goal = self.executor.ended + count
        begun = time.perf_counter()
        while self.executor.ended < goal:
            self._engine.turn()
        return (time.perf_counter() - begun) / count * 1e6


def _settings(sizes: dict[str, int]) -> Settings:
    return Settings(
        limits=Limits({"flow/*": 1, **sizes}),
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
    """All but the last hundred stand before a pool that lets nothing start."""
    return [_job(type="held", priority=1) for _ in range(count - 100)] + [_job(type="free") for _ in range(100)]


def one_lock(count: int) -> list[Submission]:
    return [_job(locks=[LockWanted(key="repo")]) for _ in range(count)]


def chain(count: int) -> list[Submission]:
    after: list[list[AfterWanted]] = [[]] + [[AfterWanted(job=f"j{n}")] for n in range(count - 1)]
    return [_job(local=f"j{n}", after=before) for n, before in enumerate(after)]


def fan(count: int) -> list[Submission]:
    """One, then all the rest side by side, then one that waits for all of them."""
    middle = [_job(local=f"j{n}", after=[AfterWanted(job="first")]) for n in range(count - 2)]
    last = _job(local="last", after=[AfterWanted(job=f"j{n}") for n in range(count - 2)])
    return [_job(local="first"), *middle, last]


SHAPES: dict[str, tuple[Callable[[int], list[Submission]], dict[str, int]]] = {
    "flat queue": (flat, {"global": 1}),
    "a full pool before a free one": (full_pool_in_front, {"global": 1, "type/held": 0}),
    "one exclusive lock": (one_lock, {"global": 4}),
    "chain": (chain, {"global": 4}),
    "fan-out and fan-in": (fan, {"global": 4}),
}
