"""Periodic log line with the depth of the queue: a thread that sleeps without a timer while the queue is empty.

After `notify`, the thread logs the depth one interval later, and repeats that until the queue is empty.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from rota.errors import RotaError

log = logging.getLogger("rota.depth")


class QueueDepthLog:
    def __init__(self, *, format_depth: Callable[[], str | None], interval: Callable[[], timedelta | None]) -> None:
        """`format_depth` returns `None` for an empty queue. Without an interval nothing is logged."""
        self._format_depth = format_depth
        self._interval = interval
        self._has_activity = threading.Event()
        self._interval_changed = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="rota-depth", daemon=True)

    def start(self) -> None:
        self._has_activity.set()  # there may be a queue already
        self._thread.start()

    def notify(self) -> None:
        """Report that jobs may be waiting. Thread-safe."""
        if not self._has_activity.is_set():
            self._has_activity.set()

    def wake(self) -> None:
        """Read the interval again, which may have changed."""
        self._interval_changed.set()
        self._has_activity.set()

    def stop(self) -> None:
        self._is_stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            interval = self._interval()
            if interval is None:
                self._interval_changed.wait()
            else:
                self._has_activity.wait()
            if interval is None or self._interval_changed.wait(interval.total_seconds()):
                self._interval_changed.clear()
            else:
                self.log_depth()

    def log_depth(self) -> None:
        self._has_activity.clear()
        try:
            line = self._format_depth()
        except RotaError:
            self._has_activity.set()  # the engine reports store errors; retry after the next interval
        except Exception:
            log.exception("internal error: the queue depth cannot be logged")
        else:
            if line is not None:
                log.info("%s", line)
                self._has_activity.set()
