"""Shutdown (CON-003): who asks for it and how, and the wait for what runs."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from rota.api.context import Context, Hub, wait_for
from rota.command.down import end_running
from rota.core.slot import owner_of, show_owner
from rota.duration import show_duration
from rota.errors import RotaError
from rota.ids import JobId
from rota.store.session import Reader

log = logging.getLogger("rota.daemon")

_LAST_WORD = 30
"""Seconds in which the engine must have heard that what runs is to be ended."""


class Shutdown:
    def __init__(self, loop: asyncio.AbstractEventLoop, hub: Hub, patience: Callable[[], timedelta]) -> None:
        self._loop = loop
        self._hub = hub
        self._usual_patience = patience
        self.asked = asyncio.Event()
        self.has_crashed = False
        """The engine is gone."""
        self._grace: timedelta | None = None
        self._kills = False
        self._signals = 0

    def ask(self, grace: timedelta | None, *, kills: bool) -> None:
        """Asked again, the later word on how long to wait counts; what is to be ended stays so."""
        self._grace = grace
        self._kills = self._kills or kills
        self.asked.set()
        self._hub.wake()

    def signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self._hub.wake()
        self.asked.set()

    def crash(self) -> None:
        """Without its engine the process is of no use; what runs stays with the supervisor. From any thread."""
        self.has_crashed = True
        self._loop.call_soon_threadsafe(self.asked.set)
        self._loop.call_soon_threadsafe(self._hub.wake)

    async def drain(self, context: Context) -> None:
        """Running jobs get the grace period. What still runs then stays with the supervisor, unless it was to be ended.
        A second signal ends the waiting, whatever it is for."""
        log.info("stopping; running jobs have %s to finish", show_duration(self._patience()))
        begun = self._loop.time()
        try:
            left = await self._until_none_runs(context, lambda: begun + self._patience().total_seconds(), 1)
            if left and self._kills:
                log.warning("ending what still runs: %s", _names(left))
                async with asyncio.timeout(_LAST_WORD):
                    await context.perform(end_running)
                left = await self._until_none_runs(context, lambda: math.inf, max(1, self._signals))
        except (RotaError, TimeoutError) as error:
            log.error("what still runs is left to the supervisor: %s", error)
            return
        if left:
            log.warning("still running, left to the supervisor and adopted at the next start: %s", _names(left))

    async def _until_none_runs(self, context: Context, deadline: Callable[[], float], signals: int) -> list[JobId]:
        """What runs when the time is over, or when more than so many signals have come."""
        with self._hub.listening(None) as changed:
            while left := await context.look(_running):
                remaining = deadline() - self._loop.time()
                if self.has_crashed or self._signals > signals or remaining <= 0:
                    break
                await wait_for(changed, remaining)
                changed.clear()
        return left

    def _patience(self) -> timedelta:
        return self._usual_patience() if self._grace is None else self._grace


def _running(reader: Reader) -> list[JobId]:
    """Jobs, and direct executions by their numbers as owners."""
    return [*reader.running_jobs(), *map(owner_of, reader.running_slots())]


def _names(owners: Sequence[JobId]) -> str:
    return ", ".join(map(show_owner, owners))
