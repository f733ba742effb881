"""`workspace.json` in the job's directory: where its workspace is, and what became of it."""

# ruff: noqa: PTH105
from __future__ import annotations

import json
import os
from typing import Any

from rota.executor.workspace.worktree import Worktree

FILE = "workspace.json"


def write(directory: str, record: dict[str, Any]) -> None:
    beside = f"{directory}/{FILE}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        json.dump(record, file)
        file.write("\n")
    os.replace(beside, f"{directory}/{FILE}")


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
