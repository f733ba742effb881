"""A directory that does not answer: what names it fails, and nothing else does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.clockwork import AROUND, Clockwork
from harness import Scheduler
from rota.api import submit
from rota.api.alarm import Alarm
from rota.api.context import Context
from rota.aside import Asides
from rota.command.submission import Submission
from rota.errors import Unavailable


@pytest.fixture
def mount(make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    mount = Mount(make_scheduler(**{"global": 0}), monkeypatch)
    yield mount
    mount.is_back.set()


class Mount:
    """`/dead` does not answer until it is back. The looks and the alarm are the real ones."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_back = threading.Event()
        self.looks = 0
        self.works = Clockwork(scheduler)
        self._look = scheduler.probe.repository_of
        monkeypatch.setattr(scheduler.probe, "repository_of", self._repository_of)
        context = SimpleNamespace(
            control=SimpleNamespace(settings=scheduler.settings), known=scheduler.engine.known, probe=scheduler.probe,
            around=AROUND, asides=Asides(),
        )  # fmt: skip
        self.context = cast("Context", context)
        self.alarm = Alarm(self.works, partial(submit.look_outside, self.context))

    def _repository_of(self, directory: str) -> str | None:
        if directory.startswith("/dead"):
            self.looks += 1
            self.is_back.wait()
        return self._look(directory)

    def add(self, name: str, cwd: str) -> None:
        self.works.add("* * * * *", name=name, job={"needs": ["custom:a:b"], "cwd": cwd})

    async def minute(self) -> None:
        self.works.clock.advance(minutes=1)
        while await self.alarm.round() == 0.0:
            pass


def test_no_number_of_fires_takes_more_than_one_thread_or_touches_another_schedule(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "_LOOK_OUTSIDE", 0.05)
    mount.add("dead", "/dead")
    mount.add("alive", "/")

    async def hour() -> None:
        for _ in range(60):
            await mount.minute()
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 60) == 1

    asyncio.run(hour())
    assert {each.state for each in mount.works.fires("alive")} == {"fired"}
    assert len(mount.works.fires("alive")) == 60
    assert [each.state for each in mount.works.fires("dead")] == ["failed"] * 60
    assert {each.reason for each in mount.works.fires("dead")} == {
        "the file system does not answer; nothing was stored, so submit it again later"
    }
    assert mount.looks == 1


def test_no_number_of_submits_takes_more_than_one_thread(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_LOOK_OUTSIDE", 0.05)
    wanted = Submission(command=["true"], needs=["custom:a:b"], cwd="/dead")

    async def ask() -> list[Any]:
        asked = [submit.look_outside(mount.context, [wanted]) for _ in range(100)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert {type(each) for each in asyncio.run(ask())} == {Unavailable}
    assert mount.looks == 1


def test_while_one_is_looked_for_the_others_fire_and_it_does_when_there_is_an_answer(mount: Mount) -> None:
    """The look may take its 20 s; meanwhile minutes pass, and nobody waits for it."""
    mount.add("dead", "/dead")
    mount.add("alive", "/")

    async def go() -> None:
        mount.works.clock.advance(minutes=1)
        running = asyncio.ensure_future(mount.alarm.run())
        try:
            await until(lambda: len(mount.works.fires("alive")) == 1)
            mount.works.clock.advance(minutes=1)
            mount.works.schedules_changed.set()
            await until(lambda: len(mount.works.fires("alive")) == 2)
            assert mount.works.fires("dead") == []
            mount.is_back.set()
            await until(lambda: len(mount.works.fires("dead")) == 2)
        finally:
            running.cancel()

    asyncio.run(go())
    assert {each.state for each in mount.works.fires("dead")} == {"fired"}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not is_so():  # noqa: ASYNC110 - what it waits for stands in the store
            await asyncio.sleep(0.01)
