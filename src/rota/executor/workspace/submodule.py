"""Work that exists only in the submodules of a worktree.

    .git/worktrees/job-24/modules/lib                 repository of the submodule `lib`
    .git/worktrees/job-24/modules/lib/modules/deep    repository of the submodule `deep` of `lib`
    worktrees/job-24/lib                              checkout of `lib`

git deletes these repositories together with the worktree, so it refuses to remove such a worktree unless forced. Before
Rota forces it, every checkout must be clean, and every commit must be on a remote-tracking branch or recorded by the
base of the worktree. Local branches, tags and stashes of a submodule are deleted with it and preserve nothing.
Repositories are checked even without a checkout: `git submodule deinit` leaves them behind.
"""

# ruff: noqa: PTH112, PTH113, PTH118, PTH123, PTH208
from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rota.executor.workspace.git import Git

_GITLINK = "160000"
_MAX_NAMES = 3


def has_submodules(git: Git, path: str) -> bool:
    """Return whether git would refuse to remove the worktree at `path` because of submodules."""
    admin = _admin_directory(git.directory, path)
    has_repositories = admin is not None and os.path.isdir(f"{admin}/modules")
    return has_repositories or any(True for _ in _checkouts(git.in_directory(path), ""))


def unsaved_work(git: Git, path: str, base: str) -> str | None:
    """Describe work that would be lost with the submodules of the worktree at `path`; None if there is none."""
    recorded = _recorded_commits(git, [base])
    admin = _admin_directory(git.directory, path)
    modules = os.path.realpath(f"{admin or path}/modules")
    in_checkouts = _unsaved_work_in_checkouts(git.in_directory(path), "", recorded, modules)
    return in_checkouts or _unsaved_work_in_repositories(git, modules, "", recorded)


def describe_changes(changes: Sequence[str]) -> str:
    """Return the first names in the lines of `git status --porcelain`."""
    rest = f" and {len(changes) - _MAX_NAMES} more" if len(changes) > _MAX_NAMES else ""
    return f"{', '.join(change[3:] for change in changes[:_MAX_NAMES])}{rest}"


def _unsaved_work_in_checkouts(git: Git, prefix: str, recorded: Sequence[str], modules: str) -> str | None:
    for path in _checkouts(git, prefix):
        checkout = git.in_directory(os.path.join(git.directory, path.removeprefix(prefix)))
        changes = checkout("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none").splitlines()
        if changes:
            return f"uncommitted in submodule {path}: {describe_changes(changes)}"
        repository = os.path.realpath(checkout("rev-parse", "--absolute-git-dir"))
        is_embedded = not repository.startswith(f"{modules}/")
        reason = _unsaved_commits(git, repository, path, recorded) if is_embedded else None
        if reason := reason or _unsaved_work_in_checkouts(checkout, f"{path}/", recorded, modules):
            return reason
    return None


def _unsaved_work_in_repositories(git: Git, modules: str, prefix: str, recorded: Sequence[str]) -> str | None:
    for name, repository in _repositories(modules, prefix):
        repository_git = _git_in_repository(git, repository)
        if reason := _unsaved_commits(git, repository, name, recorded):
            return reason
        recorded_inside = _recorded_commits(repository_git, _existing_commits(repository_git, recorded))
        if reason := _unsaved_work_in_repositories(git, f"{repository}/modules", f"{name}/", recorded_inside):
            return reason
    return None


def _unsaved_commits(git: Git, repository: str, name: str, recorded: Sequence[str]) -> str | None:
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


def _recorded_commits(git: Git, commits: Sequence[str]) -> list[str]:
    """Return the commits of submodules that these commits record."""
    lines = [line for commit in commits for line in git("ls-tree", "-r", "-z", commit).split("\0")]
    return [line.split()[2] for line in lines if line.startswith(f"{_GITLINK} ")]


def _checkouts(git: Git, prefix: str) -> Iterator[str]:
    """Yield the paths of the submodules that are checked out in the working tree of `git`."""
    if not os.path.isdir(git.directory):
        return
    for line in git("ls-files", "--stage", "-z").split("\0"):
        entry, _, name = line.partition("\t")
        if entry.startswith(f"{_GITLINK} ") and os.path.lexists(os.path.join(git.directory, name, ".git")):
            yield f"{prefix}{name}"


def _repositories(modules: str, prefix: str) -> Iterator[tuple[str, str]]:
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
            yield from _repositories(path, f"{prefix}{name}/")


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
