"""Watch several jobs and groups at once: one long poll each, all behind one selector.

A poll is answered when the job's status is no longer the one we have seen, so a change is known at once and a
quiet queue costs nothing.
"""

from __future__ import annotations

import json
import selectors
import time

from rota.cli.live import ENDED
from rota.client.absence import STORE_LOOK, StoreAbsence
from rota.client.ask.group import get_group, is_group
from rota.client.ask.job import get_job
from rota.client.problem import Broken
from rota.client.session import Session
from rota.client.transport import Stream
from rota.errors import StoreAway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

AT_ONCE = 64
"""Connections kept open at a time: the rest of a long list has its turn when these have ended."""

_SHORTEST_POLL = 0.25
"""An answer that says nothing new is not asked for again sooner, whatever the server makes of `wait`."""


class Watch:
    def __init__(self, session: Session, jobs: dict[str, Json], *, poll: float) -> None:
        self.jobs = jobs
        """What is known of each, by the id it was asked for; kept up to date."""
        self._session = session
        self._poll = poll
        self._selector = selectors.DefaultSelector()
        self._open: dict[str, tuple[Stream, list[bytes]]] = {}
        self._not_before: dict[str, float] = {}
        self._absence = StoreAbsence()

    @property
    def unfinished(self) -> list[str]:
        return [name for name, job in self.jobs.items() if job["status"] not in ENDED]

    def step(self, timeout: float) -> None:
        """Wait for news, at most so long."""
        now = time.monotonic()
        waking = now + timeout
        for name in self.unfinished[:AT_ONCE]:
            due = self._not_before.get(name, 0.0)
            if due > now:
                waking = min(waking, due)
            elif name not in self._open:
                self._ask(name, now)
        for key, _ in self._selector.select(max(0.0, waking - now)):
            self._receive(key.data)

    def _ask(self, name: str, now: float) -> None:
        if is_group(name):  # its end is news; each of its members' would be too much of it
            ask = get_group(name, wait=self._poll)
        else:
            ask = get_job(name, wait=self._poll, seen=self.jobs[name]["status"])
        stream = self._session.open(ask)
        self._open[name] = (stream, [])
        self._not_before[name] = now + _SHORTEST_POLL
        self._selector.register(stream, selectors.EVENT_READ, name)

    def _receive(self, name: str) -> None:
        stream, parts = self._open[name]
        try:
            parts.append(stream.receive())
            if not stream.finished:
                return
            job = json.loads(b"".join(parts))
            self._absence.over()
        except Broken:
            job = None  # Asked again at the next step, of a scheduler that has come back.
        except StoreAway as error:
            self._absence.bear(error)
            self._not_before[name], job = time.monotonic() + STORE_LOOK, None
        self._drop(name)
        if job is not None:
            if job["status"] != self.jobs[name]["status"]:
                del self._not_before[name]
            self.jobs[name] = job

    def _drop(self, name: str) -> None:
        stream, _ = self._open.pop(name)
        self._selector.unregister(stream)
        stream.close()

    def close(self) -> None:
        for name in list(self._open):
            self._drop(name)
        self._selector.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
