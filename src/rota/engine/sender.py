"""Brings messages to their receivers, beside everything else on the event loop.

It looks for what is due, a few of each receiver at once and a bounded number in all (core/place.py), and sleeps until
the next is due or somebody wakes it: nothing is polled, and with nothing to send it does nothing. What comes of a try
is booked by a turn of the engine. Who hangs takes no place from those that take what they are sent. The order in which
a receiver hears of things is not promised. At the end what is under way is let go of, and tried again at the next
start: nothing was booked of it. Whatever a look or a booking fails of, it goes on: it is said once, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from rota.clock import Clock
from rota.core.place import MOST_AT_ONCE, MOST_BEGUN, Places, Standing
from rota.core.signature import headers
from rota.core.webhook import Delivery, HookPolicy, Try
from rota.engine.webhook import book_try
from rota.engine.work import Work
from rota.errors import RotaError, StoreAway, Unavailable
from rota.ids import DeliveryId, show_delivery, show_webhook
from rota.receiver.port import Answer, Post
from rota.store.database import CannotGoOn
from rota.store.session import Reader
from rota.store.webhook import SECRET

log = logging.getLogger("rota.webhook")

T = TypeVar("T")

_MOST_KNOWN = 1_000
"""Receivers that are remembered."""
_TRY_AGAIN = 1.0
_LONGEST_SLEEP = 60.0
"""Seconds: the wall clock can be set under a timer."""


class Look(Protocol):
    def __call__(self, view: Callable[[Reader], T], /) -> Awaitable[T]: ...


class Perform(Protocol):
    def __call__(self, act: Callable[[Work], T], /) -> Awaitable[T]: ...


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    delivery: Delivery
    body: bytes
    secrets: tuple[str, ...]


class Due(msgspec.Struct, frozen=True, kw_only=True):
    letters: Sequence[Letter]
    next_at: datetime | None
    """When there is more to send, if nothing happens before."""


Flying = Mapping[str, Set[DeliveryId]]
"""What is under way, by receiver."""


def due(reader: Reader, *, now: datetime, flying: Flying, known: Mapping[str, Standing]) -> Due:
    """What can be sent now. Receivers take turns: `known` is in the order in which they were served."""
    places = Places({receiver: len(each) for receiver, each in flying.items()}, known)
    endpoints = {show_webhook(each.id): each for each in reader.webhooks()}
    own = reader.meta(SECRET)
    letters: list[Letter] = []
    later: list[datetime] = []
    served = {receiver: number for number, receiver in enumerate(known)}
    for receiver in sorted(reader.receivers(), key=lambda each: served.get(each, -1)):
        endpoint, under_way = endpoints.get(receiver), flying.get(receiver, frozenset())
        held = None if endpoint is None else endpoint.held_until
        if held is not None and held > now:
            later.append(held)
            continue
        most = min(places.room(receiver), MOST_AT_ONCE[Standing.TOOK] if held is None else 1 - len(under_way))
        begun = MOST_BEGUN[places.standing(receiver)]
        secrets = endpoint.secrets(now) if endpoint is not None else (own,) if own is not None else ()
        chosen, next_at = _first(reader, receiver, now, under_way, most, begun)
        places.take(receiver, len(chosen))
        letters += [Letter(delivery=each, body=reader.payload(each.id).encode(), secrets=secrets) for each in chosen]
        later += [] if next_at is None else [next_at]
    return Due(letters=letters, next_at=min(later, default=None))


def _first(
    reader: Reader, receiver: str, now: datetime, under_way: Set[DeliveryId], most: int, most_begun: int
) -> tuple[list[Delivery], datetime | None]:
    """Those that are due, what was tried most before the rest, and when the first is that is still to come. So a
    message comes to an end, however many are behind it. An end of what is under way has it looked again, so for who has
    no room nothing is due."""
    chosen: list[Delivery] = []
    later: list[datetime] = []
    for tried in reader.pending_tries(receiver) if most > 0 else ():
        begun = 0
        for delivery, next_at in reader.pending_of(receiver, tried, most - len(chosen) + len(under_way)):
            if not tried and begun == most_begun:
                break
            begun += 1
            if delivery in under_way:
                continue
            if next_at > now:
                later.append(next_at)
                break
            found = reader.delivery(delivery)
            chosen += [] if found is None else [found]
            if len(chosen) == most:
                return chosen, None
    return chosen, min(later, default=None)


class Sender:
    def __init__(
        self, *, clock: Clock, look: Look, perform: Perform, post: Post, policy: Callable[[], HookPolicy]
    ) -> None:  # fmt: skip
        self._clock = clock
        self._look = look
        self._perform = perform
        self._post = post
        self._policy = policy
        self._flying: dict[str, dict[DeliveryId, asyncio.Task[None]]] = {}
        self._known: dict[str, Standing] = {}
        """Who was served last is last."""
        self._awake = asyncio.Event()
        self._is_stopping = False
        self._in_trouble: set[str] = set()
        """With what, so that it is said once."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def wake(self) -> None:
        """From any thread: there may be something to send."""
        if self._loop is not None:  # its first look sees what there was before
            self._loop.call_soon_threadsafe(self._awake.set)

    async def close(self) -> None:
        tasks = [task for flying in self._flying.values() for task in flying.values()]
        tasks += [] if self._task is None else [self._task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def exchange(self, url: str, message: str, body: bytes, secrets: Sequence[str]) -> Try:
        """Once, now."""
        at, began = self._clock.now(), self._clock.monotonic()
        try:
            answer = await self._post(url, headers(message, body, secrets, at), body, self._policy())
        except Exception as error:
            log.exception("a defect: a message cannot be sent")
            answer = Answer(error=f"a defect in Rota: {error!r}")
        duration = timedelta(seconds=max(0.0, self._clock.monotonic() - began))
        return Try(at=at, duration=duration, status=answer.status, error=answer.error)

    async def _run(self) -> None:
        while not self._is_stopping:
            self._awake.clear()
            try:
                seconds = await self._send_due()
                self._in_trouble.discard("looked up")
            except Exception as error:  # noqa: BLE001 - whatever it is, this task goes on, and says so
                self._say("looked up", error)
                await asyncio.sleep(_TRY_AGAIN)
                continue
            try:
                async with asyncio.timeout(seconds):
                    await self._awake.wait()
            except TimeoutError:
                continue

    def _say(self, what: str, error: Exception) -> None:
        if what in self._in_trouble:
            return
        self._in_trouble.add(what)
        defect = None if isinstance(error, RotaError) else error
        whose = "messages" if defect is None else "a defect: messages"
        log.error("%s cannot be %s, which is tried again: %s", whose, what, error, exc_info=defect)

    async def _send_due(self) -> float | None:
        """Seconds until there is more to send, as far as is known."""
        now = self._clock.now()
        flying = {receiver: frozenset(each) for receiver, each in self._flying.items()}
        found = await self._look(partial(due, now=now, flying=flying, known={**self._known}))
        for letter in () if self._is_stopping else found.letters:
            delivery = letter.delivery
            task = asyncio.create_task(self._bring(letter))
            self._flying.setdefault(delivery.receiver, {})[delivery.id] = task
            task.add_done_callback(partial(self._landed, delivery))
            self._know(delivery.receiver, self._known.pop(delivery.receiver, Standing.NEW))
        if found.next_at is None:
            return None
        return min(max(0.0, (found.next_at - self._clock.now()).total_seconds()), _LONGEST_SLEEP)

    def _know(self, receiver: str, standing: Standing) -> None:
        self._known[receiver] = standing
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _landed(self, delivery: Delivery, _task: asyncio.Task[None]) -> None:
        flying = self._flying[delivery.receiver]
        del flying[delivery.id]
        if not flying:
            del self._flying[delivery.receiver]
        self._awake.set()

    async def _bring(self, letter: Letter) -> None:
        """Send it once and book what came of it. It counts as under way until that is stored, so that trouble with the
        store does not have it sent over and over."""
        delivery = letter.delivery
        done = await self.exchange(delivery.url, delivery.message, letter.body, letter.secrets)
        self._know(delivery.receiver, Standing.TOOK if done.is_success else Standing.FAILED)
        if not done.is_success:
            log.info("%s to %s: %s", show_delivery(delivery.id), delivery.receiver, done.error)
        while True:
            try:
                await self._perform(partial(book_try, delivery=delivery.id, done=done))
                self._in_trouble.discard("booked")
                return
            except StoreAway as error:
                self._say("booked", error)
            except (CannotGoOn, Unavailable):  # the scheduler stops: what would be sent now could not be booked either
                self._is_stopping = True
                return
            except Exception as error:  # noqa: BLE001 - as above
                self._say("booked", error)
            await asyncio.sleep(_TRY_AGAIN)
