"""Order and record of a job's workspace.

The order has the parameters of the workspace. The supervisor passes it to `begin` and `end` unchanged. The record is
`workspace.json` in the job's directory: the location of the workspace and its state.
"""

# ruff: noqa: PTH105

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from rota.job_files import WORKSPACE_FILE
from rota.worktrees.worktree import Worktree, remove_if_safe


class WorkspaceOrder(NamedTuple):
    """Parameters of the children that set up and finish a workspace."""

    home: str
    job: str
    """Name of the worktree, such as `job-24`."""
    directory: str
    """The job's directory."""
    cwd: str
    """The working directory of the submit."""
    repository: str
    subdirectory: str
    """The working directory relative to the top of the working tree."""
    base: str | None
    """The commit of the job's own worktree. None: the job works in the directory of the submit."""
    needs_patch: bool
    input_patch: str | None
    """Path of the patch that was captured at submit."""
    limit: float
    """Seconds for `begin` and for `end`."""


def parse_order(order: dict[str, Any]) -> WorkspaceOrder:
    return WorkspaceOrder(
        home=order["home"],
        job=order["job"],
        directory=order["directory"],
        cwd=order["cwd"],
        repository=order.get("repository", ""),
        subdirectory=order.get("subdirectory", ""),
        base=order.get("base"),
        needs_patch=bool(order.get("patch")) or order.get("base") is not None,
        input_patch=order.get("input_patch"),
        limit=float(order["limit"]),
    )


def read(directory: str) -> dict[str, Any] | None:
    """Return the record; None if there is no valid one."""
    try:
        fd = os.open(f"{directory}/{WORKSPACE_FILE}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            record = json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def write(directory: str, record: dict[str, Any]) -> None:
    temporary = f"{directory}/{WORKSPACE_FILE}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        json.dump(record, file)
        file.write("\n")
    os.replace(temporary, f"{directory}/{WORKSPACE_FILE}")


def read_worktree(directory: str) -> Worktree | None:
    """Return the worktree that the job has or had."""
    record = read(directory)
    if record is None or not record.get("worktree"):
        return None
    names = ("repository", "worktree", "branch", "base", "start_tree")
    repository, path, branch, base, start = (str(record.get(name) or "") for name in names)
    return Worktree(repository, path, branch, base, start)


def mark_used(directory: str) -> Worktree | None:
    """Mark the workspace as used by a new run, so that no other process removes its worktree. Return the worktree that
    an earlier run left."""
    with lock_record(directory):
        record = read(directory)
        if record is not None and record.pop("kept_reason", None) is not None:
            write(directory, record)
    return read_worktree(directory)


def remove_kept_worktree(directory: str, deadline: float) -> str | None:
    """Remove the worktree of an ended run if nothing can be lost, else return the reason it is kept."""
    with lock_record(directory):
        record, tree = read(directory), read_worktree(directory)
        if record is None or tree is None or record.get("kept_reason") is None:
            return None  # already removed, or in use by a run
        kept = remove_if_safe(tree, deadline=deadline)
        write(directory, {**record, "kept_reason": kept, "is_removed": kept is None})
    return kept if kept is None else f"{tree.path}: {kept}"


@contextlib.contextmanager
def lock_record(directory: str) -> Iterator[None]:
    """Lock the record of this job inside this context."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
