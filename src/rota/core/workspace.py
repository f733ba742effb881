"""The workspace a job asks for: a git worktree of its own, the patch it leaves, the patch it begins with."""

from __future__ import annotations

import msgspec


class Workspace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As it was resolved at submit: what a branch is called may mean another commit by the time the job starts."""

    repository: str
    """The git common directory around the job's working directory."""
    below: str = ""
    """The working directory inside the working tree."""
    base: str | None = None
    """The commit from which its own worktree is made; none: it works where it was submitted."""
    patch: bool = False
    """Whether what it changed there is kept as a patch. Of a worktree it always is."""
    input: str | None = None
    """The digest of the patch of what was not committed at submit."""
