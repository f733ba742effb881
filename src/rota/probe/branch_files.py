"""Existence of files in the commits of one repository.

A commit never changes, so results are cached without expiry. When branches move, one git process reads all new commits.
It reads the tree that contains the path, not the file: a partial clone has the tree, but may lack the content.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Collection, Mapping, Sequence

from rota.kernel.facts import UNREADABLE, ProbeFailure
from rota.probe.git_command import Failures, GitCommandError, GitProbeError, run_git_with_error

_MAX_CACHED = 10_000
_RETRY_INTERVAL = 10.0
"""Seconds between two attempts to read a commit that git could not read."""
_TREE_HEADER = re.compile(rb"[0-9a-f]+ tree ([0-9]+)")
_NON_FILE_MODES = frozenset({b"40000", b"160000"})
"""Modes of a folder and of a submodule in a tree."""

CommitPath = tuple[str, str]
"""Commit id and path."""
FolderListings = dict[CommitPath, frozenset[bytes] | None]
"""Names of the files in each folder; None for a folder that git did not print."""


def _split_path(path: str) -> tuple[str, bytes] | None:
    """Return the folder (empty at the top) and the name, or None if no commit can contain such a path."""
    path = posixpath.normpath(path)
    if path.startswith(("/", "../")) or path in {".", ".."} or "\n" in path or "\0" in path:
        return None
    folder, name = posixpath.split(path)
    try:
        os.fsencode(folder)
        return folder, os.fsencode(name)
    except UnicodeEncodeError:
        return None


def _parse_tree(tree: bytes, id_bytes: int) -> frozenset[bytes]:
    """Return the names of the files in a tree, a sequence of entries `MODE SPACE NAME NUL ID`."""
    names = set()
    offset = 0
    while offset < len(tree):
        end = tree.index(b"\0", offset)
        mode, _, name = tree[offset:end].partition(b" ")
        if mode not in _NON_FILE_MODES:
            names.add(name)
        offset = end + 1 + id_bytes
    return frozenset(names)


class BranchFileReader:
    def __init__(self, repository: str, failures: Failures) -> None:
        self._repository = repository
        self._failures = failures
        self._cache: dict[CommitPath, bool] = {}
        self._not_before: dict[str, float] = {}

    def check(self, paths: Collection[CommitPath]) -> dict[CommitPath, bool | ProbeFailure]:
        """Return for each path whether it is a file. Raises GitProbeError if git cannot be run."""
        if len(self._cache) > _MAX_CACHED:
            self._cache = {path: self._cache[path] for path in paths if path in self._cache}
        unknown: dict[str, dict[str, tuple[str, bytes]]] = {}
        for commit, path in paths:
            parts = None if (commit, path) in self._cache else _split_path(path)
            if parts is not None:
                unknown.setdefault(commit, {})[path] = parts
        now = time.monotonic()
        self._not_before = {commit: not_before for commit, not_before in self._not_before.items() if not_before > now}
        commits = [commit for commit in unknown if commit not in self._not_before]
        if commits:
            self._load(commits, unknown)
        return {path: self._cache.get(path, UNREADABLE if _split_path(path[1]) else False) for path in paths}

    def _load(self, commits: Sequence[str], paths: Mapping[str, Mapping[str, tuple[str, bytes]]]) -> None:
        """Read the commits in one git process, and in halves if it fails: one unreadable commit ends git for all."""
        folders = [
            (commit, folder) for commit in commits for folder in {"", *(part[0] for part in paths[commit].values())}
        ]
        trees: FolderListings = {}
        try:
            trees, error = self._list_folders(folders)
        except GitCommandError as failure:
            error = str(failure)
        is_incomplete = error is not None and (not trees or None in trees.values())
        if is_incomplete and len(commits) > 1:
            half = len(commits) // 2
            self._load(commits[:half], paths)
            self._load(commits[half:], paths)
            return
        for commit in commits:
            self._record(commit, paths[commit], trees, error)

    def _record(
        self, commit: str, paths: Mapping[str, tuple[str, bytes]], trees: FolderListings, error: str | None
    ) -> None:
        """Cache the results. A folder that git did not print is missing, unless git failed or the commit is missing."""
        is_complete = error is None and trees[commit, ""] is not None
        for path, (folder, name) in paths.items():
            tree = trees.get((commit, folder))
            if tree is not None or is_complete:
                self._cache[commit, path] = tree is not None and name in tree
        if all((commit, path) in self._cache for path in paths):
            self._failures.clear(f"commit {commit} of {self._repository}")
        else:
            self._postpone(commit, error or "the commit is missing")

    def _postpone(self, commit: str, error: str) -> None:
        self._failures.report(f"commit {commit} of {self._repository}", error)
        self._not_before[commit] = time.monotonic() + _RETRY_INTERVAL

    def _list_folders(self, folders: Sequence[CommitPath]) -> tuple[FolderListings, str | None]:
        # With a trailing slash the path can only name a folder, never a file, which can have any size.
        lines = [f"{commit}:{folder}/" if folder else f"{commit}:" for commit, folder in folders]
        stdin = os.fsencode("\n".join([*lines, ""]))
        output, error = run_git_with_error(self._repository, ["cat-file", "--batch", "--buffer"], stdin=stdin)
        trees: FolderListings = {}
        offset = 0
        try:
            for folder in folders:
                end = output.index(b"\n", offset)
                header = _TREE_HEADER.fullmatch(output, offset, end)
                offset = end + 1
                trees[folder] = None
                if header is not None:
                    size = int(header[1])
                    trees[folder] = _parse_tree(output[offset : offset + size], len(folder[0]) // 2)
                    offset += size + 1
        except ValueError as failure:
            raise GitProbeError("the output of git cat-file is incomplete") from failure
        return trees, error
