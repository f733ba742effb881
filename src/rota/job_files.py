"""Files in the directory of a job: their names, the archive of earlier runs, and what a child reports in them.

    jobs/7/stdout.log   ──▶ jobs/7/runs/12/stdout.log      every log, and the session file
    jobs/7/outcome.json ──▶ removed                        the patch as well; the input of the job stays

Files are archived when a job is rewound, and again before the next run opens its files. A run therefore starts with
empty logs and never appends to the logs of another run, whatever was killed in between. Archiving is idempotent.

A child reports its session path in `ROTA_SESSION_FILE`, and `rota.worktrees` reports the state of the workspace. A
child can put anything there: a FIFO, a link to a device. Reports are therefore opened without blocking and without
following links, and only a limited prefix of a regular file is read.
"""

# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH202, PTH208

from __future__ import annotations

import contextlib
import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SESSION_FILE = "session"
WORKSPACE_FILE = "workspace.json"
OUTCOME_FILE = "outcome.json"
PATCH_FILE = "command.patch"
PROBE_DIRECTORY = ".probe"
REMOVED_DIRECTORY = ".removed"
"""Directory next to those of the jobs. It holds the directories that are being removed."""
_MAX_SESSION_BYTES = 4096
_MAX_WORKSPACE_BYTES = 1 << 16


def run_directory(directory: str, run: int) -> str:
    """Return the directory of the logs of a run that is not the current run of the job."""
    return f"{directory}/runs/{run}"


def unusable_reason(parent: str) -> str | None:
    """Return the reason why no directory can be created in this directory of the home, or None if one can."""
    probe = f"{parent}/{PROBE_DIRECTORY}"
    try:
        os.makedirs(probe, 0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another thread or process has just removed it
            os.rmdir(probe)
    except OSError as error:
        return f"{parent} cannot be used: {error.strerror}; no jobs start until it is usable"
    return None


def archive_run_files(directory: str, run: int) -> None:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        if not _restore_directory(directory):
            return
        names = os.listdir(directory)
    for name in (OUTCOME_FILE, PATCH_FILE):
        if name in names:
            os.unlink(f"{directory}/{name}")
    for name in names:
        if name.endswith(".log") or name == SESSION_FILE:
            _archive_file(directory, name, run_directory(directory, run))


def _restore_directory(directory: str) -> bool:
    """Move the directory back from `REMOVED_DIRECTORY`, where a concurrent collection has put it.

    The collection deletes the files only after its transaction, which fails because of the rewind.
    """
    parent, name = os.path.split(directory)
    try:
        os.rename(f"{parent}/{REMOVED_DIRECTORY}/{name}", directory)
    except OSError:
        return False
    return True


def _archive_file(directory: str, name: str, target_directory: str) -> None:
    """Move the file to the archive without replacing one there. An empty file is not archived a second time."""
    target, number = f"{target_directory}/{name}", 0
    while os.path.lexists(target):
        if not os.path.getsize(f"{directory}/{name}"):
            return
        number += 1
        target = f"{target_directory}/{name}.{number}"
    os.makedirs(target_directory, 0o700, exist_ok=True)
    os.rename(f"{directory}/{name}", target)


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
