"""Reports in the files of a job's directory: the session path, which the child writes to `ROTA_SESSION_FILE`, and the
state of the workspace.

A child can put anything there: a FIFO, a link to a device. Files are therefore opened without blocking and without
following links, and only a limited prefix of a regular file is read.
"""

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SESSION_FILE = "session"
WORKSPACE_FILE = "workspace.json"
_MAX_SESSION_BYTES = 4096
_MAX_WORKSPACE_BYTES = 1 << 16


def _read_prefix(path: str, max_bytes: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, max_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read_session_path(directory: str) -> str | None:
    return _read_prefix(f"{directory}/{SESSION_FILE}", _MAX_SESSION_BYTES).decode("utf-8", "replace").strip() or None


def read_workspace(directory: str) -> dict[str, Any]:
    """Return the report on the workspace: where its worktree is, and why it is kept. Empty if there is no report."""
    try:
        report = json.loads(_read_prefix(f"{directory}/{WORKSPACE_FILE}", _MAX_WORKSPACE_BYTES) or b"{}")
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def read_worktree_path(directory: str) -> str | None:
    """Return the path of the job's worktree, or None if it has none or it was removed."""
    report = read_workspace(directory)
    path = report.get("worktree")
    return path if isinstance(path, str) and not report.get("is_removed") else None
