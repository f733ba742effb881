"""What may never answer is asked aside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from rota.aside import Asides, begin


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


def threads() -> int:
    return sum(thread.name == "rota-aside" for thread in threading.enumerate())


def test_a_place_that_does_not_answer_holds_one_thread_however_often_it_is_asked_for(never: threading.Event) -> None:
    asides, before = Asides(), threads()

    async def ask() -> None:
        first = [asyncio.ensure_future(asides.ask(["dead"], 0.05, never.wait)) for _ in range(50)]
        told = await asyncio.gather(*first, return_exceptions=True)
        assert {type(each) for each in told} == {TimeoutError}
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asides.ask(["live", "dead"], 3600, never.wait)
        assert threads() == before + 1
        assert await asides.ask(["live"], 60, lambda: "answer") == "answer"
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 60) == 1

    asyncio.run(ask())


def test_who_asks_for_a_place_that_is_being_looked_at_waits_in_line() -> None:
    asides, going = Asides(), threading.Event()
    most: list[int] = []
    inside = 0

    def look() -> int:
        nonlocal inside
        inside += 1
        most.append(inside)
        going.wait()
        inside -= 1
        return 1

    async def ask() -> None:
        asked = [asyncio.ensure_future(asides.ask([n % 2, "all"], 60, look)) for n in range(6)]
        await asyncio.sleep(0)
        going.set()
        assert await asyncio.gather(*asked) == [1] * 6
        assert most == [1] * 6

    asyncio.run(ask())


def test_it_is_asked_again_when_it_has_answered_after_all(never: threading.Event) -> None:
    asides = Asides()

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            await asides.ask(["dead"], 0.0, never.wait)
        never.set()
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await asides.ask(["dead"], 60, lambda: "back") == "back"
                except TimeoutError:
                    await asyncio.sleep(0)
                else:
                    return

    asyncio.run(ask())


def test_one_that_nobody_waits_for_any_more_is_overdue_all_the_same(never: threading.Event) -> None:
    asides = Asides()

    async def ask() -> None:
        gone = asyncio.ensure_future(asides.ask(["dead"], 0.05, never.wait))
        await asyncio.sleep(0)
        gone.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(TimeoutError):
                await asides.ask(["dead"], 3600, lambda: 1)

    asyncio.run(ask())


def test_what_it_raises_is_raised() -> None:
    def fail() -> None:
        raise KeyError("what")

    async def ask() -> None:
        with pytest.raises(KeyError, match="what"):
            await begin(fail, name="rota-aside")
        asides = Asides()
        with pytest.raises(KeyError, match="what"):
            await asides.ask(["a"], 60, fail)
        assert await asides.ask(["a"], 60, lambda: 1) == 1

    asyncio.run(ask())
