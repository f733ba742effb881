"""Logs how deep the queue is, while anything waits: a thread that sleeps, and has no timer when nothing does.

It is told that something has happened, and looks an interval later. As long as it finds something that waits it looks
again after the next; when it finds nothing it sleeps until it is told anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from rota.errors import RotaError

log = logging.getLogger("rota.depth")


class DepthLog:
    def __init__(self, *, look: Callable[[], str | None], interval: Callable[[], timedelta | None]) -> None:
        """`look` says what waits, or none; without an interval nothing is logged."""
        self._look = look
        self._interval = interval
        self._told = threading.Event()
        self._changed = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="rota-depth", daemon=True)

    def start(self) -> None:
        self._told.set()  # there may be a queue already
        self._thread.start()

    def tell(self) -> None:
        """Something has happened; from any thread."""
        if not self._told.is_set():
            self._told.set()

    def wake(self) -> None:
        """The interval may be another now."""
        self._changed.set()
        self._told.set()

    def stop(self) -> None:
        self._is_stopping = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            interval = self._interval()
            if interval is None:
                self._changed.wait()
            else:
                self._told.wait()
            if interval is None or self._changed.wait(interval.total_seconds()):
                self._changed.clear()
            else:
                self.look()

    def look(self) -> None:
        self._told.clear()
        try:
            line = self._look()
        except RotaError:
            self._told.set()  # trouble with the store is said elsewhere: here nothing is known, and it is tried again
        except Exception:
            log.exception("a defect: what waits cannot be said")
        else:
            if line is not None:
                log.info("%s", line)
                self._told.set()
