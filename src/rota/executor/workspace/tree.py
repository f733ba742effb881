"""What a working tree holds at one moment, as a tree object, and how two such moments differ.

The tree is made from a copy of the index, and its objects go to a directory of our own: neither the index nor the
refs nor the objects of the repository are touched, and a `git gc` there cannot take them away.
"""

# ruff: noqa: PTH103, PTH105, PTH108
from __future__ import annotations

import contextlib
import os
import shutil

from rota.executor.workspace.git import Git, GitError

_DIFF = ("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv",
         "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "-U3")  # fmt: skip


_TRIES = 20


class Scratch:
    """Where the index and the objects of such moments are kept, for as long as they are compared."""

    def __init__(self, path: str) -> None:
        self.path = path

    def variables(self, git: Git) -> dict[str, str]:
        os.makedirs(f"{self.path}/objects", 0o700, exist_ok=True)
        objects = git("rev-parse", "--path-format=absolute", "--git-path", "objects")
        return {"GIT_OBJECT_DIRECTORY": f"{self.path}/objects", "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(objects)}

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def snapshot(git: Git, scratch: Scratch, home: str) -> str:
    """The tree object of all that is there, tracked or not, without what is ignored and without the home. `git`
    is at the top of the working tree."""
    top, index = git("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "index").split("\n")
    if os.path.realpath(top) != os.path.realpath(git.directory):
        raise GitError(f"{git.directory} is no working tree any more")
    beside = f"{scratch.path}/index"
    variables = {**scratch.variables(git), "GIT_INDEX_FILE": beside}
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    with contextlib.suppress(FileNotFoundError):
        # With its time: a file that changed in the very moment of its last `git add` is told by that alone.
        shutil.copy2(index, beside)
    beside_git = git.at(git.directory, variables)
    _add_all(beside_git, *_without(home, git.directory))
    return beside_git("write-tree")


def _add_all(git: Git, *exclusions: str) -> None:
    """What cannot be read, or is a repository without a commit, is left out; a file that vanishes while git comes to it
    makes git give up, and then it begins again."""
    for _ in range(_TRIES):
        if git.succeeds_in_part("add", "--all", "--ignore-errors", "--", ".", *exclusions):
            return
    git("add", "--all", "--ignore-errors", "--", ".", *exclusions)


def head_of(git: Git) -> str:
    """The commit that is checked out; the empty tree before the first commit."""
    return git.maybe("rev-parse", "--verify", "--quiet", "HEAD^{commit}") or git(
        "hash-object", "-t", "tree", "/dev/null"
    )


def write_patch(git: Git, scratch: Scratch, path: str, old: str, new: str, *, most: int | None = None) -> int:
    """The difference between two trees or commits; no file where there is none. Whole or not at all."""
    beside = f"{path}.tmp"
    try:
        size = git.at(git.directory, scratch.variables(git)).write(beside, *_DIFF, old, new, most=most)
        if size:
            os.replace(beside, path)
        return size
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


def _without(home: str, top: str) -> list[str]:
    home, top = os.path.realpath(home), os.path.realpath(top)
    return [f":(exclude,literal){os.path.relpath(home, top)}"] if home.startswith(f"{top}/") else []


def _quoted(path: str) -> str:
    """As git reads a list of directories: one with a colon or quotes in its name is written in quotes."""
    if ":" not in path and not path.startswith('"'):
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
