"""The depth log sleeps without a timer when nothing waits, and comes back while something does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from rota.engine.depth import DepthLog
from rota.errors import StoreError

PATIENCE = 10


class Queue:
    """What the log looks at; says when it was looked at."""

    def __init__(self) -> None:
        self.lines: list[str | Exception | None] = []
        self.looks = threading.Semaphore(0)

    def look(self) -> str | None:
        line = self.lines.pop(0) if self.lines else None
        self.looks.release()
        if isinstance(line, Exception):
            raise line
        return line

    def was_looked_at(self) -> bool:
        return self.looks.acquire(timeout=PATIENCE)


@contextmanager
def running(queue: Queue, interval: timedelta | None = timedelta(milliseconds=1)) -> Iterator[DepthLog]:
    log = DepthLog(look=queue.look, interval=lambda: interval)
    log.start()
    yield log
    log.stop()


def test_it_says_what_waits_until_nothing_does_and_then_sleeps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota.depth")
    queue = Queue()
    queue.lines = ["depth: 2 ready", "depth: 1 ready", None]
    with running(queue) as log:
        assert all(queue.was_looked_at() for _ in range(3))
        assert not queue.looks.acquire(timeout=0.1), "it woke though nothing waits"
        queue.lines = ["depth: 5 ready", None]
        log.tell()
        assert all(queue.was_looked_at() for _ in range(2))
        assert not queue.looks.acquire(timeout=0.1)
    assert [record.message for record in caplog.records] == ["depth: 2 ready", "depth: 1 ready", "depth: 5 ready"]


def test_trouble_is_not_an_empty_queue(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota.depth")
    queue = Queue()
    queue.lines = [StoreError("away"), "depth: 1 ready", None]
    with running(queue):
        assert all(queue.was_looked_at() for _ in range(3))
    assert [record.message for record in caplog.records] == ["depth: 1 ready"]


def test_switched_off_it_never_looks() -> None:
    queue = Queue()
    with running(queue, None) as log:
        log.tell()
        assert not queue.looks.acquire(timeout=0.1)


def test_it_is_switched_on_while_running() -> None:
    queue, intervals = Queue(), [None, timedelta(milliseconds=1)]
    queue.lines = [None]
    log = DepthLog(look=queue.look, interval=lambda: intervals[0] if len(intervals) == 1 else intervals.pop(0))
    log.start()
    log.wake()
    assert queue.was_looked_at()
    log.stop()
