"""What a piece of work inside the write transaction has at hand, and how it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.breaker import BreakerPolicy
from rota.core.pool import ConcurrencyPolicy, Limits
from rota.core.retry import RetryPolicies
from rota.core.tick import Plan
from rota.executor.port import Environment, Order, Start
from rota.ids import RunId
from rota.store.claim import OpenRun
from rota.store.session import Session

T = TypeVar("T")
Chance = Callable[[], float]
"""A number between 0 and 1, another one each time."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the configuration that decisions need; replaced as a whole while running."""

    limits: Limits
    policy: ConcurrencyPolicy
    batch_size: int | None
    kill_after: timedelta
    start_timeout: timedelta
    retry: RetryPolicies = RetryPolicies()
    breaker: BreakerPolicy = BreakerPolicy()


class Work:
    """One write transaction. Orders leave for the executor after its commit, never before."""

    def __init__(self, session: Session, settings: Settings, now: datetime, chance: Chance) -> None:
        self.session = session
        self.settings = settings
        self.now = now
        self.chance = chance
        self.orders: list[Order] = []
        self.starts: list[Start | Environment] = []
        self.plan: Plan | None = None
        """What was chosen to start, once that is done; none where nothing may start."""
        self.runs: dict[RunId, OpenRun | None] = {}
        """What is known of the open runs that messages speak of: several may speak of one."""

    def forget(self) -> None:
        """The transaction was undone."""
        self.orders.clear()
        self.runs.clear()

    def run(self, number: RunId) -> OpenRun | None:
        """None when it is not open any more."""
        if number not in self.runs:
            self.runs[number] = self.session.open_run(number)
        return self.runs[number]


class Request(Generic[T]):
    """Something to do inside the next transaction, by itself, and whom to tell after the commit.

    With `see`, the answer is what that makes of the result, at the end of the turn: it is called once for all the
    requests of a turn that share it.
    """

    def __init__(
        self,
        act: Callable[[Work], T],
        done: Callable[[Any], None],
        see: Callable[[Work, Sequence[T]], Sequence[Any]] | None = None,
    ) -> None:
        self.act = act
        self.done = done
        self.see = see
