"""The engine's thread: waits for requests, the executor, the database and timers, and takes turns.

Requests that arrive during a turn share the next one: group commit without an extra delay. Requests that arrive
together on the event loop are batched before they reach the engine (`engine/calls.py`).
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
from rota.db.database import UnknownOutcomeError
from rota.engine.engine import Engine
from rota.engine.executor_health import RETRY_INTERVAL
from rota.engine.transaction import Transaction, TurnRequest
from rota.executor.port import Executor

log = logging.getLogger("rota.engine")

T = TypeVar("T")

MAX_REQUESTS_PER_TURN = 1000
_LIVENESS_INTERVAL = 1.0
"""Seconds between checks of a waiting caller whether the engine's thread is alive."""
MAX_WAIT = 60.0
"""Longest wait while a timer is pending: the wall clock can be set, and the kernel waits for at most 24 days."""


class EngineLoop:
    def __init__(self, engine: Engine, executor: Executor, clock: Clock, on_crash: Callable[[], None]) -> None:
        self._engine = engine
        self._executor = executor
        self._clock = clock
        self._on_crash = on_crash
        self._requests: deque[TurnRequest[Any]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_stopping = False
        self._has_ended = False
        """Whether the thread has taken its last turn."""
        self._on_started: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="rota-engine", daemon=True)

    def start(self, on_started: Callable[[], object] = lambda: None) -> None:
        """Start the thread. It calls `on_started` after the first turn, when the recovery counts are known."""
        self._on_started = on_started
        self._thread.start()

    def submit(self, *requests: TurnRequest[Any]) -> None:
        """Queue requests for the next turn. Thread-safe."""
        self._requests.extend(requests)
        os.eventfd_write(self._wake, 1)
        if self._has_ended:  # checked after queueing, so that no request stays without a response
            self._refuse_pending()

    def check_clock(self) -> bool:
        """Return whether the wall clock was set back, and if it was, request the turn that shortens the due times:
        a wait for a time does not end earlier by itself. Thread-safe, and cheap enough to be called twice a second."""
        is_set_back = self._engine.is_clock_set_back
        if is_set_back:
            self.submit(TurnRequest(lambda _: None, lambda _: None))
        return is_set_back

    def run_in_turn(self, operation: Callable[[Transaction], T]) -> T:
        """Run `operation` in a turn, and return its result after the commit. Blocks the calling thread."""
        responses: list[Any] = []
        answered = threading.Event()

        def done(result: Any) -> None:
            responses.append(result)
            answered.set()

        self.submit(TurnRequest(operation, done))
        while not answered.wait(_LIVENESS_INTERVAL):
            if not self._thread.is_alive():
                raise UnknownOutcomeError("the engine stopped before it had answered")
        if isinstance(responses[0], Exception):
            raise responses[0]
        result: T = responses[0]
        return result

    def stop(self) -> None:
        """Take the last turn, refuse later requests, and end the thread."""
        self._is_stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._engine.start()
            self._turn()
            self._on_started()
            while not self._is_stopping:
                self._wait()
                self._turn()
            self._turn()
        except BaseException:
            # A scheduler without its engine must not continue.
            log.exception("the engine stopped")
            self._on_crash()
            self._on_started()
        finally:
            self._has_ended = True
            self._refuse_pending()

    def _refuse_pending(self) -> None:
        """Refuse requests that no turn will run. Thread-safe."""
        with suppress(IndexError):
            while True:
                self._engine.refuse([self._requests.popleft()])

    def _turn(self) -> None:
        count = min(len(self._requests), MAX_REQUESTS_PER_TURN)
        requests = [self._requests.popleft() for _ in range(count)]
        self._engine.turn([request for request in requests if not request.is_dry_run])
        for request in requests:
            if request.is_dry_run:
                self._engine.dry_run(request)

    def _wait(self) -> None:
        """Block until a turn is due."""
        while not (self._engine.has_more or self._requests):
            poll = select.poll()
            handlers = {
                self._wake: self._clear_wake,
                self._executor.fileno(): _return_true,
                self._engine.fileno(): self._engine.read_notifications,
            }
            for descriptor in handlers:
                if descriptor >= 0:
                    poll.register(descriptor, select.POLLIN)
            timeout = self._timeout()
            ready = poll.poll(None if timeout is None else timeout * 1000)
            results = [handlers[descriptor]() for descriptor, _ in ready]
            if not ready or any(results):
                return

    def _clear_wake(self) -> bool:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return True

    def _timeout(self) -> float | None:
        """Return the seconds until a timer is due; `None` without one."""
        if self._engine.store_error is not None:
            return RETRY_INTERVAL
        due = []
        if self._engine.next_due is not None:
            due.append((self._engine.next_due - self._clock.now()).total_seconds())
        if self._engine.next_deadline is not None:
            due.append(self._engine.next_deadline - self._clock.monotonic())
        return max(0.0, min(*due, MAX_WAIT)) if due else None


def _return_true() -> bool:
    return True
