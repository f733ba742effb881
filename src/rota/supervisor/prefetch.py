"""Queue of prefetched runs. When a run ends, the next one starts without a round trip to the scheduler and without a
commit of the scheduler.

    prefetch order ──► pending ──► fewer than `max_running` live: report the start, then start it like an order
                          │
                          └──► anything but a success, or a withdraw: drop the rest, report `withdrawn`

The supervisor decides nothing. The scheduler has decided and committed the starts for the case that every run succeeds;
in every other case it has to decide again. Such a sequence is a series: it ends once and for all, and orders of it that
are still in transit are ignored. So the message stream alone tells the scheduler which prefetched runs were started,
and in which order: each start is reported right after the exit that made room for it.

The queue is not persistent. The next scheduler or the next supervisor finds the started runs among all runs; the others
never started.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rota.supervisor import protocol
from rota.supervisor.run import SupervisedRun

TYPE_CHECKING = False  # the typing module would cost half a megabyte
if TYPE_CHECKING:
    from typing import Any, Protocol

    Fields = dict[str, Any]
    Environment = dict[str, str] | None
    StartRun = Callable[[Fields, Environment], bool]

    class SendPrefetchLine(Protocol):
        def __call__(self, line: bytes, within: float = 0.0) -> None: ...


_NO_SERIES = -1
END_REPORT_DELAY = 0.01
"""Seconds that an exit report may wait to be sent with others if its capacity is already reused: several reports then
cost the scheduler one commit."""


class PrefetchQueue:
    def __init__(
        self, runs: dict[int, SupervisedRun], live_runs: set[int], start: StartRun, send_line: SendPrefetchLine
    ) -> None:
        self._runs = runs
        self._live_runs = live_runs
        self._start = start
        self._send_line = send_line
        self._pending: deque[tuple[Fields, Environment]] = deque()
        self._max_running = 0
        self._series: int | None = None
        """The open series. Its queue may be empty, since more orders may follow."""
        self._latest_series = _NO_SERIES
        self.has_unread_messages: Callable[[], bool] = bool
        """Return whether the scheduler has sent messages that are not read yet. Set by the server."""

    @property
    def has_pending(self) -> bool:
        """Return whether a prefetched run waits for capacity."""
        return bool(self._pending)

    def enqueue(self, order: Fields, environments: dict[int, dict[str, str]]) -> None:
        """Queue the runs of an order, all or none. An invalid order opens its series too, so that ending the series
        names it."""
        if not self._open_series(protocol.read_integer(order, "series")):
            return
        max_running, starts = protocol.read_integer(order, "max_running"), protocol.read_starts(order)
        if not all(map(self._is_running_or_succeeded, protocol.read_integers(order, "known_runs"))):
            self.end_series()
            return
        queued = [(start, environments.get(start["environment_id"])) for start in starts]
        self._max_running = max_running
        self._pending.extend(queued)
        self.start_next()

    def _is_running_or_succeeded(self, number: int) -> bool:
        """Return whether the run is live or has succeeded. Otherwise the scheduler did not know of its end when it
        decided."""
        run = self._runs.get(number)
        return run is not None and (number in self._live_runs or run.has_succeeded)

    def _open_series(self, series: int) -> bool:
        """Return whether this series is open, and open it if it is newer than all before. A closed series stays closed:
        this order was in transit when the series ended."""
        if series > self._latest_series:
            self._pending.clear()
            self._series = self._latest_series = series
        return series == self._series

    def report_end(self, end_line: bytes, *, has_succeeded: bool) -> None:
        """Report an exit, then start the next run or end the series."""
        continues = self._series is not None and has_succeeded
        self._send_line(end_line, END_REPORT_DELAY if continues and self._pending else 0.0)
        if continues:
            self.start_next()
        else:
            self.end_series()

    def start_next(self) -> None:
        """Start runs while there is capacity. Wait until all messages of the scheduler are read: one may withdraw the
        series, and the scheduler does not wait for the answer indefinitely. The last start is reported at once."""
        while self._pending and len(self._live_runs) < self._max_running and not self.has_unread_messages():
            order, environment = self._pending.popleft()
            line = protocol.encode_numeric_message("prefetch_started", run=order["run"], at=time.time())
            self._send_line(line, END_REPORT_DELAY if self._pending else 0.0)
            if not self._start(order, environment):
                self._send_line(protocol.encode_refusal(protocol.DUPLICATE_RUN, {"type": "start", "run": order["run"]}))
                self.end_series()

    def end_series(self) -> None:
        """End the series, because something happened that the scheduler did not assume."""
        series = self._series
        if series is not None:
            self._close_series()
            self._send_withdrawn(series)

    def withdraw(self, series: int) -> None:
        """Withdraw a series. Always answered, because the scheduler waits for it."""
        self._latest_series = max(self._latest_series, series)
        if series == self._series:
            self._close_series()
        self._send_withdrawn(series)

    def reset(self) -> None:
        """Forget all series when the scheduler disconnects. The next scheduler counts from the beginning."""
        self._close_series()
        self._latest_series = _NO_SERIES

    def _close_series(self) -> None:
        self._pending.clear()
        self._series = None

    def _send_withdrawn(self, series: int) -> None:
        self._send_line(protocol.encode_message(type="withdrawn", series=series))
