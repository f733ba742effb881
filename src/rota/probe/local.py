"""Probe of this machine: git repositories and files behind one port."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Collection, Iterable

from rota.kernel.facts import UNREADABLE, Fact, FactValue, FileExists, ProbeFailure
from rota.probe.git import GitProbe
from rota.probe.git_command import Failures

_NOT_FOUND_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR})


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


class FileProbe:
    """Existence of files. One `stat` per file is cheap enough to check all awaited files every second."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def observe(self, facts: Iterable[FileExists]) -> dict[Fact, FactValue]:
        return {fact: self._exists(fact.path) for fact in facts}

    def _exists(self, path: str) -> bool | ProbeFailure:
        try:
            os.stat(path)  # noqa: PTH116 - Path.exists hides the error
        except ValueError as error:  # a NUL, or a character outside the encoding of the file system
            self._failures.report(f"file {path!r}", str(error))
            return False
        except OSError as error:
            if error.errno not in _NOT_FOUND_ERRNOS:
                self._failures.report(f"file {path!r}", str(error.strerror))
                return UNREADABLE
            self._failures.clear(f"file {path!r}")
            return False
        self._failures.clear(f"file {path!r}")
        return True
