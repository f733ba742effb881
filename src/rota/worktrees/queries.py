"""Remains of a job's workspace: its worktree with the reason why it is kept, and its patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rota import job_files
from rota.job_files import PATCH_FILE
from rota.kernel.job import Job

INPUT_PATCH = "input.patch"


def show_workspace(job: Job, jobs_directory: Path) -> dict[str, Any] | None:
    """Return the workspace, or `None` if the job did not request one. Reads files: do not call it on the event loop."""
    if job.spec.workspace is None:
        return None
    directory = jobs_directory / str(job.id)
    report = job_files.read_workspace(str(directory))
    worktree = job_files.read_worktree_path(str(directory))
    return {
        "worktree": worktree,
        "branch": None if worktree is None else report.get("branch"),
        "kept_reason": report.get("kept_reason"),
        "command_patch": _existing_path(directory / PATCH_FILE),
        "input_patch": _existing_path(directory / INPUT_PATCH),
    }


def _existing_path(file: Path) -> str | None:
    return str(file) if file.is_file() else None
