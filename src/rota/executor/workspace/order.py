"""What the supervisor is told of a job's workspace, and hands to `begin` and `end` as it is."""

from __future__ import annotations

from typing import Any, NamedTuple


class WorkspaceOrder(NamedTuple):
    home: str
    job: str
    """`job-24`: the name of its worktree."""
    directory: str
    """Where its files are."""
    cwd: str
    """As it was submitted."""
    repository: str
    below: str
    """The working directory inside the working tree."""
    base: str | None
    """The commit that its own worktree is made from; none: it works in the directory it was submitted in."""
    wants_patch: bool
    input: str | None
    """The patch that was taken at its submit."""
    limit: float
    """Seconds for each of begin and end."""


def read_order(order: dict[str, Any]) -> WorkspaceOrder:
    return WorkspaceOrder(
        home=order["home"],
        job=order["job"],
        directory=order["directory"],
        cwd=order["cwd"],
        repository=order.get("repository", ""),
        below=order.get("below", ""),
        base=order.get("base"),
        wants_patch=bool(order.get("patch")) or order.get("base") is not None,
        input=order.get("input"),
        limit=float(order["limit"]),
    )
