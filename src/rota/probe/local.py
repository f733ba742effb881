"""Probe of this machine: git repositories and files behind one port."""

from __future__ import annotations

import threading
from collections.abc import Collection

from rota.core.fact import Fact, FactValue, FileExists
from rota.probe.failures import Failures
from rota.probe.files import FileProbe
from rota.probe.git import GitProbe


class LocalProbe:
    """Thread-safe probe. Git observations hold a lock, because they share caches."""

    def __init__(self) -> None:
        failures = Failures()
        self._git = GitProbe(failures)
        self._files = FileProbe(failures)
        self._git_lock = threading.Lock()

    def observe(self, facts: Collection[Fact]) -> dict[Fact, FactValue]:
        observed = self._files.observe(fact for fact in facts if isinstance(fact, FileExists))
        git_facts = [fact for fact in facts if not isinstance(fact, FileExists)]
        if not git_facts:
            return observed
        with self._git_lock:
            return observed | self._git.observe(git_facts)

    def find_repository(self, directory: str) -> str | None:
        return self._git.find_repository(directory)

    def find_worktree_root(self, directory: str) -> str | None:
        return self._git.find_worktree_root(directory)

    def current_branch(self, directory: str) -> str | None:
        return self._git.current_branch(directory)

    def resolve_commit(self, repository: str, rev: str) -> str | None:
        return self._git.resolve_commit(repository, rev)

    def has_merge_in_progress(self, repository: str) -> bool:
        return self._git.has_merge_in_progress(repository)
