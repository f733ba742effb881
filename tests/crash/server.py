"""Restarts of a PostgreSQL server, every few seconds."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.postgres_server import Server

RESTART_INTERVAL = 2.0
"""Seconds between two restarts."""


class ServerRestarter:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.count = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        modes = itertools.cycle(("fast", "immediate"))
        try:
            while not self._stop.wait(RESTART_INTERVAL):
                self._server.restart(next(modes))
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - reported by `stop`
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error


@contextmanager
def restart_repeatedly(server: Server) -> Iterator[ServerRestarter]:
    restarter = ServerRestarter(server)
    restarter.start()
    try:
        yield restarter
    finally:
        restarter.stop()
