"""Mirror of each job in the files `job.json` and `outcome.json` next to its logs.

The database is the record; the files are for users and scripts. A thread writes them by following the event table, off
the path to the next start. After a crash it continues from its stored cursor.
"""

# pathlib costs more time than the file operations:
# ruff: noqa: PTH103, PTH104, PTH108
from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rota import job_files
from rota.db.session import Reader
from rota.db.store import Store
from rota.ids import format_job_id
from rota.job_files import OUTCOME_FILE, read_session_path, read_worktree_path
from rota.jobs.schemas import render_job
from rota.kernel.events import Event
from rota.kernel.job import Job
from rota.kernel.status import TERMINAL
from rota.schema_types import encode

log = logging.getLogger("rota.mirror")

_PAGE_SIZE = 500
_RETRY_INTERVAL = 1.0
_BATCH_DELAY = 0.1
"""Seconds to collect more events: a job that ends meanwhile is written once."""
_CURSOR_INTERVAL = 2_000
"""Events between two stores of the cursor. After a crash, at most so many are processed again."""
META_KEY = "mirrored"
"""Key of the stored cursor: the last event up to which the files are written."""
_END_EVENTS = frozenset(f"job.{status.lower()}" for status in TERMINAL)
_WATCHED_EVENTS = _END_EVENTS | {"job.running", "job.rewound", "job.edited", "job.moved"}


class JobFileMirror:
    def __init__(self, store: Store, jobs: Path, store_cursor: Callable[[int], None]) -> None:
        self._store = store
        self._jobs = jobs
        self._store_cursor = store_cursor
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-mirror", daemon=True)
        self._reader: Reader | None = None
        self._cursor = 0
        self._stored_cursor = 0
        self._flushed_until = 0
        self._waiters: list[threading.Event] = []

    def start(self) -> None:
        self._wake.set()
        self._thread.start()

    def publish(self, events: Sequence[Event]) -> None:
        """Wake the mirror if the events concern it. Called by the engine's thread after its commit."""
        if any(event.kind in _WATCHED_EVENTS for event in events):
            self._wake.set()

    def flush(self, timeout: float) -> int:
        """Wait until the files of all events so far are written, or until the timeout. Return the last event whose
        files are written. Thread-safe."""
        done = threading.Event()
        self._waiters.append(done)
        self._wake.set()
        return self._flushed_until if done.wait(timeout) else self._cursor

    def stop(self) -> None:
        """Write the outstanding files, and end the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        """Write pending files in a loop. Log an error of the store or the disk once, and retry."""
        is_failing = False
        while self._wake.wait(_RETRY_INTERVAL if is_failing else None) or is_failing:
            self._stopping.wait(_BATCH_DELAY)
            self._wake.clear()
            error = self._try_write_pending()
            if error is not None and not is_failing:
                log.warning("cannot write job.json and outcome.json, retrying: %s", error)
            is_failing = error is not None
            if self._stopping.is_set():
                break
        self._store_cursor(self._cursor)
        self._close()

    def _try_write_pending(self) -> Exception | None:
        waiters, self._waiters = self._waiters, []
        try:
            self._write_pending(has_waiters=bool(waiters))
        except Exception as error:  # noqa: BLE001 - this thread must survive any error
            self._close()
            self._waiters += waiters
            return error
        for done in waiters:
            done.set()
        return None

    def _write_pending(self, *, has_waiters: bool) -> None:
        if self._reader is None:
            self._reader = self._store.reader()
            self._cursor = max(self._cursor, int(self._reader.meta.get(META_KEY) or 0))
        newest = self._reader.events.last_stored_seq() if has_waiters else 0
        while events := self._reader.events.of_jobs_since(self._cursor, _PAGE_SIZE):
            changed = {job for _, kind, job in events if kind in _WATCHED_EVENTS}
            for job in self._reader.jobs.find_all(sorted(changed)):
                if job.run is not None:
                    self._write(job)
            self._cursor = events[-1][0]
            if self._cursor - self._stored_cursor >= _CURSOR_INTERVAL:
                self._store_cursor(self._cursor)
                self._stored_cursor = self._cursor
        self._flushed_until = max(self._flushed_until, newest)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _write(self, job: Job) -> None:
        directory = f"{self._jobs}/{job.id}"
        session = None if job.current_run is None else read_session_path(directory)
        worktree = None if job.spec.workspace is None else read_worktree_path(directory)
        record = render_job(job, self._jobs, session_path=session, worktree=worktree)
        try:
            try:
                _replace_record(directory, encode(record))
            except FileNotFoundError:
                os.makedirs(directory, 0o700, exist_ok=True)
                _replace_record(directory, encode(record))
            if record.outcome_path is not None:
                _link_outcome(directory)
            elif job.rewound_run is not None:
                _remove_outcome(directory)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # a full disk affects all jobs, and may be temporary
            if (reason := job_files.unusable_reason(str(self._jobs))) is not None:
                raise OSError(error.errno, reason) from error
            log.warning("cannot write the files of %s: %s", format_job_id(job.id), error)


def _replace_record(directory: str, content: bytes) -> None:
    """Replace `job.json` atomically. Loop over partial writes: a full disk accepts a part before it raises."""
    temporary = f"{directory}/job.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    rest = content + b"\n"
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
    os.rename(temporary, f"{directory}/job.json")


def _remove_outcome(directory: str) -> None:
    """Remove the outcome of a rewound job: it may have been written after the rewind, from an older record."""
    with suppress(FileNotFoundError):
        os.unlink(f"{directory}/{OUTCOME_FILE}")


def _link_outcome(directory: str) -> None:
    """Make `outcome.json` a link to the final `job.json`, which is cheaper than a second file."""
    record, outcome, temporary = (f"{directory}/{name}" for name in ("job.json", "outcome.json", "outcome.tmp"))
    try:
        os.link(record, outcome)
    except FileExistsError:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        os.link(record, temporary)
        os.rename(temporary, outcome)
