"""What a piece of work inside the write transaction has at hand, and how it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from rota.core.breaker import BreakerPolicy
from rota.core.pool import ConcurrencyPolicy, Limits
from rota.executor.port import Order
from rota.store.session import Session

T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the configuration that decisions need; replaced as a whole while running."""

    limits: Limits
    policy: ConcurrencyPolicy
    batch_size: int | None
    kill_after: timedelta
    start_timeout: timedelta
    breaker: BreakerPolicy = BreakerPolicy()


class Work:
    """One write transaction. Orders leave for the executor after its commit, never before."""

    def __init__(self, session: Session, settings: Settings, now: datetime) -> None:
        self.session = session
        self.settings = settings
        self.now = now
        self.orders: list[Order] = []


class Request(Generic[T]):
    """Something to do inside the next transaction, under a savepoint of its own, and whom to tell after the commit."""

    def __init__(self, act: Callable[[Work], T], done: Callable[[T | Exception], None]) -> None:
        self.act = act
        self.done = done
