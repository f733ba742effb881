"""Watch of several jobs and groups: one long poll for each, behind one selector.

A poll returns when the status of the job differs from the last observed one, so a change is noticed immediately and an
idle queue costs nothing.
"""

from __future__ import annotations

import json
import selectors
import time

from rota.cli.live import ENDED_STATUSES
from rota.cli.parser import is_job
from rota.client.outage import STORE_POLL_INTERVAL, StoreOutage
from rota.client.problem import ConnectionBroken
from rota.client.requests.group import get_group
from rota.client.requests.job import get_job
from rota.client.session import SchedulerSession
from rota.client.transport import ResponseStream
from rota.errors import StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

MAX_CONNECTIONS = 64
"""Maximum number of open connections. The remaining jobs of a long list are polled when earlier ones have ended."""

_MIN_POLL_INTERVAL = 0.25
"""Minimum seconds between two polls without news, however the server treats `wait`."""


class StatusWatch:
    def __init__(self, session: SchedulerSession, jobs: dict[str, Json], *, poll_seconds: float) -> None:
        self.jobs = jobs
        """Latest state of each job, by requested ID."""
        self._session = session
        self._poll_seconds = poll_seconds
        self._selector = selectors.DefaultSelector()
        self._streams: dict[str, tuple[ResponseStream, list[bytes]]] = {}
        self._not_before: dict[str, float] = {}
        self._outage = StoreOutage()

    @property
    def unfinished(self) -> list[str]:
        return [name for name, job in self.jobs.items() if job["status"] not in ENDED_STATUSES]

    def wait_for_changes(self, timeout: float) -> None:
        """Wait for a change, at most `timeout` seconds."""
        now = time.monotonic()
        wake_at = now + timeout
        for name in self.unfinished[:MAX_CONNECTIONS]:
            due = self._not_before.get(name, 0.0)
            if due > now:
                wake_at = min(wake_at, due)
            elif name not in self._streams:
                self._open_poll(name, now)
        for key, _ in self._selector.select(max(0.0, wake_at - now)):
            self._receive(key.data)

    def _open_poll(self, name: str, now: float) -> None:
        if not is_job(name):  # only its end matters, not that of each member
            request = get_group(name, wait=self._poll_seconds)
        else:
            request = get_job(name, wait=self._poll_seconds, last_seen=self.jobs[name]["status"])
        stream = self._session.open_stream(request)
        self._streams[name] = (stream, [])
        self._not_before[name] = now + _MIN_POLL_INTERVAL
        self._selector.register(stream, selectors.EVENT_READ, name)

    def _receive(self, name: str) -> None:
        stream, parts = self._streams[name]
        try:
            parts.append(stream.receive())
            if not stream.is_finished:
                return
            job = json.loads(b"".join(parts))
            self._outage.end()
        except ConnectionBroken:
            job = None  # polled again in the next step, after the scheduler has restarted
        except StoreUnavailable as error:
            self._outage.raise_if_too_long(error)
            self._not_before[name], job = time.monotonic() + STORE_POLL_INTERVAL, None
        self._close_poll(name)
        if job is not None:
            if job["status"] != self.jobs[name]["status"]:
                del self._not_before[name]
            self.jobs[name] = job

    def _close_poll(self, name: str) -> None:
        stream, _ = self._streams.pop(name)
        self._selector.unregister(stream)
        stream.close()

    def close(self) -> None:
        for name in list(self._streams):
            self._close_poll(name)
        self._selector.close()

    def __enter__(self) -> StatusWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
