"""What may never answer, a file system that is gone or a resolver, is asked in a thread of its own that nobody waits
for: the pool that all else shares stays free, and the end of the process does not hang on it.

One look is under way for a place at a time; others wait in line, as long as those before them are answered. From when
one is overdue until it is answered after all, whoever asks for that place is told at once that there is no answer. So
however often a place is asked for, it holds one thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def begin(ask: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """What it returns or raises."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[T] = loop.create_future()

    def returned(answer: T) -> None:
        if not told.done():
            told.set_result(answer)

    def raised(error: Exception) -> None:
        if not told.done():
            told.set_exception(error)

    def run() -> None:
        try:
            try:
                answer = ask()
            except Exception as error:  # noqa: BLE001 - it is whose who asked
                loop.call_soon_threadsafe(raised, error)
            else:
                loop.call_soon_threadsafe(returned, answer)
        except RuntimeError:  # the scheduler has ended meanwhile
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return told


class Asides:
    """Used on the event loop alone."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Future[bool]] = {}
        """By place: done as soon as there is an answer or it is overdue, with whether it came in time."""

    async def ask(self, places: Iterable[Hashable], seconds: float, ask: Callable[[], T]) -> T:
        """Raises `TimeoutError` where there is no answer within that time, or none to be expected."""
        mine = frozenset(places)
        while (other := next((self._under_way[place] for place in mine if place in self._under_way), None)) is not None:
            if not await asyncio.shield(other):
                raise TimeoutError
        loop = asyncio.get_running_loop()
        try:
            answer = begin(ask, name="rota-aside")
        except RuntimeError:  # no thread to be had
            raise TimeoutError from None
        in_time: asyncio.Future[bool] = loop.create_future()
        self._under_way.update(dict.fromkeys(mine, in_time))

        def settle(is_in_time: bool) -> None:
            if not in_time.done():
                in_time.set_result(is_in_time)

        overdue = loop.call_later(seconds, settle, False)

        def ended(told: asyncio.Future[T]) -> None:
            overdue.cancel()
            for place in mine:
                del self._under_way[place]
            settle(True)
            told.exception()  # it may be that nobody is there any more to hear of it

        answer.add_done_callback(ended)
        if not await asyncio.shield(in_time):
            raise TimeoutError
        return answer.result()
