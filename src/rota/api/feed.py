"""Events passed on to who listens, as they happen.

    engine's thread      what was committed; only what somebody may want crosses over
    one task             reads it from the table, once for all, and only while somebody listens
    each listener        a few messages that wait to be sent; a slow one has none, and reads the table for itself

A listener begins behind: it reads the table from where it was, until nothing is left that the task has passed on
before. From then on it is live. When more waits for it than it may keep, it is behind again. Nothing is missed
between the two, because who listens is known to the engine before he looks at the table: what is committed after that
look is passed on, and what was passed on before it is in the table.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from rota.api.audience import Audience
from rota.api.sse import BEAT, BEAT_EVERY, message
from rota.core.event import Entry, Event, Wanted
from rota.errors import RotaError
from rota.ids import JobId
from rota.store.session import Reader
from rota.view.event import Piece, piece
from rota.wire.event import event_form

log = logging.getLogger("rota.api")

T = TypeVar("T")

PIECE = 500
"""Events read at a time."""
MOST_WAITING = 256
"""Messages that wait for one listener."""
_BREATH = 0.02
"""Seconds between two reads of the task, however much happens."""
_RETRY_AFTER = 1.0
"""Seconds until the table is read again when it could not be."""
_SPOKES = 15
"""A period of heartbeats has so many parts, and each listener's beat falls into one of them."""


class Look(Protocol):
    def __call__(self, view: Callable[[Reader], T], /) -> Awaitable[T]: ...


class Listener:
    def __init__(self, wanted: Wanted, since: int = 0) -> None:
        self.wanted = wanted
        self.position = since
        """It has been given all that it wants up to this number."""
        self.is_live = False
        self._sent = since
        """What it wants up to this number has been taken."""
        self._waiting: list[bytes] = []
        self._beats = False
        self._has_news = asyncio.Event()

    def give(self, seq: int, told: bytes) -> None:
        if not self._waiting:
            self._sent = seq - 1
        elif len(self._waiting) >= MOST_WAITING:
            self.fall_behind(self._sent)
            return
        self._waiting.append(told)
        self.position = seq
        self._has_news.set()

    def fall_behind(self, position: int) -> None:
        """What it has not taken, and what comes after this number, it reads for itself."""
        self.is_live = False
        self.position = self._sent if self._waiting else max(self.position, position)
        self._waiting = []
        self._has_news.set()

    def has_read(self, position: int) -> None:
        self.position = position

    def beat(self) -> None:
        self._beats = True
        self._has_news.set()

    def end(self) -> None:
        self._has_news.set()

    async def take(self) -> bytes:
        """What there is to be sent next; nothing where the listener is not live any more, or has been ended."""
        await self._has_news.wait()
        self._has_news.clear()
        told, beats = self._waiting, self._beats
        self._waiting, self._beats = [], False
        return b"".join(told) if told else BEAT if beats else b""


class Feed:
    """`publish` comes from the engine's thread, all else is on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look: Look, *, beat_every: float = BEAT_EVERY) -> None:
        self.is_closed = False
        """The scheduler ends."""
        self._loop = loop
        self._look = look
        self._audience: Audience[Listener] = Audience()
        self._wheel = Wheel(loop, beat_every)
        self._position = 0
        """All that anybody wants up to this number has been passed on."""
        self._upto = 0
        """The number of the last event that was published. Only the engine sets it."""
        self._starts: deque[int] = deque()
        """Numbers behind which there is something to be passed on."""
        self._is_waking = False
        self._has_news = asyncio.Event()
        self._catching_up = asyncio.Lock()
        """Who reads the table for himself does so by turns."""
        self._task: asyncio.Task[None] | None = None

    def publish(self, events: Sequence[Event], upto: int) -> None:
        """`upto` is the number of the last of them. What nobody wants is left out: who begins to listen later reads it
        in the table. What was never published, for whatever reason, is taken along."""
        first, before = upto - len(events), self._upto
        self._upto = upto
        if not self._audience.is_any:
            return
        if 0 < before < first or any(map(self._audience.may_want, events)):
            self._starts.append(min(first, before or first))
            if not self._is_waking:
                self._is_waking = True
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        self._has_news.set()

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        if self._task is None:
            self._task = self._loop.create_task(self._pass_on_all())
        self._audience.add(listener)
        try:
            with self._wheel.turning(listener):
                yield
        finally:
            self._audience.remove(listener)

    async def catch_up(self, listener: Listener, *, complete_from: int = 0, limit: int = PIECE) -> Piece:
        """The next piece that it reads for itself; it is live when there is no more. A job that is new to the chain
        may have had more happen to it than was passed on: then there is another look."""
        wanted, since = listener.wanted, listener.position

        def read(reader: Reader) -> tuple[Piece, list[tuple[JobId, JobId]]]:
            found = piece(reader, wanted, since=since, limit=limit, complete_from=complete_from)
            return found, reader.members_of(wanted.chains)

        async with self._catching_up:
            begun = time.monotonic()
            found, members = await self._look(read)
            are_new = [self._audience.meet(job, chain) for job, chain in members]
            listener.has_read(found.position)
            if found.is_end and found.position >= self._position and not any(are_new):
                listener.is_live = True
            elif not found.is_end:  # a hundred that come back with a day of history leave half of the time to the work
                await asyncio.sleep(time.monotonic() - begun)
        return found

    async def _pass_on_all(self) -> None:
        has_failed = False
        while not self.is_closed:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                await self._pass_on()
                has_failed = False
            except RotaError as error:
                if not has_failed:
                    log.warning("events cannot be read, which is tried again: %s", error.message)
                has_failed = True
                self._has_news.set()
            except Exception:
                log.exception("events cannot be passed on; each stream reads them for itself")
                has_failed = True
                self._leave_to_each()
            await asyncio.sleep(_RETRY_AFTER if has_failed else _BREATH)

    async def _pass_on(self) -> None:
        if not self._wheel.has_live:
            self._pass_over()
            return
        starts = self._taken()
        position = max(self._position, min(starts, default=0))
        has_more = bool(starts)
        try:
            while has_more:
                found = await self._look(partial(piece, wanted=Wanted(), since=position, limit=PIECE))
                has_more = self._give_all(found, position) or not found.is_end
                position = self._position = found.position
        except BaseException:
            self._starts.appendleft(position)
            raise

    def _taken(self) -> list[int]:
        return [self._starts.popleft() for _ in range(len(self._starts))]

    def _pass_over(self) -> None:
        """For when nobody is live. The engine sets the number before it appends, so it is read after these are taken:
        the other way round, one that comes in between would be forgotten and not be behind the position either."""
        self._taken()
        self._position = max(self._position, self._upto)

    def _leave_to_each(self) -> None:
        """Something in them is not as it should be. Who wants that ends over it, and nobody else does."""
        for listener in self._wheel.live:
            listener.fall_behind(self._position)
        self._pass_over()

    def _give_all(self, found: Piece, since: int) -> bool:
        """Whether there was a job that nobody knew of."""
        if found.complete_from is not None:  # collected before it could be passed on: each says so for itself
            for listener in self._wheel.live:
                listener.fall_behind(since)
        are_new = [self._audience.meet(entry.event.job, entry.chain) for entry in found.entries]
        for entry in found.entries:
            told = b""
            for listener in self._audience.who_want(entry):
                if listener.is_live and entry.seq > listener.position:
                    told = told or event_message(entry)
                    listener.give(entry.seq, told)
        return any(are_new)

    def close(self) -> None:
        """The scheduler ends: every stream does."""
        self.is_closed = True
        self._has_news.set()
        self._wheel.stop()


class Wheel:
    """All listeners, each on one of its spokes; a spoke's heartbeats are sent together, so a thousand listeners do not
    wake all at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, period: float) -> None:
        self._loop = loop
        self._step = period / _SPOKES
        self._spokes: list[set[Listener]] = [set() for _ in range(_SPOKES)]
        self._timer: asyncio.TimerHandle | None = None

    @property
    def live(self) -> Iterator[Listener]:
        return (listener for spoke in self._spokes for listener in spoke if listener.is_live)

    @property
    def has_live(self) -> bool:
        return any(True for _ in self.live)

    @contextmanager
    def turning(self, listener: Listener) -> Iterator[None]:
        spoke = min(self._spokes, key=len)
        spoke.add(listener)
        if self._timer is None:
            self._timer = self._loop.call_later(self._step, self._turn)
        try:
            yield
        finally:
            spoke.discard(listener)

    def _turn(self) -> None:
        first, *others = self._spokes
        self._spokes = [*others, first]
        for listener in first:
            listener.beat()
        self._timer = self._loop.call_later(self._step, self._turn) if any(self._spokes) else None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for spoke in self._spokes:
            for listener in spoke:
                listener.end()


def event_message(entry: Entry) -> bytes:
    return message(event_form(entry), event=entry.event.kind, number=entry.seq)
