"""Blocking calls that may never return."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from rota.blocking import BlockingCalls, start_thread


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Event that is set only at the end of the test, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def count_threads() -> int:
    return sum(thread.name == "rota-blocking" for thread in threading.enumerate())


def test_hanging_key_holds_one_thread(never: threading.Event) -> None:
    calls, before = BlockingCalls(), count_threads()

    async def run() -> None:
        first = [asyncio.ensure_future(calls.run(["dead"], 0.05, never.wait)) for _ in range(50)]
        results = await asyncio.gather(*first, return_exceptions=True)
        assert {type(result) for result in results} == {TimeoutError}
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await calls.run(["live", "dead"], 3600, never.wait)
        assert count_threads() == before + 1
        assert await calls.run(["live"], 60, lambda: "result") == "result"
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 60) == 1

    asyncio.run(run())


def test_calls_with_the_same_key_wait_in_line() -> None:
    calls, may_return = BlockingCalls(), threading.Event()
    concurrency: list[int] = []
    running = 0

    def call() -> int:
        nonlocal running
        running += 1
        concurrency.append(running)
        may_return.wait()
        running -= 1
        return 1

    async def run() -> None:
        futures = [asyncio.ensure_future(calls.run([n % 2, "all"], 60, call)) for n in range(6)]
        await asyncio.sleep(0)
        may_return.set()
        assert await asyncio.gather(*futures) == [1] * 6
        assert concurrency == [1] * 6

    asyncio.run(run())


def test_key_is_usable_again_after_the_late_return(never: threading.Event) -> None:
    calls = BlockingCalls()

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await calls.run(["dead"], 0.0, never.wait)
        never.set()
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await calls.run(["dead"], 60, lambda: "back") == "back"
                except TimeoutError:
                    await asyncio.sleep(0)
                else:
                    return

    asyncio.run(run())


def test_call_becomes_overdue_after_its_caller_is_cancelled(never: threading.Event) -> None:
    calls = BlockingCalls()

    async def run() -> None:
        cancelled = asyncio.ensure_future(calls.run(["dead"], 0.05, never.wait))
        await asyncio.sleep(0)
        cancelled.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(TimeoutError):
                await calls.run(["dead"], 3600, lambda: 1)

    asyncio.run(run())


def test_exception_of_the_function_is_raised() -> None:
    def fail() -> None:
        raise KeyError("what")

    async def run() -> None:
        with pytest.raises(KeyError, match="what"):
            await start_thread(fail, name="rota-blocking")
        calls = BlockingCalls()
        with pytest.raises(KeyError, match="what"):
            await calls.run(["a"], 60, fail)
        assert await calls.run(["a"], 60, lambda: 1) == 1

    asyncio.run(run())
