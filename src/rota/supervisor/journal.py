"""Journal of the facts that a successor must know, and its replay.

Each line is appended to `supervisor.journal` before it takes effect:

    generation  {generation}               newest scheduler seen
    starting    {run, boot, …}             before the child is created
    started     {run, pid, start_time}
    step        {run, step, state, …}      before each further process; most runs have one process
    ending      {run, ended_by, kill_at}   a stop or timeout has begun
    exited | failed_to_start               as on the wire; before the child is reaped and the exit is reported
    finished    {run}                      its workspace is finished
    acknowledged {run}                     forget the run; written with the next line, since a repeated exit is harmless

There is no fsync: after the death of the machine no process can be adopted anyway. A failed write leaves no partial
line (it is truncated); a predecessor killed inside a write leaves one, which is truncated at the next start. When the
disk is full, a start is refused, since its child could not be found again; other lines stay in memory, in order, and
are written as soon as there is space.
"""

# ruff: noqa: PTH104, PTH108

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from rota.supervisor import protocol
from rota.supervisor.log import write_log
from rota.supervisor.run import RunPhase, SupervisedRun
from rota.supervisor.spawn import RunLaunch, RunStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_JOURNAL_BYTES = 1 << 20


class Journal:
    def __init__(self, path: str, *, limit: int = MAX_JOURNAL_BYTES) -> None:
        self._path = path
        self._min_limit = limit
        self._limit = limit
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._backlog: list[bytes] = []
        self.error: OSError | None = None
        """Why lines are buffered in memory; None if none are."""

    def read(self) -> bytes:
        """Return all complete lines. A partial line of a killed writer is truncated."""
        chunks = []
        offset = 0
        while chunk := os.pread(self._fd, 1 << 20, offset):
            chunks.append(chunk)
            offset += len(chunk)
        data = b"".join(chunks)
        lines = data[: data.rfind(b"\n") + 1]
        self._size = len(lines)
        if len(lines) < len(data):
            os.ftruncate(self._fd, self._size)
        return lines

    def record_or_raise(self, line: bytes) -> None:
        """Write a line to disk. Raises OSError, and leaves no trace of the line, if that fails."""
        self._write(b"".join((*self._backlog, line)))
        self._backlog.clear()

    def record_lazily(self, line: bytes) -> None:
        """Write a line together with the next one. For facts that a successor can also find out without it."""
        self._backlog.append(line)

    def record(self, line: bytes) -> bool:
        """Write a line and return whether it is on disk. If not, it is buffered, and `flush_backlog` writes it in
        order."""
        self._backlog.append(line)
        return self.flush_backlog()

    def flush_backlog(self) -> bool:
        """Write the buffered lines. Return True if none are left."""
        if not self._backlog:
            return True
        try:
            self._write(b"".join(self._backlog))
        except OSError as error:
            if self.error is None:
                write_log(f"cannot write {self._path}: {error.strerror}; retrying every second")
            self.error = error
            return False
        self._backlog.clear()
        return True

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    @property
    def needs_rewrite(self) -> bool:
        return self._size > self._limit and not self._backlog

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by these lines, or keep it if there is no space for that."""
        temporary = f"{self._path}.new"
        try:
            size = self._replace(temporary, b"".join(lines))
        except OSError as error:
            write_log(f"cannot rewrite {self._path}: {error.strerror}; continuing with the old one")
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._limit = self._size + self._min_limit
            return
        self._size = size
        # Many unacknowledged exits may exceed the limit: without this the journal would be rewritten at every line.
        self._limit = max(self._min_limit, 2 * size)

    def _replace(self, temporary: str, data: bytes) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, data[written:])
            os.rename(temporary, self._path)
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd = fd
        return len(data)

    def _write(self, lines: bytes) -> None:
        try:
            written = os.write(self._fd, lines)
            if written < len(lines):
                written += os.write(self._fd, lines[written:])  # raises the cause: no space, file too large
            if written < len(lines):
                raise OSError("short write")
        except OSError:
            # A partial line in the middle would also corrupt the next one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)
        self.error = None


class JournalReplay:
    """Reconstruction of the unacknowledged runs from the lines of a journal. It does no I/O."""

    def __init__(self) -> None:
        self.runs: dict[int, SupervisedRun] = {}
        self.generation = 0

    def replay(self, journal: bytes) -> None:
        for line in journal.splitlines(keepends=True):
            try:
                self._apply(protocol.parse_message(line), line)
            except protocol.PARSE_ERRORS as error:
                # One invalid line must not hide the others. Its content is unknown, and nothing is invented.
                write_log(f"invalid journal line ({error!r}): {line[:200]!r}")

    def _apply(self, record: dict[str, Any], line: bytes) -> None:
        kind = record["type"]
        if kind == "generation":
            self.generation = max(self.generation, protocol.read_integer(record, "generation"))
        elif kind == "starting":
            run = _run_from_record(record)
            self.runs[run.number] = run
        elif kind == "acknowledged":
            self.runs.pop(protocol.read_integer(record, "run"), None)
        elif kind in ("started", "step", "ending", "exited", "failed_to_start", "finished"):
            # If `starting` could not be written, the failure was reported without it and is not repeated.
            known = self.runs.get(protocol.read_integer(record, "run"))
            if known is not None:
                _apply_record(known, record, line)


def _run_from_record(record: dict[str, Any]) -> SupervisedRun:
    run = SupervisedRun(
        protocol.read_integer(record, "run"),
        directory=protocol.read_path(record, "directory"),
        kill_after=protocol.read_seconds(record, "kill_after"),
        deadline=protocol.read_optional_seconds(record, "deadline"),
        idle_timeout=protocol.read_optional_seconds(record, "idle_timeout"),
    )
    run.boot = protocol.read_string(record, "boot")
    if "cgroup" in record:
        run.cgroup = protocol.read_path(record, "cgroup")
    run.is_inherited = True
    run.step = RunStep[record.get("step", RunStep.MAIN.name)]
    if record.get("workspace") is not None:
        protocol.read_seconds(record["workspace"], "limit")
        run.launch = RunLaunch.for_finish(run.directory, record["workspace"])
        run.workspace = run.launch.workspace
    return run


def _apply_record(run: SupervisedRun, record: dict[str, Any], line: bytes) -> None:
    match record["type"]:
        case "started":
            run.pid, run.start_time = protocol.read_pid(record), protocol.read_integer(record, "start_time")
            if "has_cgroup" in record:
                run.cgroup = ""
            if run.workspace is not None and run.step is RunStep.MAIN:
                run.workspace.has_run = True
        case "step":
            _apply_step(run, record)
        case "finished":
            run.launch = None
        case "ending":
            ended_by, kill_at = record["ended_by"], protocol.read_optional_seconds(record, "kill_at")
            if ended_by not in protocol.END_REASONS:
                raise ValueError(f"unknown ended_by {ended_by!r:.100}")
            run.ended_by, run.kill_at = ended_by, kill_at
        case _:
            protocol.check_end(record)
            run.end_line = line
            run.is_end_recorded = True
            run.phase = RunPhase.ENDED


def _apply_step(run: SupervisedRun, record: dict[str, Any]) -> None:
    """Advance the run to a step: the processes of its earlier steps are gone, and the next one may exist."""
    step, state = RunStep[record["step"]], record.get("state")
    if state is not None and not isinstance(state, dict):
        raise ValueError("state must be an object")
    run.step, run.pid, run.start_time = step, None, None
    if run.workspace is not None:
        run.workspace.state, run.workspace.has_run = state, record.get("has_run") is True
