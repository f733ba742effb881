"""A directory that does not respond fails only the requests and schedules that name it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rota.blocking import BlockingCalls
from rota.errors import ServiceUnavailable
from rota.jobs import submit_preparation
from rota.jobs.submission import Submission
from rota.jobs.submit_preparation import SubmitPreparer
from tests.engine.schedule_harness import ScheduleDriver
from tests.harness import DEFAULT_ENVIRONMENT, Scheduler


@pytest.fixture
def mount(make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    mount = Mount(make_scheduler(**{"global": 0}), monkeypatch)
    yield mount
    mount.is_back.set()


class Mount:
    """Scheduler on which `/dead` does not respond until it is back. Preflight and schedule timer are the real ones."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_back = threading.Event()
        self.probes = 0
        self.driver = ScheduleDriver(scheduler)
        self._find_repository = scheduler.probe.find_repository
        monkeypatch.setattr(scheduler.probe, "find_repository", self._repository_of)
        preparer = SubmitPreparer(
            home="/nowhere",
            read=self.driver.read,
            settings=lambda: scheduler.settings,
            probe=scheduler.probe,
            fact_cache=scheduler.engine.fact_cache,
            blocking_calls=BlockingCalls(),
        )
        self.run_preflight = partial(preparer.run_preflight, default_environment=DEFAULT_ENVIRONMENT)
        self.timer = self.driver.make_timer(self.run_preflight)

    def _repository_of(self, directory: str) -> str | None:
        if directory.startswith("/dead"):
            self.probes += 1
            self.is_back.wait()
        return self._find_repository(directory)

    def add(self, name: str, cwd: str) -> None:
        self.driver.add_schedule("* * * * *", name=name, job={"needs": ["custom:a:b"], "cwd": cwd})

    async def minute(self) -> None:
        self.driver.clock.advance(minutes=1)
        while await self.timer.fire_due() == 0.0:
            pass


def test_fires_on_dead_mount_use_one_thread_and_affect_no_other_schedule(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit_preparation, "_PROBE_TIMEOUT", 0.05)
    mount.add("dead", "/dead")
    mount.add("alive", "/")

    async def hour() -> None:
        for _ in range(60):
            await mount.minute()
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 60) == 1

    asyncio.run(hour())
    assert {fire.state for fire in mount.driver.list_fires("alive")} == {"fired"}
    assert len(mount.driver.list_fires("alive")) == 60
    assert [fire.state for fire in mount.driver.list_fires("dead")] == ["failed"] * 60
    assert {fire.reason for fire in mount.driver.list_fires("dead")} == {
        "the file system does not answer; nothing was stored, so submit again later"
    }
    assert mount.probes == 1


def test_submits_on_dead_mount_use_one_thread(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_preparation, "_PROBE_TIMEOUT", 0.05)
    request = Submission(command=["true"], needs=["custom:a:b"], cwd="/dead")

    async def submit_many() -> list[Any]:
        calls = [mount.run_preflight([request]) for _ in range(100)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert {type(result) for result in asyncio.run(submit_many())} == {ServiceUnavailable}
    assert mount.probes == 1


def test_other_schedules_fire_during_a_slow_preflight(mount: Mount) -> None:
    """The preflight may take its 20 s; meanwhile minutes pass, and no other schedule waits for it."""
    mount.add("dead", "/dead")
    mount.add("alive", "/")

    async def check() -> None:
        mount.driver.clock.advance(minutes=1)
        running = asyncio.ensure_future(mount.timer.run())
        try:
            await wait_until(lambda: len(mount.driver.list_fires("alive")) == 1)
            mount.driver.clock.advance(minutes=1)
            mount.driver.schedules_changed.set()
            await wait_until(lambda: len(mount.driver.list_fires("alive")) == 2)
            assert mount.driver.list_fires("dead") == []
            mount.is_back.set()
            await wait_until(lambda: len(mount.driver.list_fires("dead")) == 2)
        finally:
            running.cancel()

    asyncio.run(check())
    assert {fire.state for fire in mount.driver.list_fires("dead")} == {"fired"}


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - the condition is read from the store
            await asyncio.sleep(0.01)
