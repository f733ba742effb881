"""JSON representations of a job's logs: their sizes, and chunks of text as they are written."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobStatusText


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A log file of a job."""

    path: str
    """Path of the file on the scheduler's machine."""
    size: int
    """Size of the file in bytes."""


class JobWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace of a job."""

    worktree: str | None
    """Path of the worktree; `null` if it does not exist."""
    branch: str | None
    """Branch of the worktree; `null` if there is none."""
    kept_reason: str | None
    """Reason why the worktree still exists; `null` if there is none."""
    command_patch: str | None
    """Path of the patch with the changes made by the job; `null` if there is none."""
    input_patch: str | None
    """Path of the patch with the uncommitted changes at the submit; `null` if there is none."""


class JobLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The logs and the workspace of a job."""

    job: str
    """Id of the job."""
    stdout: LogFile
    """Log of stdout."""
    stderr: LogFile
    """Log of stderr."""
    warning: str | None
    """Warning that a log exceeds its maximum size; `null` if none does."""
    workspace: JobWorkspace | msgspec.UnsetType = msgspec.UNSET
    """Workspace of the job; absent if the job did not request one."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of a stream. Chunks never split a character; invalid UTF-8 is replaced by U+FFFD."""

    stream: str
    """Name of the stream: `stdout` or `stderr`."""
    offset: int
    """Offset of the first byte. An offset below an earlier one means that the file was truncated or replaced."""
    text: str
    """Text of the chunk."""


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the log: the job has ended."""

    job: str
    """Id of the last job in the chain."""
    status: JobStatusText
    """Status of the job."""
    exit_code: int | None
    """Exit code of its run; `null` if there is none."""
