"""The port through which gates see the world outside. It looks and never changes anything."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rota.core.fact import Fact, Seen


class Probe(Protocol):
    def look(self, facts: Collection[Fact]) -> dict[Fact, Seen]:
        """What each fact is now; every fact asked for is in the answer.

        Never raises for what it finds: what cannot be read is UNREADABLE, spoils nothing else, and is logged when it
        begins. May take as long as a disk or a `git` takes, so never call it inside a transaction.
        """
        ...

    def repository_of(self, directory: str) -> str | None:
        """The git common directory around this one, absolute and without links; it need not exist yet."""
        ...

    def top_of(self, directory: str) -> str | None:
        """The top of the working tree around this directory; none in a bare repository."""
        ...

    def branch(self, directory: str) -> str | None:
        """The branch checked out in the working tree around this directory, born or not; none when detached."""
        ...

    def resolve(self, repository: str, rev: str) -> str | None:
        """The full id of the one commit that this full or short hexadecimal id names."""
        ...

    def has_merge_in_progress(self, repository: str) -> bool:
        """A merge, cherry-pick, revert or rebase waits to be ended in the main working tree or in a linked one."""
        ...
