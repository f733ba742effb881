"""Timed retention: a thread that runs retention at the configured interval.

The time of the last run is stored. So a scheduler that is restarted every hour still runs retention once a day, and one
that was down for a week runs it once. Retention never runs right at the start, when users wait for requests.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta

from rota.clock import Clock
from rota.db.decoding import from_micros
from rota.db.store import Store
from rota.errors import Conflict, RotaError
from rota.retention.collector import RetentionCollector
from rota.retention.model import GcPolicy
from rota.retention.repository import LAST_DAILY_RUN_KEY

log = logging.getLogger("rota.gc")

START_DELAY = timedelta(minutes=1)
"""Earliest run after the start, unless the interval is shorter."""
MAX_WAIT = timedelta(hours=1)
"""Longest sleep: the wall clock can be set, and a machine can be suspended."""
CAUSE = "timer"


class DailyRetention:
    def __init__(
        self, *, collector: RetentionCollector, store: Store, clock: Clock, policy: Callable[[], GcPolicy]
    ) -> None:
        self._collector = collector
        self._store = store
        self._clock = clock
        self._policy = policy
        self._started_at = clock.now()
        self._not_before = self._started_at
        self._last_run_at: datetime | None = None
        self._has_read_last_run = False
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="rota-gc", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Read the policy again, which may have changed."""
        self._wake.set()

    def stop(self) -> None:
        self._is_stopping = self._collector.is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            due = self.time_until_due()
            if due is not None and due <= timedelta():
                self.collect()
                due = self.time_until_due()
            self._wake.wait(None if due is None else min(max(due, timedelta()), MAX_WAIT).total_seconds())
            self._wake.clear()

    def time_until_due(self) -> timedelta | None:
        """Return the time until the next run; `None` if the policy has no interval."""
        interval = self._policy().interval
        if interval is None:
            return None
        now = self._clock.now()
        # If the clock was set back, keep both within their delay.
        self._started_at, self._not_before = min(self._started_at, now), min(self._not_before, now + MAX_WAIT)
        not_before = max(self._not_before, self._started_at + min(START_DELAY, interval))
        if now < not_before:
            return not_before - now
        try:
            if not self._has_read_last_run:
                self._last_run_at, self._has_read_last_run = self._read_last_run(), True
        except RotaError:
            return MAX_WAIT
        # A stored time in the future comes from a clock that was wrong.
        return (
            timedelta() if self._last_run_at is None or self._last_run_at > now else self._last_run_at + interval - now
        )

    def _read_last_run(self) -> datetime | None:
        with closing(self._store.reader()) as reader:
            stored = reader.meta.get(LAST_DAILY_RUN_KEY)
        return None if stored is None else from_micros(int(stored))

    def collect(self) -> None:
        """Run retention. On a failure, log it and retry in `MAX_WAIT`."""
        try:
            self._collector.collect(self._policy().older_than, cause=CAUSE)
            self._last_run_at = self._clock.now()
        except Conflict:
            self._not_before = self._clock.now() + MAX_WAIT  # another run is in progress
        except Exception as error:  # noqa: BLE001 - this thread must survive any error
            if not self._is_stopping:
                log.warning("retention failed, retrying in an hour: %s", error)
            self._not_before = self._clock.now() + MAX_WAIT
