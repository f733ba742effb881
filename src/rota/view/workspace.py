"""What is left of a job's workspace: its worktree with why it is kept, and its patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rota import report
from rota.core.job import Job
from rota.leftover import PATCH

INPUT_PATCH = "input.patch"


def workspace(job: Job, jobs: Path) -> dict[str, Any] | None:
    """None for a job that asked for none. This looks at files: not on the event loop."""
    if job.spec.workspace is None:
        return None
    directory = jobs / str(job.id)
    found = report.workspace(str(directory))
    worktree = report.worktree_path(str(directory))
    return {
        "worktree": worktree,
        "branch": None if worktree is None else found.get("branch"),
        "kept": found.get("kept"),
        "command_patch": _path(directory / PATCH),
        "input_patch": _path(directory / INPUT_PATCH),
    }


def _path(file: Path) -> str | None:
    return str(file) if file.is_file() else None
