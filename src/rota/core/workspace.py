"""Workspace of a job: a git worktree of its own, the patch that it produces, and the patch that it starts with."""

from __future__ import annotations

import msgspec


class WorkspaceSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workspace as resolved at submit: a branch name may refer to another commit when the job starts."""

    repository: str
    """Git common directory of the job's working directory."""
    subdirectory: str = ""
    """Working directory relative to the working tree."""
    base: str | None = None
    """Commit from which the worktree is created; `None` runs the job in its working directory."""
    patch: bool = False
    """Whether changes are kept as a patch; always true for a worktree."""
    input_patch: str | None = None
    """Digest of the patch with uncommitted changes at submit."""
