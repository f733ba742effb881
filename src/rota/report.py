"""What was reported in the files of a job's directory: by the child in the one that `ROTA_SESSION_FILE` names, and by
what made its workspace.

A child may put anything there: a fifo, a link to a device. So a file is opened without waiting and without following
links, and only a little of a plain file is read.
"""

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "session"
WORKSPACE = "workspace.json"
_MOST = 4096
_MOST_WORKSPACE = 1 << 16


def _beginning(path: str, most: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def session_path(directory: str) -> str | None:
    return _beginning(f"{directory}/{FILE}", _MOST).decode("utf-8", "replace").strip() or None


def workspace(directory: str) -> dict[str, Any]:
    """Where its worktree is, and why it is kept; empty where there is nothing to tell."""
    try:
        found = json.loads(_beginning(f"{directory}/{WORKSPACE}", _MOST_WORKSPACE) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def worktree_path(directory: str) -> str | None:
    """The job's worktree, while it has one."""
    found = workspace(directory)
    path = found.get("worktree")
    return path if isinstance(path, str) and not found.get("is_removed") else None
