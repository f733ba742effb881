"""The prober's thread: it answers, notices, sleeps, and tries again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest

from harness import Scheduler
from rota.core.fact import File
from rota.core.status import Status
from rota.engine import prober as module
from rota.engine.prober import Prober
from rota.engine.work import Question, Request
from rota.errors import StoreError
from rota.ids import JobId
from rota.store.port import Store

PLAN = File("/plan.md")
PATIENCE = 30.0


class Rig:
    """A scheduler that takes a turn for each request of a real prober, in the test's own thread."""

    def __init__(self, store: Store, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.requests: Queue[Request[Any]] = Queue()
        self.prober = Prober(
            store,
            scheduler.probe,
            places=lambda: scheduler.settings.places,
            known=scheduler.engine.known,
            submit=self.requests.put,
        )
        self.prober.start()

    def take(self) -> None:
        """The next request, done."""
        self.scheduler.engine.turn([self.requests.get(timeout=PATIENCE)])

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.take()


@pytest.fixture
def rig(store: Store, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(module, "PERIOD", 0.01)
    monkeypatch.setattr(module, "AGAIN", 0.01)
    rig = Rig(store, scheduler)
    yield rig
    rig.prober.stop()


def test_a_question_is_answered(rig: Rig) -> None:
    rig.scheduler.probe.world[PLAN] = True
    rig.prober.ask([Question(job=JobId(1), facts=(PLAN,), is_undecided=True)])
    rig.take()
    assert rig.scheduler.engine.known.seen == {PLAN: True}


def test_a_change_is_noticed_without_a_question(rig: Rig) -> None:
    job = rig.scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    rig.prober.ask([])
    rig.scheduler.probe.world[PLAN] = True
    rig.until(lambda: rig.scheduler.status(job) is not Status.WAITING_ON_DEPS)


def test_what_does_not_change_is_not_told(rig: Rig) -> None:
    rig.scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    looks = rig.scheduler.probe.looks
    rig.prober.ask([])
    seen = threading.Event()
    while rig.scheduler.probe.looks < looks + 3:
        seen.wait(0.01)
    assert rig.requests.empty()


def test_an_answer_that_could_not_be_taken_comes_again(rig: Rig) -> None:
    rig.prober.ask([Question(job=JobId(1), facts=(PLAN,), is_undecided=True)])
    rig.requests.get(timeout=PATIENCE).done(StoreError("the disk is full"))
    rig.take()
    assert rig.scheduler.engine.known.seen == {PLAN: False}


def test_a_probe_that_breaks_is_asked_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rig.scheduler.probe.look
    broken = [OSError("stale file handle"), ValueError("a defect")]

    def look(facts: Any) -> Any:
        if broken:
            raise broken.pop()
        return real(facts)

    monkeypatch.setattr(rig.scheduler.probe, "look", look)
    rig.prober.ask([Question(job=JobId(1), facts=(PLAN,), is_undecided=True)])
    rig.take()
    assert not broken


def test_what_nobody_waits_for_is_forgotten_in_the_end(rig: Rig) -> None:
    known = rig.scheduler.engine.known.seen
    known.update(dict.fromkeys([File(f"/{n}") for n in range(2000)], True))
    job = rig.scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    rig.prober.ask([])
    rig.until(lambda: set(known) == {PLAN})
    rig.scheduler.cancel(job)
