"""Shutdown (CON-003): its requests, and the wait for running jobs."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from rota.control.commands import end_running
from rota.db.session import Reader
from rota.db.store import ReaderPool
from rota.duration import format_duration
from rota.engine.calls import EngineCalls
from rota.errors import RotaError
from rota.events.hub import Hub, wait_for
from rota.ids import JobId
from rota.kernel.reservations import format_owner, lock_owner

log = logging.getLogger("rota.daemon")

_STOP_ORDER_TIMEOUT = 30
"""Seconds in which the engine must accept the order to stop all runs."""


class Shutdown:
    def __init__(self, loop: asyncio.AbstractEventLoop, hub: Hub, default_grace: Callable[[], timedelta]) -> None:
        self._loop = loop
        self._hub = hub
        self._default_grace = default_grace
        self.requested = asyncio.Event()
        self.has_crashed = False
        """Whether the engine has crashed."""
        self.has_ended_all_runs = False
        """Whether no run was left when the drain ended."""
        self._grace: timedelta | None = None
        self._kill_runs = False
        self._signals = 0

    def request(self, grace: timedelta | None, *, kills: bool) -> timedelta:
        """Begin to stop; return the grace period in force. A later request replaces it, but does not undo `kills`."""
        self._grace = grace
        self._kill_runs = self._kill_runs or kills
        self.requested.set()
        self._hub.wake()
        return self._grace_period()

    def handle_signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self._hub.wake()
        self.requested.set()

    def record_crash(self) -> None:
        """Stop the process, which cannot work without its engine; runs stay with the supervisor. Callable from any
        thread."""
        self.has_crashed = True
        self._loop.call_soon_threadsafe(self.requested.set)
        self._loop.call_soon_threadsafe(self._hub.wake)

    async def drain(self, readers: ReaderPool, engine: EngineCalls) -> None:
        """Wait for running jobs during the grace period. Jobs that still run then stay with the supervisor, unless the
        request kills them. A second signal ends any wait."""
        log.info("stopping; running jobs have %s to finish", format_duration(self._grace_period()))
        started = self._loop.time()
        try:
            running = await self._wait_for_runs(readers, lambda: started + self._grace_period().total_seconds(), 1)
            if running and self._kill_runs:
                log.warning("killing running jobs: %s", _format_owners(running))
                async with asyncio.timeout(_STOP_ORDER_TIMEOUT):
                    await engine.run_in_turn(end_running)
                running = await self._wait_for_runs(readers, lambda: math.inf, max(1, self._signals))
        except (RotaError, TimeoutError) as error:
            log.error("running jobs are left to the supervisor: %s", error)
            return
        self.has_ended_all_runs = not running
        if running:
            names = _format_owners(running)
            log.warning("still running, left to the supervisor and adopted at the next start: %s", names)

    async def _wait_for_runs(self, readers: ReaderPool, deadline: Callable[[], float], max_signals: int) -> list[JobId]:
        """Wait until no job runs, the deadline passes, or more signals arrive; return the jobs that still run."""
        with self._hub.subscribe(None) as changed:
            while running := await readers.read(_running_owners):
                remaining = deadline() - self._loop.time()
                if self.has_crashed or self._signals > max_signals or remaining <= 0:
                    break
                await wait_for(changed, remaining)
                changed.clear()
        return running

    def _grace_period(self) -> timedelta:
        return self._default_grace() if self._grace is None else self._grace


def _running_owners(reader: Reader) -> list[JobId]:
    """Return running jobs, and running reservations as the lock owners that stand for them."""
    return [*reader.jobs.running(), *map(lock_owner, reader.reservations.running())]


def _format_owners(owners: Sequence[JobId]) -> str:
    return ", ".join(map(format_owner, owners))
