"""Carrying an ask out: the scheduler is started where it is missing, and asked again where that is safe.

A connection that breaks leaves open whether the request was heard. It is sent again only if that cannot do harm: a
read, a PUT, or a request with an idempotency key. A key that is in flight is waited for: its request was heard, and its
answer comes. A scheduler that says 503 and when to come again is asked again, for a moment; one whose store is away,
for as long as a database server takes to be restarted.

Who may start the scheduler again? Who has had no answer yet always does: somebody asked for it just now. Once there was
one, a missing scheduler is started only if it crashed. One that was stopped on purpose must not be brought back by a
`rota wait` in another terminal. The two are told apart by what is left: in good order the socket is removed before the
lock is let go, so a free lock beside a socket is a crash.

All of it is written once, in async form. Where the parts below block, nothing is ever awaited in earnest, and `run`
gets the result without an event loop.
"""

from __future__ import annotations

from collections.abc import Coroutine

from rota.client.absence import STORE_AWAY
from rota.client.ask import Ask
from rota.client.problem import Broken, NotRunning, Unheard
from rota.client.transport import Answer
from rota.errors import InFlight, RotaError, StoreAway, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from typing import Any, Protocol, TypeVar

    from rota.home import Home

    T = TypeVar("T")

    class Incoming(Protocol):
        """One answer as it comes in."""

        @property
        def status(self) -> int: ...
        @property
        def headers(self) -> dict[str, str]: ...
        @property
        def finished(self) -> bool: ...
        async def receive(self) -> bytes: ...
        def close(self) -> None: ...


_TRIES = 3
_WENT_AWAY = "the scheduler went away before its answer was complete"
_PERHAPS = "the request had been sent before that and may have been carried out: look with `rota list --all` first"
_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two looks whether a key is still in flight."""
_WORTH_WAITING = 3.0
"""Seconds, all in all, for a scheduler that says 503."""


class Carrier:
    """What differs between a program that blocks and one with an event loop is below: `send`, `start` and `pause`."""

    def __init__(self, *, starts: bool, away: float | None = 0.0) -> None:
        """`away` is for how many seconds who waits, reads a log or listens bears with a scheduler that was stopped and
        may be started again; none is without end. One that crashed is always gone on with."""
        self.starts = starts
        self.away = away
        self.bears = True
        """Whether one that was there is waited for at all, or started again where it crashed."""
        self.answered = False
        """Whether we have heard from the scheduler. Who reads a stream of `open` says so himself."""

    async def send(self, ask: Ask) -> Incoming:
        """Over a connection; NotRunning where nobody listens."""
        raise NotImplementedError

    async def start(self) -> None:
        """The scheduler, or wait for one that is just coming."""
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        raise NotImplementedError

    def tell(self, text: str) -> None:
        """Who may sit before it, why it takes so long."""

    def begun(self, incoming: Any, ask: Ask) -> None:
        """It has been sent: who sits before it may be told if nothing comes."""

    async def open(self, ask: Ask) -> Incoming:
        """Send it, starting the scheduler first if need be; the caller reads the answer."""
        try:
            return await self.send(ask)
        except NotRunning:
            if not self.starts:
                raise
            await self.start()
        return await self.send(ask)

    async def ask(self, ask: Ask) -> Answer:
        """Send it and wait for the whole answer."""
        was_heard, waited, tries = False, 0.0, 0
        while True:
            try:
                answer = await self._once(ask)
            except Broken as error:
                was_heard, tries = True, tries + 1
                if not ask.is_repeatable or tries == _TRIES:
                    if ask.method == "GET":
                        raise
                    said = error.message if isinstance(error, Unheard) else _WENT_AWAY
                    raise Broken(f"{said}\n{_PERHAPS}") from error
                await self.pause(_SHORTEST)
            except (InFlight, Unavailable) as error:
                pause = _worth(error, ask, waited, bears=self.bears)
                if pause is None:
                    if was_heard and ask.method != "GET" and isinstance(error, Unavailable):
                        raise Unavailable(f"{error.message}\n{_PERHAPS}") from error
                    raise
                if isinstance(error, StoreAway) and not waited:
                    self.tell(f"{error.message}; waiting for it")
                await self.pause(pause)
                waited += pause
            else:
                self.answered = True
                return answer

    async def _once(self, ask: Ask) -> Answer:
        incoming = await self.open(ask)
        try:
            self.begun(incoming, ask)
            parts = []
            while not incoming.finished:
                parts.append(await incoming.receive())
            return Answer(incoming.status, incoming.headers, b"".join(parts))
        finally:
            incoming.close()


def _worth(error: RotaError, ask: Ask, waited: float, *, bears: bool) -> float | None:
    """Seconds after which to ask again; none where that does not help."""
    if isinstance(error, InFlight) and "Idempotency-Key" in ask.headers:
        pause = min(_LONGEST, max(_SHORTEST, waited))
        return pause if ask.patience is None or waited < ask.patience else None
    # What takes as long as it takes may have begun, and is not begun a second time.
    if error.retry_after is None or not ask.is_repeatable or ask.patience is None:
        return None
    most = STORE_AWAY if bears and isinstance(error, StoreAway) else _WORTH_WAITING
    return error.retry_after if waited + error.retry_after <= most else None


def bring_back(home: Home, *, answered: bool, bears: bool = True) -> None:
    """For who found no scheduler. `answered`: he has had an answer of one. `bears`: he waits for it to come back."""
    from rota.client import autostart

    if answered:
        if not bears:
            raise Unavailable("the scheduler is not there any more; `rota up` starts it, then ask again") from None
        if autostart.comes_back(home):
            return
        if not home.socket.exists():
            raise Unavailable("the scheduler was stopped meanwhile; `rota up` starts it, then ask again") from None
    autostart.start(home)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of what never waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("what blocks gives nothing to an event loop")


def each(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of what never waits for an event loop."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())
