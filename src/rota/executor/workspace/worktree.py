"""A job's own worktree and branch: made, and removed again where nothing could be lost by it.

Safe to remove means: nothing is uncommitted, untracked files that are not ignored included, and no commit of it is
reachable from its own branch alone. What the user had not committed and gave along (`--with-diff`) does not count
while it is as it was given: it is the job's input. Nothing is removed by guess: where git does not answer, it stays.
"""

# ruff: noqa: PTH103, PTH112, PTH118, PTH120
from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from rota.executor.workspace.git import Git, GitError
from rota.executor.workspace.tree import Scratch, snapshot

PATIENCE = 60.0
"""Seconds for a removal that somebody asks for and waits for."""
_MOST_NAMES = 100
_LOOK_AGAIN = 0.02
_NAMED = 3


class Worktree(NamedTuple):
    repository: str
    """The git common directory."""
    path: str
    branch: str
    base: str
    """The commit it was made from."""
    start: str = ""
    """The tree it began with, where that is not the one of `base`."""


def make(git: Git, folder: str, job: str, base: str, before: Worktree | None) -> Worktree:
    """A new worktree of the repository that `git` is in. What an earlier start of the job left is removed if that is
    safe, and otherwise keeps its name: then this one gets another."""
    os.makedirs(folder, 0o700, exist_ok=True)
    for number in itertools.count(1):
        name = job if number == 1 else f"{job}.{number}"
        made = Worktree(git.directory, os.path.join(folder, name), f"rota/{name}", base)
        if _is_free(git, made, before):
            _add(git, made)
            return made
        if number >= _MOST_NAMES:
            raise GitError(
                f"there are {number} worktrees or branches of {job} already, up to {made.branch}; remove some"
            )
    raise AssertionError("unreachable")


def _is_free(git: Git, wanted: Worktree, before: Worktree | None) -> bool:
    """Whether there is nothing of that name, or nothing any more. Only what is the job's own goes: what lies in its
    place in the home, or what it wrote down. A branch that somebody else has called so is his."""
    is_there = os.path.lexists(wanted.path)
    if not is_there and _tip(git, wanted.branch) is None:
        return True
    is_noted = before is not None and before.path == wanted.path
    if not is_there and not is_noted:
        return False
    left = before if before is not None and is_noted else wanted
    return remove_if_safe(left, deadline=git.deadline) is None


def _add(git: Git, wanted: Worktree) -> None:
    """Its entry first, which is quick and needs the others to wait; then its files, which may take a while."""
    try:
        with _alone(git, wanted):
            git(
                "worktree",
                "add",
                "--quiet",
                "--no-checkout",
                "--no-track",
                "-b",
                wanted.branch,
                wanted.path,
                wanted.base,
            )
        git.at(wanted.path)("reset", "--hard", "--quiet")
    except BaseException:
        undo(wanted)
        raise


def undo(made: Worktree) -> None:
    """Remove what was just made and nobody has worked in."""
    git = Git(made.repository, time.monotonic() + 5.0)
    with contextlib.suppress(GitError), _alone(git, made):
        git.maybe("worktree", "remove", "--force", made.path)
        git.maybe("update-ref", "-d", f"refs/heads/{made.branch}", made.base)


def remove_if_safe(tree: Worktree, *, deadline: float | None = None) -> str | None:
    """Remove the worktree and its branch if nothing can be lost by that; else why it stays. Takes as long as git does,
    up to the deadline: for a thread that may wait."""
    git = Git(tree.repository, time.monotonic() + PATIENCE if deadline is None else deadline)
    try:
        tip = _tip(git, tree.branch)
        is_as_given = False
        if os.path.lexists(tree.path):
            is_as_given = _holds_what_was_given(git, tree)
        own = _own_commits(git, tree, tip)
        if own:
            return f"{own} commit{'s' if own > 1 else ''} on no other branch"
        user = _used_at(git, tree)
        if user is not None:
            return f"its branch {tree.branch} is checked out at {user}"
        _remove(git, tree, tip, is_forced=is_as_given)
    except _Stays as reason:
        return str(reason)
    except GitError as error:
        return f"it cannot be told whether that is safe: {error}"
    return None


class _Stays(Exception):
    """Why it is not removed."""


def _holds_what_was_given(git: Git, tree: Worktree) -> bool:
    """Whether there is something uncommitted that is just what was given along; raises where there is anything else."""
    inside = git.at(tree.path)
    top = inside.maybe("rev-parse", "--show-toplevel") if os.path.isdir(tree.path) else None
    if top is None or os.path.realpath(top) != os.path.realpath(tree.path):
        if os.path.isdir(tree.path) and not os.listdir(tree.path):  # noqa: PTH208
            os.rmdir(tree.path)  # noqa: PTH106
            return False
        raise _Stays("it is no worktree any more")
    common = inside("rev-parse", "--path-format=absolute", "--git-common-dir")
    if os.path.realpath(common) != os.path.realpath(tree.repository):
        raise _Stays(f"it is a worktree of another repository: {common}")
    changes = inside("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none").splitlines()
    if not changes:
        return False
    if tree.start and _tree_of(inside, tree) == tree.start:
        return True
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    raise _Stays(f"uncommitted: {', '.join(change[3:] for change in changes[:_NAMED])}{more}")


def _tree_of(git: Git, tree: Worktree) -> str:
    scratch = Scratch(f"{tree.path}.tmp")
    try:
        return snapshot(git, scratch, home=tree.path)
    finally:
        scratch.remove()


def _own_commits(git: Git, tree: Worktree, tip: str | None) -> int:
    """Commits made here that would be out of reach without it: also those of a head that is on no branch."""
    heads = [] if tip is None else [tip]
    if os.path.isdir(tree.path) and (head := git.at(tree.path).maybe("rev-parse", "--verify", "--quiet", "HEAD")):
        heads.append(head)
    if not heads:
        return 0
    # Another job's branch is no place to keep them: it goes when that job has ended.
    others = ("--not", tree.base, "--exclude=rota/*", "--branches", "--remotes", "--tags")
    return int(git("rev-list", "--count", *heads, *others))


def _remove(git: Git, tree: Worktree, tip: str | None, *, is_forced: bool) -> None:
    """git looks once more itself, unless forced; the branch goes only as it was looked at."""
    with _alone(git, tree):
        if os.path.lexists(tree.path) or _is_listed(git, tree.path):
            git("worktree", "remove", *(["--force"] if is_forced else []), tree.path)
    if tip is not None:
        git("update-ref", "-d", f"refs/heads/{tree.branch}", tip)


@contextlib.contextmanager
def _alone(git: Git, tree: Worktree) -> Iterator[None]:
    """One at a time: git reads the entries of all worktrees when it adds one, and stumbles over one that is half made
    or half removed."""
    folder = os.path.dirname(tree.path)
    os.makedirs(folder, 0o700, exist_ok=True)
    lock = os.open(f"{folder}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _is_locked(lock):
            if time.monotonic() > git.deadline:
                raise GitError("other worktrees are being made or removed, and that takes too long")
            time.sleep(_LOOK_AGAIN)
        yield
    finally:
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _used_at(git: Git, tree: Worktree) -> str | None:
    """Another working tree that has its branch."""
    place = ""
    for line in git("worktree", "list", "--porcelain").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            place = rest
        elif word == "branch" and rest == f"refs/heads/{tree.branch}" and _differ(place, tree.path):
            return place
    return None


def _differ(one: str, other: str) -> bool:
    return os.path.realpath(one) != os.path.realpath(other)


def _is_listed(git: Git, path: str) -> bool:
    """The directory is gone, and git does not know it yet."""
    return f"worktree {path}" in git("worktree", "list", "--porcelain").splitlines()


def _tip(git: Git, branch: str) -> str | None:
    return git.maybe("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
