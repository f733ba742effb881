"""The trash: job directories on the way to deletion, so that files and rows are removed together or not at all.

    jobs/7 ──rename──▶ jobs/.removed/7 ──rows removed──▶ deleted
                             │
                             └── rows still there ──▶ restored to jobs/7

A rename is atomic and can be undone; a deletion is neither. So a directory is moved to the trash before the transaction
that removes its rows, and deleted after it. After a crash the rows decide: directories with rows are restored, the
others are deleted.

Nothing outside `jobs/` is touched: links are not followed, and file systems mounted inside are left alone.
"""

# pathlib costs more time than the file operations:
# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH208
from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from rota.ids import JobId, format_job_id
from rota.job_files import REMOVED_DIRECTORY

log = logging.getLogger("rota.gc")

DIRECTORY_NAME = REMOVED_DIRECTORY


class Trash:
    def __init__(self, jobs: Path) -> None:
        self._jobs = str(jobs)
        self._root = f"{self._jobs}/{DIRECTORY_NAME}"

    def measure(self, job: JobId) -> int:
        """Return the bytes in a job's files. Raises `OSError` if some of them cannot be removed."""
        return _measure(f"{self._jobs}/{job}")

    def _exists(self) -> bool:
        """Return whether the trash exists. Raises for a link, which could lead out of the home."""
        try:
            mode = os.lstat(self._root).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(20, "it is not a directory; remove it", self._root)
        return True

    def move_in(self, jobs: Collection[JobId]) -> None:
        """Move the directories of these jobs to the trash, all or none. Jobs without a directory are ignored."""
        if not self._exists():
            os.makedirs(self._root, 0o700)
        try:
            for job in jobs:
                with suppress(FileNotFoundError):
                    os.rename(f"{self._jobs}/{job}", f"{self._root}/{job}")
        except OSError:
            self.restore(jobs)
            raise

    def sync(self) -> None:
        """Make the moves durable against a power loss."""
        for directory in (self._root, self._jobs):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def restore(self, jobs: Iterable[JobId]) -> None:
        """Restore the directories that are in the trash. The next start retries one that cannot be restored."""
        for job in jobs:
            try:
                _restore(f"{self._root}/{job}", f"{self._jobs}/{job}")
            except OSError as error:
                log.warning("cannot restore the files of %s from %s yet: %s", format_job_id(job), self._root, error)

    def list_jobs(self) -> list[JobId]:
        """Return the jobs with a directory in the trash."""
        names = os.listdir(self._root) if self._exists() else ()
        return sorted(JobId(int(name)) for name in names if name.isdecimal())

    def close(self) -> None:
        """Remove the trash directory if it is empty."""
        with suppress(OSError):
            os.rmdir(self._root)

    def delete(self, jobs: Collection[JobId]) -> list[str]:
        """Delete the directories. Return an error for each failure; the next retention run retries it."""
        errors = []
        for job in jobs:
            try:
                _delete(f"{self._root}/{job}")
            except OSError as error:
                errors.append(f"{error.filename or self._root}: {error.strerror}")
        return errors


def _restore(trashed: str, target: str) -> None:
    """Move a directory back. Files that were written to the target since are newer, and are kept."""
    if not os.path.lexists(trashed):
        return
    if not os.path.lexists(target):
        os.rename(trashed, target)
        return
    for name in os.listdir(trashed):
        if not os.path.lexists(f"{target}/{name}"):
            os.rename(f"{trashed}/{name}", f"{target}/{name}")
    _delete(trashed)


def _delete(path: str) -> None:
    """Delete a path without following links, even if it is a link itself."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if is_directory:
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _measure(path: str) -> int:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    return _measure_tree(path, status.st_dev) if stat.S_ISDIR(status.st_mode) else status.st_size


def _measure_tree(top: str, device: int) -> int:
    """Return the size of a tree. A file with two names counts once: `outcome.json` is a link to `job.json`."""
    sizes: dict[int, int] = {}
    directories = [top]
    while directories:
        directory = directories.pop()
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(13, "no permission to remove its contents", directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if status.st_dev != device:
                    raise OSError(16, "another file system is mounted there", entry.path)
                if stat.S_ISDIR(status.st_mode):
                    directories.append(entry.path)
                else:
                    sizes[status.st_ino] = status.st_size
    return sum(sizes.values())
