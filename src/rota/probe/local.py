"""The probe of this machine: git and files behind one port."""

from __future__ import annotations

import threading
from collections.abc import Collection

from rota.core.fact import Fact, File, Seen
from rota.probe.files import FileProbe
from rota.probe.git import GitProbe
from rota.probe.trouble import Troubles


class LocalProbe:
    """May be asked by several threads: looks into repositories take turns, since they keep what they have read."""

    def __init__(self) -> None:
        troubles = Troubles()
        self._git = GitProbe(troubles)
        self._files = FileProbe(troubles)
        self._turn = threading.Lock()

    def look(self, facts: Collection[Fact]) -> dict[Fact, Seen]:
        seen = self._files.look(fact for fact in facts if isinstance(fact, File))
        others = [fact for fact in facts if not isinstance(fact, File)]
        if not others:
            return seen
        with self._turn:
            return seen | self._git.look(others)

    def repository_of(self, directory: str) -> str | None:
        return self._git.repository_of(directory)

    def top_of(self, directory: str) -> str | None:
        return self._git.top_of(directory)

    def branch(self, directory: str) -> str | None:
        return self._git.branch(directory)

    def resolve(self, repository: str, rev: str) -> str | None:
        return self._git.resolve(repository, rev)

    def has_merge_in_progress(self, repository: str) -> bool:
        return self._git.has_merge_in_progress(repository)
