"""Collects by the clock: a thread that sleeps until it is time.

When it last did so is stored, so a scheduler that is restarted every hour still collects once a day, and one that was
away for a week collects once. Never at the very start: whoever starts a scheduler wants something of it first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta

from rota.clock import Clock
from rota.core.gc import GcPolicy
from rota.engine.gc import Collector
from rota.errors import Conflict, RotaError
from rota.store.gc import DAILY
from rota.store.moment import from_stored
from rota.store.port import Store

log = logging.getLogger("rota.gc")

AFTER_START = timedelta(minutes=1)
"""Not sooner, unless the interval itself is shorter."""
LONGEST_WAIT = timedelta(hours=1)
"""The wall clock can be set, and a machine can sleep: look again at least this often."""
CAUSE = "timer"


class Daily:
    def __init__(self, *, collector: Collector, store: Store, clock: Clock, policy: Callable[[], GcPolicy]) -> None:
        self._collector = collector
        self._store = store
        self._clock = clock
        self._policy = policy
        self._started_at = clock.now()
        self._not_before = self._started_at
        self._last: datetime | None = None
        self._has_looked = False
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="rota-gc", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """The policy may be another now."""
        self._wake.set()

    def stop(self) -> None:
        self._is_stopping = self._collector.is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            due = self.look()
            if due is not None and due <= timedelta():
                self.collect()
                due = self.look()
            self._wake.wait(None if due is None else min(max(due, timedelta()), LONGEST_WAIT).total_seconds())
            self._wake.clear()

    def look(self) -> timedelta | None:
        """How long until it is time; none: never, as things are."""
        interval = self._policy().interval
        if interval is None:
            return None
        now = self._clock.now()
        not_before = max(self._not_before, self._started_at + min(AFTER_START, interval))
        if now < not_before:
            return not_before - now
        try:
            if not self._has_looked:
                self._last, self._has_looked = self._stored(), True
        except RotaError:
            return LONGEST_WAIT
        # A time still to come is from a clock that was wrong then.
        return timedelta() if self._last is None or self._last > now else self._last + interval - now

    def _stored(self) -> datetime | None:
        with closing(self._store.reader()) as reader:
            stored = reader.meta(DAILY)
        return None if stored is None else from_stored(int(stored))

    def collect(self) -> None:
        """Trouble passes: it is said, and tried again in a while."""
        try:
            self._collector.collect(self._policy().older_than, cause=CAUSE)
            self._last = self._clock.now()
        except Conflict:
            self._not_before = self._clock.now() + LONGEST_WAIT  # somebody else is at it
        except Exception as error:  # noqa: BLE001 - whatever it is, this thread goes on, and says so
            if not self._is_stopping:
                log.warning("what is old could not be collected, and is tried again in an hour: %s", error)
            self._not_before = self._clock.now() + LONGEST_WAIT
