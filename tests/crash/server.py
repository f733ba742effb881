"""A PostgreSQL server that goes away and comes back, every few seconds."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from postgres_server import Server

EVERY = 2.0
"""Seconds that it is up."""


class Restarts:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.count = 0
        self.trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        modes = itertools.cycle(("fast", "immediate"))
        try:
            while not self._stop.wait(EVERY):
                self._server.restart(next(modes))
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - said when it is over
            self.trouble = error

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.trouble is None, self.trouble


@contextmanager
def restarted(server: Server) -> Iterator[Restarts]:
    restarts = Restarts(server)
    restarts.start()
    try:
        yield restarts
    finally:
        restarts.end()
