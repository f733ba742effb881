"""What a job wrote, as JSON: how much there is of it, and pieces of it as they are written."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobStatus


class LogForm(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    """In bytes."""


class WorkspaceForm(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a job's workspace."""

    worktree: str | None
    branch: str | None
    kept: str | None
    """Why the worktree is still there."""
    command_patch: str | None
    input_patch: str | None


class LogsForm(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    stdout: LogForm
    stderr: LogForm
    warning: str | None
    """Set where there is more than there should be."""
    workspace: WorkspaceForm | msgspec.UnsetType = msgspec.UNSET
    """Of a job that asked for one."""


class PieceForm(msgspec.Struct, frozen=True, kw_only=True):
    """The next part of a stream. No character is cut in two; bytes that are no text stand as U+FFFD."""

    stream: str
    offset: int
    """The number of its first byte. One that is lower than before says that the file was cut off or replaced."""
    text: str


class EndForm(msgspec.Struct, frozen=True, kw_only=True):
    """The job has ended, and this was all."""

    job: str
    status: JobStatus
    exit_code: int | None
