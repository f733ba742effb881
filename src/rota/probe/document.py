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

from rota.core.fact import UNREADABLE, Trouble
from rota.probe.program import GitFailed, GitRefused, ask_closely
from rota.probe.trouble import Troubles

_MOST = 10_000
_PAUSE = 10.0
"""Seconds until git is asked again about a commit that it could not read."""
_HEADER = re.compile(rb"[0-9a-f]+ tree ([0-9]+)")
_NOT_A_DOCUMENT = frozenset({b"40000", b"160000"})
"""Modes of a folder and of a submodule."""

Place = tuple[str, str]
"""A commit and a path in it."""
Trees = dict[Place, frozenset[bytes] | None]
"""Names of the documents in each folder; none for a folder that git did not show."""


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

    def look(self, places: Collection[Place]) -> dict[Place, bool | Trouble]:
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
        return {place: self._known.get(place, UNREADABLE if _split(place[1]) else False) for place in places}

    def _learn(self, commits: Sequence[str], paths: Mapping[str, Mapping[str, tuple[str, bytes]]]) -> None:
        """One commit that cannot be read ends git for all that were asked with it, so it is looked for by halves."""
        asked = [
            (commit, folder) for commit in commits for folder in {"", *(part[0] for part in paths[commit].values())}
        ]
        trees: Trees = {}
        try:
            trees, broken = self._ask(asked)
        except GitRefused as error:
            broken = str(error)
        is_doubtful = broken is not None and (not trees or None in trees.values())
        if is_doubtful and len(commits) > 1:
            half = len(commits) // 2
            self._learn(commits[:half], paths)
            self._learn(commits[half:], paths)
            return
        for commit in commits:
            self._book(commit, paths[commit], trees, broken)

    def _book(self, commit: str, paths: Mapping[str, tuple[str, bytes]], trees: Trees, broken: str | None) -> None:
        """A folder that git did not show is missing, unless git had trouble or not even the commit is there."""
        is_whole = broken is None and trees[commit, ""] is not None
        for path, (folder, name) in paths.items():
            tree = trees.get((commit, folder))
            if tree is not None or is_whole:
                self._known[commit, path] = tree is not None and name in tree
        if all((commit, path) in self._known for path in paths):
            self._troubles.is_over(f"commit {commit} of {self._repository}")
        else:
            self._give_up(commit, broken or "there is no such commit")

    def _give_up(self, commit: str, trouble: str) -> None:
        self._troubles.tell(f"commit {commit} of {self._repository}", trouble)
        self._not_before[commit] = time.monotonic() + _PAUSE

    def _ask(self, asked: Sequence[Place]) -> tuple[Trees, str | None]:
        # With the slash at its end a path names a folder or nothing: never a document, which could be of any size.
        lines = [f"{commit}:{folder}/" if folder else f"{commit}:" for commit, folder in asked]
        stdin = os.fsencode("\n".join([*lines, ""]))
        said, broken = ask_closely(self._repository, ["cat-file", "--batch", "--buffer"], stdin=stdin)
        trees: Trees = {}
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
        return trees, broken
