"""Probe port: the read-only access of gates to the state outside the scheduler."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rota.kernel.facts import Fact, FactValue


class Probe(Protocol):
    def observe(self, facts: Collection[Fact]) -> dict[Fact, FactValue]:
        """Return the current value of every fact.

        A fact that cannot be read is UNREADABLE; it raises nothing, affects no other fact, and is logged when the
        failure starts. The call can block on a disk or on `git`, so never call it inside a transaction.
        """
        ...

    def find_repository(self, directory: str) -> str | None:
        """Return the git common directory of the repository around this directory, absolute and without links.

        The directory need not exist.
        """
        ...

    def find_worktree_root(self, directory: str) -> str | None:
        """Return the root of the working tree around this directory, or None in a bare repository."""
        ...

    def current_branch(self, directory: str) -> str | None:
        """Return the branch checked out in the working tree around this directory, or None if HEAD is detached.

        The branch need not have a commit.
        """
        ...

    def resolve_commit(self, repository: str, rev: str) -> str | None:
        """Return the full id of the only commit that this full or abbreviated hexadecimal id names."""
        ...

    def has_merge_in_progress(self, repository: str) -> bool:
        """Return whether a merge, cherry-pick, revert or rebase is unfinished in any working tree."""
        ...
