"""The files beside each job's logs, `job.json` and `outcome.json`, written behind.

The database is the record; these are for people and tools. They follow the event table like any listener: off
the path to the next start, and after a crash from where they had got to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from rota.core.event import Event
from rota.core.job import Job
from rota.core.status import TERMINAL
from rota.ids import JobId
from rota.store.port import Store
from rota.store.session import Reader
from rota.wire import encode, job_form

log = logging.getLogger("rota.mirror")

_PAGE = 500
META = "mirrored"
"""The last event whose job's files are known to be written."""
_ENDS = frozenset(f"job.{status.lower()}" for status in TERMINAL)
_CAUSES = _ENDS | {"job.running"}


class Mirror:
    def __init__(self, store: Store, jobs: Path) -> None:
        self._store = store
        self._jobs = jobs
        self._something = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="rota-mirror", daemon=True)
        self.position = 0
        """The last event that is done with."""

    def start(self) -> None:
        self._thread.start()

    def publish(self, events: Sequence[Event]) -> None:
        """From the engine's thread, after its commit."""
        if any(event.kind in _CAUSES for event in events):
            self._something.set()

    def stop(self) -> None:
        """Write what is outstanding, then end."""
        self._is_stopping = True
        self._something.set()
        self._thread.join()

    def _run(self) -> None:
        reader = self._store.reader()
        try:
            self.position = int(reader.meta(META) or 0)
            self._catch_up(reader)
            while not self._is_stopping:
                self._something.wait()
                self._something.clear()
                self._catch_up(reader)
        finally:
            reader.close()

    def _catch_up(self, reader: Reader) -> None:
        while rows := reader.events_since(self.position, _PAGE):
            touched = {JobId(row[5]) for row in rows if row[2] in _CAUSES}
            for job in reader.jobs(sorted(touched)):
                if job.run is not None:
                    self._write(job)
            self.position = rows[-1][0]

    def _write(self, job: Job) -> None:
        directory = self._jobs / str(job.id)
        form = job_form(job, self._jobs)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(directory / "job.json", encode(form))
            if job.status in TERMINAL:
                _replace(directory / "outcome.json", encode(form.run))
        except OSError as error:
            log.warning("cannot write the files of job-%s: %s", job.id, error)


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    beside = path.with_suffix(".tmp")
    beside.touch(mode=0o600)
    beside.write_bytes(content + b"\n")
    beside.replace(path)
