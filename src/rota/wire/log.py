"""What a job wrote, as JSON: how much there is of it, and pieces of it as they are written."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobStatus


class LogForm(msgspec.Struct, frozen=True, kw_only=True):
    """One of the streams of a job."""

    path: str
    """Where it is on the scheduler's machine."""
    size: int
    """In bytes."""


class WorkspaceForm(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a job's workspace."""

    worktree: str | None
    """Where the worktree is; null when it is gone."""
    branch: str | None
    """The branch of its own that the job worked on."""
    kept: str | None
    """Why the worktree is still there."""
    command_patch: str | None
    """The file with what the job has changed."""
    input_patch: str | None
    """The file with what was not committed when it was submitted."""


class LogsForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has left: how much it wrote, and its workspace."""

    job: str
    stdout: LogForm
    """What it wrote to stdout."""
    stderr: LogForm
    """What it wrote to stderr."""
    warning: str | None
    """Set where there is more than there should be."""
    workspace: WorkspaceForm | msgspec.UnsetType = msgspec.UNSET
    """Of a job that asked for one."""


class PieceForm(msgspec.Struct, frozen=True, kw_only=True):
    """The next part of a stream. No character is cut in two; bytes that are no text stand as U+FFFD."""

    stream: str
    """`stdout` or `stderr`."""
    offset: int
    """The number of its first byte. One that is lower than before says that the file was cut off or replaced."""
    text: str
    """What was written."""


class EndForm(msgspec.Struct, frozen=True, kw_only=True):
    """The job has ended, and this was all."""

    job: str
    """The last job of the chain."""
    status: JobStatus
    exit_code: int | None
    """That of its run; null if there was none."""
