"""Blocking calls that may never return, such as a `stat` on a dead mount or a name lookup.

Each call runs in a daemon thread of its own, so that it blocks neither the shared thread pool nor the exit of the
process.

`BlockingCalls` runs one call per key at a time. Further calls for the key wait in line, as long as the calls before
them return in time. Once a call is overdue, every call for its key raises `TimeoutError` immediately until that call
returns after all. A dead key therefore holds one thread, however often it is used.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def start_thread(function: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run the function in a daemon thread and return a future of its result or exception."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def set_result(value: T) -> None:
        if not result.done():
            result.set_result(value)

    def set_exception(error: Exception) -> None:
        if not result.done():
            result.set_exception(error)

    def run() -> None:
        try:
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - the caller awaits it
                loop.call_soon_threadsafe(set_exception, error)
            else:
                loop.call_soon_threadsafe(set_result, value)
        except RuntimeError:  # the event loop is closed
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


class BlockingCalls:
    """Blocking calls, one at a time per key. Not thread-safe: use it on the event loop only."""

    def __init__(self) -> None:
        self._in_progress: dict[Hashable, asyncio.Future[bool]] = {}
        """By key: done as soon as the call has returned (True) or is overdue (False)."""

    async def run(self, keys: Iterable[Hashable], time_limit: float, function: Callable[[], T]) -> T:
        """Run the function in a thread that holds all keys.

        Raises `TimeoutError` after `time_limit` seconds, or immediately if an overdue call holds one of the keys.
        """
        own_keys = frozenset(keys)
        while (
            other := next((self._in_progress[key] for key in own_keys if key in self._in_progress), None)
        ) is not None:
            if not await asyncio.shield(other):
                raise TimeoutError
        loop = asyncio.get_running_loop()
        try:
            result = start_thread(function, name="rota-blocking")
        except RuntimeError:  # the system is out of threads
            raise TimeoutError from None
        in_time: asyncio.Future[bool] = loop.create_future()
        self._in_progress.update(dict.fromkeys(own_keys, in_time))

        def settle(is_in_time: bool) -> None:
            if not in_time.done():
                in_time.set_result(is_in_time)

        overdue_timer = loop.call_later(time_limit, settle, False)

        def release_keys(future: asyncio.Future[T]) -> None:
            overdue_timer.cancel()
            for key in own_keys:
                del self._in_progress[key]
            settle(True)
            future.exception()  # marks it as retrieved: the caller may be gone

        result.add_done_callback(release_keys)
        if not await asyncio.shield(in_time):
            raise TimeoutError
        return result.result()
