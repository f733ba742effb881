"""How the engine stands with its executor: whether there is one, and what keeps it or the machine from starting
anything."""

from __future__ import annotations

import logging

from rota.clock import Clock
from rota.engine.recovery import Unsettled
from rota.errors import Unavailable
from rota.executor.port import Accounts, Executor, Message
from rota.ids import RunId

log = logging.getLogger("rota.engine")

RETRY_AFTER = 1.0
"""Seconds until what failed is tried again: the store, the executor, the machine."""


class Contact:
    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self.is_connected = False
        """Its accounts are settled: it can be told what to start."""
        self.unsettled = Unsettled()
        self.notice: str | None = None
        """What it says is wrong, while nothing is held up by it."""
        self._trouble: str | None = None
        self._retry_at = 0.0
        self._machine_trouble: str | None = None
        self._machine_retry_at = 0.0

    def receive(self) -> list[Message]:
        """What it says. While there is none to be had, nothing starts, and everything else goes on."""
        due: list[Message] = [*self.unsettled.due(self._clock.monotonic())]
        if self._trouble is not None and self._clock.monotonic() < self._retry_at:
            return due
        try:
            messages = self._executor.receive()
        except (Unavailable, OSError) as error:
            if self._trouble is None:
                log.error("%s", error)
            self._trouble = f"nothing can be started: {error}"
            self._retry_at = self._clock.monotonic() + RETRY_AFTER
            self.is_connected = False
            self.unsettled.forget()
            return due
        self._trouble = None
        return [*due, *messages]

    def settle(self, strays: set[RunId]) -> None:
        """Its accounts are booked; what of them is still to be heard of is waited for."""
        self.notice = None
        self.unsettled.forget(strays)
        self.is_connected = True

    def keep(self, accounts: Accounts, error: Exception) -> None:
        """They could not be booked: without them nothing is ever started, so they are tried again."""
        self.is_connected = False
        self.unsettled.keep(accounts, error, self._clock.monotonic())

    def lose(self) -> None:
        self.is_connected = False
        self.unsettled.forget()
        self.notice = None

    def start_failed(self, machine_trouble: str) -> None:
        self._machine_trouble = machine_trouble
        self._machine_retry_at = self._clock.monotonic() + RETRY_AFTER

    def start_succeeded(self) -> None:
        self._machine_trouble = None

    def try_again(self) -> None:
        """A machine that could not start anything a while ago may by now; if it is still so, the next start says so."""
        if self._machine_trouble is not None and self._clock.monotonic() >= self._machine_retry_at:
            self._machine_trouble = None

    @property
    def may_start(self) -> bool:
        return self.is_connected and self._machine_trouble is None and self.unsettled.trouble is None

    @property
    def obstacles(self) -> list[str]:
        """Why nothing at all starts."""
        found = (self._trouble, self.unsettled.trouble, self._machine_trouble)
        return [trouble for trouble in found if trouble is not None]

    @property
    def next_deadline(self) -> float | None:
        due = (
            self.unsettled.next_deadline,
            None if self._trouble is None else self._retry_at,
            None if self._machine_trouble is None else self._machine_retry_at,
        )
        return min((moment for moment in due if moment is not None), default=None)
