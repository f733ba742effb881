"""Where jobs' directories are between their place and nowhere, so that files and rows go together or not at all.

    jobs/7 ──rename──▶ jobs/.removed/7 ──the rows are gone──▶ deleted
                             │
                             └── the rows are still there ──▶ put back to jobs/7

A rename is done or not, and can be undone; deleting takes its time and cannot. So a directory is taken out of its
place before the transaction that removes its rows, and deleted after it. After a crash the rows decide: what lies here
and has a row is put back, the rest is deleted.

Nothing outside `jobs/` is touched: links are not followed, and what is mounted inside is left alone.
"""

# pathlib costs more than the files themselves:
# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH208
from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from rota.ids import JobId, show_job
from rota.leftover import REMOVED

log = logging.getLogger("rota.gc")

NAME = REMOVED


class Trash:
    def __init__(self, jobs: Path) -> None:
        self._jobs = str(jobs)
        self._root = f"{self._jobs}/{NAME}"

    def weigh(self, job: JobId) -> int:
        """The bytes that go with this job's files. Raises `OSError` where they could not all be removed."""
        return _weigh(f"{self._jobs}/{job}")

    def _is_there(self) -> bool:
        """A link in its place would lead out of the home."""
        try:
            mode = os.lstat(self._root).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(20, "it is not a directory; remove it", self._root)
        return True

    def take(self, jobs: Collection[JobId]) -> None:
        """Out of their places, all of these or none. A job that has no directory has nothing to take."""
        if not self._is_there():
            os.makedirs(self._root, 0o700)
        try:
            for job in jobs:
                with suppress(FileNotFoundError):
                    os.rename(f"{self._jobs}/{job}", f"{self._root}/{job}")
        except OSError:
            self.put_back(jobs)
            raise

    def sync(self) -> None:
        """What was taken stays taken, though the machine lose its power now."""
        for directory in (self._root, self._jobs):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def put_back(self, jobs: Iterable[JobId]) -> None:
        """Those that are here. One that cannot be put back stays, and is tried again with the next start."""
        for job in jobs:
            try:
                _put_back(f"{self._root}/{job}", f"{self._jobs}/{job}")
            except OSError as error:
                log.warning("the files of %s stay in %s for now: %s", show_job(job), self._root, error)

    def holds(self) -> list[JobId]:
        """The jobs whose directories are here."""
        names = os.listdir(self._root) if self._is_there() else ()
        return sorted(JobId(int(name)) for name in names if name.isdecimal())

    def close(self) -> None:
        """Nothing of it is seen while there is nothing in it."""
        with suppress(OSError):
            os.rmdir(self._root)

    def delete(self, jobs: Collection[JobId]) -> list[str]:
        """For good; what could not be deleted, and why. It stays here, and is tried again next time."""
        left = []
        for job in jobs:
            try:
                _delete(f"{self._root}/{job}")
            except OSError as error:
                left.append(f"{error.filename or self._root}: {error.strerror}")
        return left


def _put_back(here: str, place: str) -> None:
    """What somebody has written to the old place meanwhile is newer, and stays."""
    if not os.path.lexists(here):
        return
    if not os.path.lexists(place):
        os.rename(here, place)
        return
    for name in os.listdir(here):
        if not os.path.lexists(f"{place}/{name}"):
            os.rename(f"{here}/{name}", f"{place}/{name}")
    _delete(here)


def _delete(path: str) -> None:
    """Without following a link, be it at the top."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if is_directory:
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _weigh(path: str) -> int:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return 0
    return _weigh_tree(path, found.st_dev) if stat.S_ISDIR(found.st_mode) else found.st_size


def _weigh_tree(top: str, device: int) -> int:
    """A file with two names counts once: `outcome.json` is `job.json` by another."""
    sizes: dict[int, int] = {}
    directories = [top]
    while directories:
        directory = directories.pop()
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(13, "no permission to remove what is in it", directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_dev != device:
                    raise OSError(16, "another file system is mounted there", entry.path)
                if stat.S_ISDIR(found.st_mode):
                    directories.append(entry.path)
                else:
                    sizes[found.st_ino] = found.st_size
    return sum(sizes.values())
