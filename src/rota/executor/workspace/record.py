"""`workspace.json` in the job's directory: where its workspace is, and what became of it."""

# ruff: noqa: PTH105
from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any

from rota.executor.workspace.worktree import Worktree, remove_if_safe
from rota.report import WORKSPACE as FILE


def write(directory: str, record: dict[str, Any]) -> None:
    beside = f"{directory}/{FILE}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        json.dump(record, file)
        file.write("\n")
    os.replace(beside, f"{directory}/{FILE}")


@contextlib.contextmanager
def alone(directory: str) -> Iterator[None]:
    """The record of this job is nobody else's meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def mark_used(directory: str) -> Worktree | None:
    """A run begins: from now on nobody else removes what the record names. The worktree that an earlier one left."""
    with alone(directory):
        found = read(directory)
        if found is not None and found.pop("kept", None) is not None:
            write(directory, found)
    return worktree_of(directory)


def clear(directory: str, deadline: float) -> str | None:
    """Remove the worktree that a run has left, if it is over and nothing can be lost by that; else why it stays."""
    with alone(directory):
        found, tree = read(directory), worktree_of(directory)
        if found is None or tree is None or found.get("kept") is None:
            return None  # removed already, or a run is at work there
        kept = remove_if_safe(tree, deadline=deadline)
        write(directory, {**found, "kept": kept, "is_removed": kept is None})
    return kept if kept is None else f"{tree.path}: {kept}"


def read(directory: str) -> dict[str, Any] | None:
    """None where there is none that can be used."""
    try:
        fd = os.open(f"{directory}/{FILE}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def worktree_of(directory: str) -> Worktree | None:
    """The worktree that the job has or had."""
    found = read(directory)
    if found is None or not found.get("worktree"):
        return None
    names = ("repository", "worktree", "branch", "base", "start")
    repository, path, branch, base, start = (str(found.get(name) or "") for name in names)
    return Worktree(repository, path, branch, base, start)
