"""Parameters of a job's workspace. The supervisor passes them to `begin` and `end` unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple


class WorkspaceOrder(NamedTuple):
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


def read_order(order: dict[str, Any]) -> WorkspaceOrder:
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
