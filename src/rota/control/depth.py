"""Periodic log line with the depth of the queue.

After `notify`, a thread logs the depth one interval later, and repeats that until the queue is empty. While it is
empty, the thread sleeps without a timer.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from rota.db.session import Reader
from rota.errors import RotaError
from rota.jobs.queries import ViewContext
from rota.kernel.status import STARTED
from rota.kernel.verdict import WaitKind

log = logging.getLogger("rota.depth")

_MAX_FLOWS = 10
_WAIT_TEXTS = {
    WaitKind.DEPENDENCIES: "waiting on dependencies",
    WaitKind.PINNED_HEAD: "waiting on a pinned head",
    WaitKind.LOCKS: "waiting on locks",
    WaitKind.DELAY: "delayed",
}


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


def depth_line(reader: Reader, context: ViewContext) -> str | None:
    """Return the line, or `None` if no jobs are waiting."""
    pauses = reader.pauses.state(holds=context.holds)
    ready: Counter[str] = Counter()
    paused: Counter[str] = Counter({"": reader.lanes.count_paused(pauses)[1]})
    for lane in reader.lanes.scopes():
        (paused if pauses.is_paused(lane.scopes, lane.breaker_keys) else ready)[lane.flow] += lane.ready_count
    counts, waiting = reader.jobs.count_active()
    if not ready.total() and not paused.total() and not waiting:
        return None
    parts = [f"{ready.total()} ready{_format_flows(ready)}"]
    parts += [f"{paused.total()} paused{_format_flows(paused)}"] if paused.total() else []
    parts += [f"{waiting[kind]} {text}" for kind, text in _WAIT_TEXTS.items() if waiting.get(kind)]
    return f"depth: {', '.join(parts)}, {sum(counts.get(status, 0) for status in STARTED)} running"


def _format_flows(depths: Counter[str]) -> str:
    """Format the depths of the flows, deepest first."""
    flows = sorted(
        ((flow, count) for flow, count in depths.items() if flow and count), key=lambda depth: (-depth[1], depth[0])
    )
    shown = [f"flow {flow} {count}" for flow, count in flows[:_MAX_FLOWS]]
    shown += [f"{len(flows) - _MAX_FLOWS} more flows"] if len(flows) > _MAX_FLOWS else []
    return f" ({', '.join(shown)})" if shown else ""
