"""Lines of `rota show` on the worktree and the patches of a job."""

from __future__ import annotations

from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json


def workspace_lines(workspace: Json | None) -> list[str]:
    """Return the lines on the workspace that are not fields of the job."""
    if workspace is None:
        return []
    kept = f"kept, {workspace['kept_reason']}" if workspace.get("kept_reason") and workspace.get("worktree") else None
    pairs = [
        ("branch", workspace.get("branch")),
        ("worktree is", kept),
        ("command patch", workspace.get("command_patch")),
        ("input patch", workspace.get("input_patch")),
    ]
    return [f"{name:<18} {escape_unprintable(str(value))}" for name, value in pairs if value]
