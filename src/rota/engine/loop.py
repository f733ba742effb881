"""The engine's thread: waits for requests, for the executor, for the database and for timers, and takes turns.

Requests that arrive while a turn is under way are gathered into the next one: group commit without a delay
of its own. What is asked in one go has been gathered before it comes here (`api/gather.py`).
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from rota.clock import Clock
from rota.engine.contact import RETRY_AFTER
from rota.engine.engine import Engine
from rota.engine.work import Request, Work
from rota.executor.port import Executor
from rota.store.database import OutcomeUnknown

log = logging.getLogger("rota.engine")

T = TypeVar("T")

MOST_IN_A_TURN = 1000
_STILL_THERE = 1.0
"""Seconds after which who waits for a turn looks whether the engine is still there."""
LONGEST_WAIT = 60.0
"""The wall clock can be set under a timer, and the kernel waits for 24 days at most: look again at least this often
while one is pending."""


class Loop:
    def __init__(self, engine: Engine, executor: Executor, clock: Clock, on_crash: Callable[[], None]) -> None:
        self._engine = engine
        self._executor = executor
        self._clock = clock
        self._on_crash = on_crash
        self._requests: deque[Request[Any]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_stopping = False
        self._is_over = False
        """No turn is taken any more."""
        self._on_begun: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="rota-engine", daemon=True)

    def start(self, on_begun: Callable[[], object] = lambda: None) -> None:
        """Tells, from its own thread, when the first turn is over: from then on it is known what was recovered."""
        self._on_begun = on_begun
        self._thread.start()

    def submit(self, *requests: Request[Any]) -> None:
        """From any thread."""
        self._requests.extend(requests)
        os.eventfd_write(self._wake, 1)
        if self._is_over:  # asked after it was put in line, so that nobody stays there whom nobody serves
            self._refuse()

    def perform(self, act: Callable[[Work], T]) -> T:
        """From a thread that can wait: do it in a turn, and return what it came to after the commit."""
        answers: list[Any] = []
        answered = threading.Event()

        def done(result: Any) -> None:
            answers.append(result)
            answered.set()

        self.submit(Request(act, done))
        while not answered.wait(_STILL_THERE):
            if not self._thread.is_alive():
                raise OutcomeUnknown("the engine stopped before it had answered")
        if isinstance(answers[0], Exception):
            raise answers[0]
        result: T = answers[0]
        return result

    def stop(self) -> None:
        """Take the last turn, refuse what comes after it, and end."""
        self._is_stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._engine.start()
            self._turn()
            self._on_begun()
            while not self._is_stopping:
                self._wait()
                self._turn()
            self._turn()
        except BaseException:
            # Whatever it is: a scheduler whose engine is gone must not go on as if it were there.
            log.exception("the engine stopped")
            self._on_crash()
            self._on_begun()
        finally:
            self._is_over = True
            self._refuse()

    def _refuse(self) -> None:
        """From any thread: there is no turn any more, and none of this was begun."""
        with suppress(IndexError):
            while True:
                self._engine.refuse([self._requests.popleft()])

    def _turn(self) -> None:
        count = min(len(self._requests), MOST_IN_A_TURN)
        requests = [self._requests.popleft() for _ in range(count)]
        self._engine.turn([request for request in requests if not request.is_rehearsal])
        for request in requests:
            if request.is_rehearsal:
                self._engine.rehearse(request)

    def _wait(self) -> None:
        """Until there is something to do."""
        while not (self._engine.has_more or self._requests):
            poll = select.poll()
            heard = {
                self._wake: self._clear,
                self._executor.fileno(): _always,
                self._engine.fileno(): self._engine.hear,
            }
            for descriptor in heard:
                if descriptor >= 0:
                    poll.register(descriptor, select.POLLIN)
            timeout = self._timeout()
            ready = poll.poll(None if timeout is None else timeout * 1000)
            news = [heard[descriptor]() for descriptor, _ in ready]
            if not ready or any(news):
                return

    def _clear(self) -> bool:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return True

    def _timeout(self) -> float | None:
        """Seconds until something is due without anybody saying so; none for ever."""
        if self._engine.trouble is not None:
            return RETRY_AFTER
        due = []
        if self._engine.next_due is not None:
            due.append((self._engine.next_due - self._clock.now()).total_seconds())
        if self._engine.next_deadline is not None:
            due.append(self._engine.next_deadline - self._clock.monotonic())
        return max(0.0, min(*due, LONGEST_WAIT)) if due else None


def _always() -> bool:
    return True
