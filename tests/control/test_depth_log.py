"""The depth log sleeps without a timer while the queue is empty, and wakes up while jobs wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from rota.control.depth import QueueDepthLog
from rota.errors import StoreError

TIMEOUT_SECONDS = 10


class Queue:
    """Source of the depth lines. Counts how often it is read."""

    def __init__(self) -> None:
        self.lines: list[str | Exception | None] = []
        self.reads = threading.Semaphore(0)

    def read(self) -> str | None:
        line = self.lines.pop(0) if self.lines else None
        self.reads.release()
        if isinstance(line, Exception):
            raise line
        return line

    def was_read(self) -> bool:
        return self.reads.acquire(timeout=TIMEOUT_SECONDS)


@contextmanager
def running(queue: Queue, interval: timedelta | None = timedelta(milliseconds=1)) -> Iterator[QueueDepthLog]:
    log = QueueDepthLog(format_depth=queue.read, interval=lambda: interval)
    log.start()
    yield log
    log.stop()


def test_depth_is_logged_until_queue_is_empty(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota.depth")
    queue = Queue()
    queue.lines = ["depth: 2 ready", "depth: 1 ready", None]
    with running(queue) as log:
        assert all(queue.was_read() for _ in range(3))
        assert not queue.reads.acquire(timeout=0.1), "it woke up although the queue is empty"
        queue.lines = ["depth: 5 ready", None]
        log.notify()
        assert all(queue.was_read() for _ in range(2))
        assert not queue.reads.acquire(timeout=0.1)
    assert [record.message for record in caplog.records] == ["depth: 2 ready", "depth: 1 ready", "depth: 5 ready"]


def test_store_error_is_not_an_empty_queue(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota.depth")
    queue = Queue()
    queue.lines = [StoreError("away"), "depth: 1 ready", None]
    with running(queue):
        assert all(queue.was_read() for _ in range(3))
    assert [record.message for record in caplog.records] == ["depth: 1 ready"]


def test_disabled_log_never_reads() -> None:
    queue = Queue()
    with running(queue, None) as log:
        log.notify()
        assert not queue.reads.acquire(timeout=0.1)


def test_log_is_enabled_at_run_time() -> None:
    queue, intervals = Queue(), [None, timedelta(milliseconds=1)]
    queue.lines = [None]
    log = QueueDepthLog(
        format_depth=queue.read, interval=lambda: intervals[0] if len(intervals) == 1 else intervals.pop(0)
    )
    log.start()
    log.wake()
    assert queue.was_read()
    log.stop()
