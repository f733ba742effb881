"""The prober's thread: requested probes, observed changes, retries, dropped facts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest

from rota.db.store import Store
from rota.engine import prober as module
from rota.engine.prober import Prober
from rota.engine.transaction import ProbeRequest, TurnRequest
from rota.errors import StoreError
from rota.ids import JobId
from rota.kernel.facts import FileExists
from rota.kernel.status import Status
from tests.harness import Scheduler

PLAN = FileExists("/plan.md")
TIMEOUT_SECONDS = 30.0


class Rig:
    """Scheduler that takes a turn for each request of a real prober, in the test's own thread."""

    def __init__(self, store: Store, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.requests: Queue[TurnRequest[Any]] = Queue()
        self.prober = Prober(
            store,
            scheduler.probe,
            artifact_paths=lambda: scheduler.settings.artifact_paths,
            fact_cache=scheduler.engine.fact_cache,
            submit=self.requests.put,
        )
        self.prober.start()

    def take(self) -> None:
        """Run the next request."""
        self.scheduler.engine.turn([self.requests.get(timeout=TIMEOUT_SECONDS)])

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.take()


@pytest.fixture
def rig(store: Store, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(module, "PROBE_INTERVAL", 0.01)
    monkeypatch.setattr(module, "RETRY_INTERVAL", 0.01)
    rig = Rig(store, scheduler)
    yield rig
    rig.prober.stop()


def test_probe_request_is_observed(rig: Rig) -> None:
    rig.scheduler.probe.values[PLAN] = True
    rig.prober.submit_probes([ProbeRequest(job=JobId(1), facts=(PLAN,), is_undecided=True)])
    rig.take()
    assert rig.scheduler.engine.fact_cache.observed == {PLAN: True}


def test_change_is_observed_without_a_request(rig: Rig) -> None:
    job = rig.scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    rig.prober.submit_probes([])  # start watching
    rig.scheduler.probe.values[PLAN] = True
    rig.until(lambda: rig.scheduler.status(job) is not Status.WAITING_ON_DEPS)


def test_unchanged_fact_is_not_reported(rig: Rig) -> None:
    rig.scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    count = rig.scheduler.probe.probe_count
    rig.prober.submit_probes([])  # start watching
    timer = threading.Event()
    while rig.scheduler.probe.probe_count < count + 3:
        timer.wait(0.01)
    assert rig.requests.empty()


def test_observation_that_was_not_stored_is_repeated(rig: Rig) -> None:
    rig.prober.submit_probes([ProbeRequest(job=JobId(1), facts=(PLAN,), is_undecided=True)])
    rig.requests.get(timeout=TIMEOUT_SECONDS).on_done(StoreError("the disk is full"))
    rig.take()
    assert rig.scheduler.engine.fact_cache.observed == {PLAN: False}


def test_failed_probe_is_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rig.scheduler.probe.observe
    broken = [OSError("stale file handle"), ValueError("a defect")]

    def observe(facts: Any) -> Any:
        if broken:
            raise broken.pop()
        return real(facts)

    monkeypatch.setattr(rig.scheduler.probe, "observe", observe)
    rig.prober.submit_probes([ProbeRequest(job=JobId(1), facts=(PLAN,), is_undecided=True)])
    rig.take()
    assert not broken


def test_unwatched_facts_are_forgotten(rig: Rig) -> None:
    observed = rig.scheduler.engine.fact_cache.observed
    observed.update(dict.fromkeys([FileExists(f"/{n}") for n in range(2000)], True))
    job = rig.scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    rig.prober.submit_probes([])  # start watching
    rig.until(lambda: set(observed) == {PLAN})
    rig.scheduler.cancel(job)
