"""A job's worktree and patches as lines of `rota show`."""

from __future__ import annotations

from rota.cli import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json


def workspace_lines(workspace: Json | None) -> list[str]:
    """What there is to say beyond the job's own fields."""
    if workspace is None:
        return []
    kept = f"kept, {workspace['kept']}" if workspace.get("kept") and workspace.get("worktree") else None
    pairs = [
        ("branch", workspace.get("branch")),
        ("worktree is", kept),
        ("command patch", workspace.get("command_patch")),
        ("input patch", workspace.get("input_patch")),
    ]
    return [f"{name:<18} {table.printable(str(value))}" for name, value in pairs if value]
