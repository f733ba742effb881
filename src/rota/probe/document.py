"""Which paths are documents in which commits of one repository.

A commit never changes, so an answer holds for good: git is asked, once for all that is new, when a branch has moved.
The question is put to the tree that holds the path, not to the document: in a partial clone the tree is there and
the content may not be.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Collection, Mapping, Sequence

from rota.probe.program import GitFailed, GitRefused, ask
from rota.probe.trouble import Troubles

_MOST = 10_000
_PAUSE = 30.0
"""Seconds until git is asked again about a commit that it could not read."""
_HEADER = re.compile(rb"[0-9a-f]+ tree ([0-9]+)")
_NOT_A_DOCUMENT = frozenset({b"40000", b"160000"})
"""Modes of a folder and of a submodule."""

Place = tuple[str, str]
"""A commit and a path in it."""


def _split(path: str) -> tuple[str, bytes] | None:
    """Folder (empty at the top) and name; none when no commit can have such a path."""
    path = posixpath.normpath(path)
    if path.startswith(("/", "../")) or path in {".", ".."} or "\n" in path or "\0" in path:
        return None
    folder, name = posixpath.split(path)
    try:
        os.fsencode(folder)
        return folder, os.fsencode(name)
    except UnicodeEncodeError:
        return None


def _documents(tree: bytes, width: int) -> frozenset[bytes]:
    """Names of the documents in a tree: a row of mode, space, name, NUL, and an id of so many bytes."""
    names = set()
    at = 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        mode, _, name = tree[at:end].partition(b" ")
        if mode not in _NOT_A_DOCUMENT:
            names.add(name)
        at = end + 1 + width
    return frozenset(names)


class Documents:
    def __init__(self, repository: str, troubles: Troubles) -> None:
        self._repository = repository
        self._troubles = troubles
        self._known: dict[Place, bool] = {}
        self._not_before: dict[str, float] = {}

    def look(self, places: Collection[Place]) -> dict[Place, bool]:
        """Raises GitFailed when git cannot be asked at all."""
        if len(self._known) > _MOST:
            self._known = {place: self._known[place] for place in places if place in self._known}
        unknown: dict[str, dict[str, tuple[str, bytes]]] = {}
        for commit, path in places:
            parts = None if (commit, path) in self._known else _split(path)
            if parts is not None:
                unknown.setdefault(commit, {})[path] = parts
        now = time.monotonic()
        self._not_before = {commit: at for commit, at in self._not_before.items() if at > now}
        commits = [commit for commit in unknown if commit not in self._not_before]
        if commits:
            self._learn(commits, unknown)
        return {place: self._known.get(place, False) for place in places}

    def _learn(self, commits: Sequence[str], paths: Mapping[str, Mapping[str, tuple[str, bytes]]]) -> None:
        """One commit that cannot be read ends git for all that were asked with it, so it is looked for by halves."""
        asked = [
            (commit, folder) for commit in commits for folder in {"", *(part[0] for part in paths[commit].values())}
        ]
        try:
            trees = self._ask(asked)
        except GitRefused as error:
            if len(commits) == 1:
                self._give_up(commits[0], str(error))
                return
            half = len(commits) // 2
            self._learn(commits[:half], paths)
            self._learn(commits[half:], paths)
            return
        for commit in commits:
            if trees[commit, ""] is None:
                self._give_up(commit, "there is no such commit")
                continue
            self._troubles.is_over(f"commit {commit} of {self._repository}")
            for path, (folder, name) in paths[commit].items():
                self._known[commit, path] = name in (trees[commit, folder] or ())

    def _give_up(self, commit: str, trouble: str) -> None:
        self._troubles.tell(f"commit {commit} of {self._repository}", trouble)
        self._not_before[commit] = time.monotonic() + _PAUSE

    def _ask(self, asked: Sequence[Place]) -> dict[Place, frozenset[bytes] | None]:
        # With the slash at its end a path names a folder or nothing: never a document, which could be of any size.
        lines = [f"{commit}:{folder}/" if folder else f"{commit}:" for commit, folder in asked]
        stdin = os.fsencode("\n".join([*lines, ""]))
        said = ask(self._repository, ["cat-file", "--batch", "--buffer"], stdin=stdin, is_strict=True)
        trees: dict[Place, frozenset[bytes] | None] = {}
        at = 0
        try:
            for place in asked:
                end = said.index(b"\n", at)
                header = _HEADER.fullmatch(said, at, end)
                at = end + 1
                trees[place] = None
                if header is not None:
                    size = int(header[1])
                    trees[place] = _documents(said[at : at + size], len(place[0]) // 2)
                    at += size + 1
        except ValueError as error:
            raise GitFailed("git cat-file broke off") from error
        return trees
