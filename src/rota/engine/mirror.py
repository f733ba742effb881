"""The files beside each job's logs, `job.json` and `outcome.json`, written behind.

The database is the record; these are for people and tools. They follow the event table like any listener: off
the path to the next start, and after a crash from where they had got to.
"""

# pathlib costs more than the files themselves:
# ruff: noqa: PTH103, PTH104, PTH108
from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rota.core.event import Event
from rota.core.job import Job
from rota.core.status import TERMINAL
from rota.ids import show_job
from rota.leftover import OUTCOME
from rota.report import session_path, worktree_path
from rota.store.port import Store
from rota.store.session import Reader
from rota.wire import encode
from rota.wire.job import job_form

log = logging.getLogger("rota.mirror")

_PAGE = 500
_TRY_AGAIN = 1.0
_GATHER = 0.1
"""Seconds to let more come: a job that ends meanwhile is written once."""
_REMEMBER_EVERY = 2_000
"""Events after which it is stored how far the files are: after a crash so many are gone through again."""
META = "mirrored"
"""The last event whose job's files are known to be written."""
_ENDS = frozenset(f"job.{status.lower()}" for status in TERMINAL)
_CAUSES = _ENDS | {"job.running", "job.rewound", "job.edited", "job.moved"}


class Mirror:
    def __init__(self, store: Store, jobs: Path, remember: Callable[[int], None]) -> None:
        self._store = store
        self._jobs = jobs
        self._remember = remember
        self._something = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-mirror", daemon=True)
        self._reader: Reader | None = None
        self._position = 0
        self._remembered = 0
        self._settled = 0
        self._asked: list[threading.Event] = []

    def start(self) -> None:
        self._something.set()
        self._thread.start()

    def publish(self, events: Sequence[Event]) -> None:
        """From the engine's thread, after its commit."""
        if any(event.kind in _CAUSES for event in events):
            self._something.set()

    def settle(self, patience: float) -> int:
        """From any thread: the event up to which the files are written, as soon as that is the last one there was when
        this was asked, or when the time is over."""
        done = threading.Event()
        self._asked.append(done)
        self._something.set()
        return self._settled if done.wait(patience) else self._position

    def stop(self) -> None:
        """Write what is outstanding, then end."""
        self._stopping.set()
        self._something.set()
        self._thread.join()

    def _run(self) -> None:
        """Trouble with the store or the disk passes: it is said once, and tried again in a while."""
        is_troubled = False
        while self._something.wait(_TRY_AGAIN if is_troubled else None) or is_troubled:
            self._stopping.wait(_GATHER)
            self._something.clear()
            trouble = self._try_to_catch_up()
            if trouble is not None and not is_troubled:
                log.warning("job.json and outcome.json fall behind: %s", trouble)
            is_troubled = trouble is not None
            if self._stopping.is_set():
                break
        self._remember(self._position)
        self._close()

    def _try_to_catch_up(self) -> Exception | None:
        asked, self._asked = self._asked, []
        try:
            self._catch_up(settles=bool(asked))
        except Exception as error:  # noqa: BLE001 - whatever it is, this thread goes on, and says so
            self._close()
            self._asked += asked
            return error
        for done in asked:
            done.set()
        return None

    def _catch_up(self, *, settles: bool) -> None:
        if self._reader is None:
            self._reader = self._store.reader()
            self._position = max(self._position, int(self._reader.meta(META) or 0))
        newest = self._reader.last_event() if settles else 0
        while events := self._reader.touches_since(self._position, _PAGE):
            touched = {job for _, kind, job in events if kind in _CAUSES}
            for job in self._reader.jobs(sorted(touched)):
                if job.run is not None:
                    self._write(job)
            self._position = events[-1][0]
            if self._position - self._remembered >= _REMEMBER_EVERY:
                self._remember(self._position)
                self._remembered = self._position
        self._settled = max(self._settled, newest)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _write(self, job: Job) -> None:
        directory = f"{self._jobs}/{job.id}"
        session = None if job.current_run is None else session_path(directory)
        worktree = None if job.spec.workspace is None else worktree_path(directory)
        form = job_form(job, self._jobs, session_path=session, worktree=worktree)
        try:
            try:
                _replace(directory, encode(form))
            except FileNotFoundError:
                os.makedirs(directory, 0o700, exist_ok=True)
                _replace(directory, encode(form))
            if form.outcome_path is not None:
                _keep_as_outcome(directory)
            elif job.rewound_run is not None:
                _forget_outcome(directory)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # it concerns all of them, and passes
            log.warning("cannot write the files of %s: %s", show_job(job.id), error)


def _replace(directory: str, content: bytes) -> None:
    """Whole or not at all. A disk that fills up takes a part without a word and complains at the next."""
    beside = f"{directory}/job.tmp"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    rest = content + b"\n"
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
    os.rename(beside, f"{directory}/job.json")


def _forget_outcome(directory: str) -> None:
    """The job was rewound: what is there may have been written after that, from a record read before."""
    with suppress(FileNotFoundError):
        os.unlink(f"{directory}/{OUTCOME}")


def _keep_as_outcome(directory: str) -> None:
    """The record as it is at the end, by a second name: to make a file is what costs most here."""
    record, outcome, beside = (f"{directory}/{name}" for name in ("job.json", "outcome.json", "outcome.tmp"))
    try:
        os.link(record, outcome)
    except FileExistsError:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        os.link(record, beside)
        os.rename(beside, outcome)
