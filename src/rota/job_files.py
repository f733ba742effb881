"""Archive of the files that a run left in its job's directory, so that the next run starts with empty logs.

    jobs/7/stdout.log   ──▶ jobs/7/runs/12/stdout.log      every log, and the session file
    jobs/7/outcome.json ──▶ removed                        the patch as well; the input of the job stays

Files are archived when a job is rewound, and again before the next run opens its files. A run therefore never appends
to the logs of another run, whatever was killed in between. Archiving is idempotent.
"""

# The supervisor imports this module, and pathlib would cost it a megabyte:
# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH202, PTH208
from __future__ import annotations

import contextlib
import os

from rota.child_report import SESSION_FILE as SESSION

OUTCOME_FILE = "outcome.json"
PATCH_FILE = "command.patch"
PROBE_DIRECTORY = ".probe"
REMOVED_DIRECTORY = ".removed"
"""Directory next to those of the jobs. It holds the directories that are being removed."""


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


def run_directory(directory: str, run: int) -> str:
    """Return the directory of the logs of a run that is not the current run of the job."""
    return f"{directory}/runs/{run}"


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
        if name.endswith(".log") or name == SESSION:
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
