"""Which direct executions still have a client.

    the connection they hang on is open       present
    it closes                                 withdrawn at once: a client that was killed leaves nothing behind
    never had one, and somebody polls         present
    never had one, and nobody says a word     withdrawn when `lease` is over, unless it runs a command
    the scheduler was started anew            30 s to come back to what hung on a connection, then withdrawn
    its turn does not come within `wait`      given up, whoever is there

This is memory of the process that serves the connections, and times are monotonic: it needs no clock that can be
set, and it works while the scheduler runs, not at its next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from rota.command.slot import give_up, lapse, withdraw
from rota.config import Direct
from rota.core.slot import Slot
from rota.duration import show_duration
from rota.engine.work import Work
from rota.errors import NotFound, RotaError
from rota.ids import SlotId, show_slot

log = logging.getLogger("rota.api")

COME_BACK = timedelta(seconds=30)
"""After the scheduler's start, for the clients of slots that it found."""
GONE = "its client went away"
WAIT_OVER = "wait over: its turn did not come in time"
AGAIN_AFTER = 1.0
"""Seconds until a withdrawal that could not be stored is tried again."""


class Perform(Protocol):
    def __call__(self, act: Callable[[Work], Any], /) -> Awaitable[Any]: ...


class Hold:
    """A connection that a slot hangs on."""

    is_over = False
    """The slot has ended: there is nothing left to withdraw."""


class Presence:
    """On the event loop only."""

    def __init__(self, perform: Perform, direct: Callable[[], Direct]) -> None:
        self._perform = perform
        self._direct = direct
        self._connections: Counter[SlotId] = Counter()
        self._polls: Counter[SlotId] = Counter()
        self._silences: dict[SlotId, asyncio.TimerHandle] = {}
        """When the silence of its client has lasted too long."""
        self._waits: dict[SlotId, asyncio.TimerHandle] = {}
        """When it has waited too long for its turn."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.expired = 0
        """Found at the start, and nobody came back for them."""

    def expect(self, slot: SlotId, wait: timedelta | None = None) -> None:
        """It is new, or its client is back and says how long it still waits."""
        self.hear(slot)
        limit = self._direct().wait if wait is None else wait
        _replace(self._waits, slot, limit, partial(self._wait_is_over, slot))

    def time_left(self, slot: SlotId) -> float | None:
        """Seconds that it may still wait."""
        timer = self._waits.get(slot)
        return None if timer is None else max(0.0, timer.when() - asyncio.get_running_loop().time())

    def adopt(self, slots: Iterable[Slot]) -> None:
        """Those that the scheduler found when it started. Some may be back already. One that runs a command and never
        hung on a connection needs nobody."""
        for found in slots:
            slot = found.id
            if slot in self._waits:
                continue
            is_back = self._connections[slot] or self._polls[slot] or slot in self._silences
            self.expect(slot)
            if not is_back and (found.is_attended or found.run is None):
                _replace(self._silences, slot, COME_BACK, partial(self._nobody_came_back, slot))

    def hear(self, slot: SlotId) -> None:
        """A word of its client: the lease begins anew."""
        if not self._connections[slot] and not self._polls[slot] and not self._is_closed:
            lease = self._direct().lease
            reason = f"no word of its client for {show_duration(lease)}"
            _replace(self._silences, slot, lease, partial(self._lapse, slot, reason))

    def forget(self, slot: SlotId) -> None:
        """It has ended."""
        for timers in (self._silences, self._waits):
            if slot in timers:
                timers.pop(slot).cancel()

    @contextmanager
    def attending(self, slot: SlotId, hold: Hold) -> Iterator[None]:
        """A connection that it hangs on: when the last of these closes, nobody wants it any more."""
        self._connections[slot] += 1
        self._silence(slot)
        try:
            yield
        finally:
            self._connections[slot] -= 1
            is_last = not self._connections[slot]
            if is_last:
                del self._connections[slot]
            if hold.is_over:
                self.forget(slot)
            elif is_last:
                self._withdraw(slot, GONE)

    @contextmanager
    def polling(self, slot: SlotId) -> Iterator[None]:
        """A request that waits for news of it. Anybody may ask: what hangs on a connection is not kept by this."""
        self._polls[slot] += 1
        self._silence(slot)
        try:
            yield
        finally:
            self._polls[slot] -= 1
            if not self._polls[slot]:
                del self._polls[slot]
                self.hear(slot)

    def close(self) -> None:
        """The scheduler ends: connections that break from here on are not their clients' doing."""
        self._is_closed = True
        for timer in (*self._silences.values(), *self._waits.values()):
            timer.cancel()

    def _silence(self, slot: SlotId) -> None:
        if slot in self._silences:
            self._silences.pop(slot).cancel()

    def _wait_is_over(self, slot: SlotId) -> None:
        self._waits.pop(slot, None)
        self._do(slot, partial(give_up, slot=slot, reason=WAIT_OVER))

    def _nobody_came_back(self, slot: SlotId) -> None:
        reason = f"its client did not come back within {show_duration(COME_BACK)} of the scheduler's start"

        def expire(work: Work) -> None:
            found = work.session.slot(slot)
            if found is not None and found.finished_at is None:
                withdraw(work, slot, reason=reason)
                work.afterwards.append(self._count)

        self.forget(slot)
        self._do(slot, expire)

    def _count(self) -> None:
        """After the commit, from the engine's thread."""
        self.expired += 1

    def _lapse(self, slot: SlotId, reason: str) -> None:
        self._silences.pop(slot, None)
        self._do(slot, partial(lapse, slot=slot, reason=reason))

    def _withdraw(self, slot: SlotId, reason: str) -> None:
        self.forget(slot)
        self._do(slot, partial(withdraw, slot=slot, reason=reason))

    def _do(self, slot: SlotId, act: Callable[[Work], Any]) -> None:
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._try(slot, act))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _try(self, slot: SlotId, act: Callable[[Work], Any]) -> None:
        """A full disk must not leave a place taken for good."""
        while not self._is_closed:
            try:
                await self._perform(act)
            except NotFound:
                return
            except RotaError as error:
                log.warning("%s could not be withdrawn: %s; trying again", show_slot(slot), error.message)
                await asyncio.sleep(AGAIN_AFTER)
            else:
                return


def _replace(timers: dict[SlotId, asyncio.TimerHandle], slot: SlotId, after: timedelta, act: Callable[[], Any]) -> None:
    if slot in timers:
        timers[slot].cancel()
    timers[slot] = asyncio.get_running_loop().call_later(after.total_seconds(), act)
