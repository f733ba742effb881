"""Worktree and branch of a job: creation, and removal if nothing can be lost.

Safe to remove means: nothing is uncommitted, including untracked files that are not ignored, and no commit is reachable
only from the job's own branch. The same holds for its submodules. Uncommitted changes that the user submitted with the
job (`--with-diff`) do not count as long as they are unchanged: they are the job's input. In doubt, for example if git
fails, the worktree is kept.

The repositories of submodules are part of the worktree:

    .git/worktrees/job-24/modules/lib                 repository of the submodule `lib`
    .git/worktrees/job-24/modules/lib/modules/deep    repository of the submodule `deep` of `lib`
    worktrees/job-24/lib                              checkout of `lib`

git deletes these repositories together with the worktree, so it refuses to remove such a worktree unless forced. Before
Rota forces it, every checkout must be clean, and every commit must be on a remote-tracking branch or recorded by the
base of the worktree. Local branches, tags and stashes of a submodule are deleted with it and preserve nothing.
Repositories are checked even without a checkout: `git submodule deinit` leaves them behind.
"""

# ruff: noqa: PTH103, PTH112, PTH113, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rota.worktrees.git import Git, GitError
from rota.worktrees.patches import ScratchDirectory, snapshot

REMOVAL_TIMEOUT = 60.0
"""Seconds for a removal that a user requests and waits for."""

_MAX_WORKTREES_PER_JOB = 100
_MAX_LISTED_CHANGES = 3
_LOCK_RETRY_INTERVAL = 0.02
_GITLINK = "160000"


class Worktree(NamedTuple):
    """Worktree of a job, with its branch."""

    repository: str
    """The git common directory."""
    path: str
    branch: str
    base: str
    """The commit it was created from."""
    start_tree: str = ""
    """The tree at the start; empty if it is the tree of `base`."""


def make_worktree(git: Git, folder: str, job: str, base: str, previous: Worktree | None) -> Worktree:
    """Create a worktree of the repository of `git`. A worktree of an earlier start of the job is removed if that is
    safe; otherwise it keeps its name, and the new one gets another."""
    os.makedirs(folder, 0o700, exist_ok=True)
    for number in itertools.count(1):
        name = job if number == 1 else f"{job}.{number}"
        tree = Worktree(git.directory, os.path.join(folder, name), f"rota/{name}", base)
        if _is_name_free(git, tree, previous):
            _add_worktree(git, tree)
            return tree
        if number >= _MAX_WORKTREES_PER_JOB:
            raise GitError(
                f"{job} already has {number} worktrees or branches, up to {tree.branch}; remove some of them"
            )
    raise AssertionError("unreachable")


def _is_name_free(git: Git, candidate: Worktree, previous: Worktree | None) -> bool:
    """Return whether the name is free, after removing an earlier worktree of the job if that is safe. Only the job's
    own is removed: the directory in the home, or the recorded worktree. A branch that the user gave this name is
    kept."""
    path_exists = os.path.lexists(candidate.path)
    if not path_exists and _branch_tip(git, candidate.branch) is None:
        return True
    is_recorded = previous is not None and previous.path == candidate.path
    if not path_exists and not is_recorded:
        return False
    leftover = previous if previous is not None and is_recorded else candidate
    return remove_if_safe(leftover, deadline=git.deadline) is None


def _add_worktree(git: Git, worktree: Worktree) -> None:
    """Add the worktree in two steps: its entry, which is quick and needs the lock, then its files, which may take
    longer."""
    try:
        with _lock_worktrees(git, worktree):
            git(
                "worktree",
                "add",
                "--quiet",
                "--no-checkout",
                "--no-track",
                "-b",
                worktree.branch,
                worktree.path,
                worktree.base,
            )
        git.in_directory(worktree.path)("reset", "--hard", "--quiet")
    except BaseException:
        discard_worktree(worktree)
        raise


def discard_worktree(worktree: Worktree) -> None:
    """Remove a worktree that was just created and is unused."""
    git = Git(worktree.repository, time.monotonic() + 5.0)
    with contextlib.suppress(GitError), _lock_worktrees(git, worktree):
        git.try_run("worktree", "remove", "--force", worktree.path)
        git.try_run("update-ref", "-d", f"refs/heads/{worktree.branch}", worktree.base)


def remove_if_safe(tree: Worktree, *, deadline: float | None = None) -> str | None:
    """Remove the worktree and its branch if nothing can be lost, else return the reason it is kept. Blocks as long as
    git does, up to the deadline: for a thread that may wait."""
    git = Git(tree.repository, time.monotonic() + REMOVAL_TIMEOUT if deadline is None else deadline)
    try:
        tip = _branch_tip(git, tree.branch)
        has_only_input = os.path.lexists(tree.path) and _has_only_input_changes(git, tree)
        count = _count_own_commits(git, tree, tip)
        if count:
            return f"{count} commit{'s' if count > 1 else ''} on no other branch"
        checkout = _other_checkout(git, tree)
        if checkout is not None:
            return f"its branch {tree.branch} is checked out at {checkout}"
        has_submodules = _contains_submodules(git, tree.path)
        if has_submodules and (unsaved := _unsaved_work_in_submodules(git, tree.path, tree.base)):
            return unsaved
        _remove_worktree(git, tree, tip, is_forced=has_only_input or has_submodules)
    except _WorktreeKept as reason:
        return str(reason)
    except GitError as error:
        return f"cannot determine whether removing it is safe: {error}"
    return None


class _WorktreeKept(Exception):
    """Reason why the worktree is kept."""


def _has_only_input_changes(git: Git, tree: Worktree) -> bool:
    """Return whether the only uncommitted changes are the job's input. Raises _WorktreeKept if there are others."""
    worktree_git = git.in_directory(tree.path)
    top = worktree_git.try_run("rev-parse", "--show-toplevel") if os.path.isdir(tree.path) else None
    if top is None or os.path.realpath(top) != os.path.realpath(tree.path):
        if os.path.isdir(tree.path) and not os.listdir(tree.path):
            os.rmdir(tree.path)  # noqa: PTH106
            return False
        raise _WorktreeKept("it is not a worktree anymore")
    common = worktree_git("rev-parse", "--path-format=absolute", "--git-common-dir")
    if os.path.realpath(common) != os.path.realpath(tree.repository):
        raise _WorktreeKept(f"it is a worktree of another repository: {common}")
    options = ("--porcelain", "--untracked-files=normal", "--ignore-submodules=none")
    changes = worktree_git("status", *options).splitlines()
    if not changes:
        return False
    if tree.start_tree and _snapshot_worktree(worktree_git, tree) == tree.start_tree:
        return True
    raise _WorktreeKept(f"uncommitted: {_describe_changes(changes)}")


def _snapshot_worktree(git: Git, tree: Worktree) -> str:
    scratch = ScratchDirectory(f"{tree.path}.tmp")
    try:
        return snapshot(git, scratch, home=tree.path)
    finally:
        scratch.remove()


def _count_own_commits(git: Git, tree: Worktree, tip: str | None) -> int:
    """Count the commits that would become unreachable, including those of a detached head."""
    heads = [] if tip is None else [tip]
    if os.path.isdir(tree.path) and (
        head := git.in_directory(tree.path).try_run("rev-parse", "--verify", "--quiet", "HEAD")
    ):
        heads.append(head)
    if not heads:
        return 0
    # Another job's branch does not preserve them: it is removed when that job has ended.
    others = ("--not", tree.base, "--exclude=rota/*", "--branches", "--remotes", "--tags")
    return int(git("rev-list", "--count", *heads, *others))


def _remove_worktree(git: Git, tree: Worktree, tip: str | None, *, is_forced: bool) -> None:
    """Remove the worktree and its branch. git checks again itself, unless forced; the branch is removed only at the
    checked commit."""
    with _lock_worktrees(git, tree):
        if os.path.lexists(tree.path) or _is_listed(git, tree.path):
            git("worktree", "remove", *(["--force"] if is_forced else []), tree.path)
    if tip is not None:
        git("update-ref", "-d", f"refs/heads/{tree.branch}", tip)


@contextlib.contextmanager
def _lock_worktrees(git: Git, tree: Worktree) -> Iterator[None]:
    """Serialize changes of worktrees: git reads the entries of all worktrees when it adds one, and fails on an entry
    that is partly created or removed."""
    folder = os.path.dirname(tree.path)
    os.makedirs(folder, 0o700, exist_ok=True)
    lock = os.open(f"{folder}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(lock):
            if time.monotonic() > git.deadline:
                raise GitError("timed out while other worktrees were being added or removed")
            time.sleep(_LOCK_RETRY_INTERVAL)
        yield
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _other_checkout(git: Git, tree: Worktree) -> str | None:
    """Return the path of another working tree that has its branch."""
    path = ""
    for line in git("worktree", "list", "--porcelain").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            path = rest
        elif word == "branch" and rest == f"refs/heads/{tree.branch}" and _are_different_paths(path, tree.path):
            return path
    return None


def _are_different_paths(path: str, other: str) -> bool:
    return os.path.realpath(path) != os.path.realpath(other)


def _is_listed(git: Git, path: str) -> bool:
    """Return whether git still lists the worktree although its directory is gone."""
    return f"worktree {path}" in git("worktree", "list", "--porcelain").splitlines()


def _branch_tip(git: Git, branch: str) -> str | None:
    return git.try_run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")


def _describe_changes(changes: Sequence[str]) -> str:
    """Return the first names in the lines of `git status --porcelain`."""
    rest = f" and {len(changes) - _MAX_LISTED_CHANGES} more" if len(changes) > _MAX_LISTED_CHANGES else ""
    return f"{', '.join(change[3:] for change in changes[:_MAX_LISTED_CHANGES])}{rest}"


def _contains_submodules(git: Git, path: str) -> bool:
    """Return whether git would refuse to remove the worktree at `path` because of submodules."""
    admin = _admin_directory(git.directory, path)
    has_repositories = admin is not None and os.path.isdir(f"{admin}/modules")
    return has_repositories or any(True for _ in _submodule_checkouts(git.in_directory(path), ""))


def _unsaved_work_in_submodules(git: Git, path: str, base: str) -> str | None:
    """Describe work that would be lost with the submodules of the worktree at `path`; None if there is none."""
    recorded = _recorded_submodule_commits(git, [base])
    admin = _admin_directory(git.directory, path)
    modules = os.path.realpath(f"{admin or path}/modules")
    in_checkouts = _unsaved_work_in_checkouts(git.in_directory(path), "", recorded, modules)
    return in_checkouts or _unsaved_work_in_repositories(git, modules, "", recorded)


def _unsaved_work_in_checkouts(git: Git, prefix: str, recorded: Sequence[str], modules: str) -> str | None:
    for path in _submodule_checkouts(git, prefix):
        checkout = git.in_directory(os.path.join(git.directory, path.removeprefix(prefix)))
        changes = checkout("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none").splitlines()
        if changes:
            return f"uncommitted in submodule {path}: {_describe_changes(changes)}"
        repository = os.path.realpath(checkout("rev-parse", "--absolute-git-dir"))
        is_embedded = not repository.startswith(f"{modules}/")
        reason = _unsaved_submodule_commits(git, repository, path, recorded) if is_embedded else None
        if reason := reason or _unsaved_work_in_checkouts(checkout, f"{path}/", recorded, modules):
            return reason
    return None


def _unsaved_work_in_repositories(git: Git, modules: str, prefix: str, recorded: Sequence[str]) -> str | None:
    for name, repository in _submodule_repositories(modules, prefix):
        repository_git = _git_in_repository(git, repository)
        if reason := _unsaved_submodule_commits(git, repository, name, recorded):
            return reason
        recorded_inside = _recorded_submodule_commits(repository_git, _existing_commits(repository_git, recorded))
        if reason := _unsaved_work_in_repositories(git, f"{repository}/modules", f"{name}/", recorded_inside):
            return reason
    return None


def _unsaved_submodule_commits(git: Git, repository: str, name: str, recorded: Sequence[str]) -> str | None:
    repository_git = _git_in_repository(git, repository)
    head = repository_git.try_run("rev-parse", "--verify", "--quiet", "HEAD")
    heads = [] if head is None else [head]
    excluded = ["--remotes", *_existing_commits(repository_git, recorded)]
    count = int(repository_git("rev-list", "--count", *heads, "--all", "--not", *excluded))
    return f"{count} commit{'s' if count > 1 else ''} of submodule {name} on no remote branch" if count else None


def _git_in_repository(git: Git, repository: str) -> Git:
    """Return git in a repository, independent of its checkout, which may be gone."""
    return git.in_directory(repository, {"GIT_DIR": repository, "GIT_WORK_TREE": repository})


def _existing_commits(git: Git, commits: Sequence[str]) -> list[str]:
    return [commit for commit in commits if git.try_run("cat-file", "-e", f"{commit}^{{commit}}") is not None]


def _recorded_submodule_commits(git: Git, commits: Sequence[str]) -> list[str]:
    """Return the commits of submodules that these commits record."""
    lines = [line for commit in commits for line in git("ls-tree", "-r", "-z", commit).split("\0")]
    return [line.split()[2] for line in lines if line.startswith(f"{_GITLINK} ")]


def _submodule_checkouts(git: Git, prefix: str) -> Iterator[str]:
    """Yield the paths of the submodules that are checked out in the working tree of `git`."""
    if not os.path.isdir(git.directory):
        return
    for line in git("ls-files", "--stage", "-z").split("\0"):
        entry, _, name = line.partition("\t")
        if entry.startswith(f"{_GITLINK} ") and os.path.lexists(os.path.join(git.directory, name, ".git")):
            yield f"{prefix}{name}"


def _submodule_repositories(modules: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the name and directory of every repository below `modules`. A name may contain slashes."""
    try:
        names = sorted(os.listdir(modules))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = f"{modules}/{name}"
        if os.path.isfile(f"{path}/HEAD") and os.path.isdir(f"{path}/objects"):
            yield f"{prefix}{name}", path
        else:
            yield from _submodule_repositories(path, f"{prefix}{name}/")


def _admin_directory(common: str, path: str) -> str | None:
    """Return the administrative directory of the worktree at `path`, which may be gone."""
    entries = f"{common}/worktrees"
    try:
        names = os.listdir(entries)
    except FileNotFoundError:
        return None
    git_file = os.path.realpath(f"{path}/.git")
    for name in names:
        try:
            with open(f"{entries}/{name}/gitdir", encoding="utf-8", errors="surrogateescape") as file:
                target = file.read().strip()
        except OSError:
            continue
        if os.path.realpath(os.path.join(entries, name, target)) == git_file:
            return f"{entries}/{name}"
    return None
