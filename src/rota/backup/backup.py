"""`backup`: one file with all that a restore needs, while jobs run.

It reads the store directly, so it works with or without a running scheduler. The file is written under a temporary name
and renamed only when it is complete and synced to disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from rota import __version__, config
from rota.backup.loss import check_loss
from rota.db.copy import CopyProgress, back_up_records
from rota.db.sqlite.backup import PART_BYTES, Archive, open_archive, remove_file
from rota.db.store import is_postgres_url, open_store
from rota.errors import Conflict, InvalidInput, NotFound, StorageFull, StoreError
from rota.home import Home

CONFIG_NAME = "rota.toml"


class BackupContents(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a backup file."""

    file: str
    bytes: int
    jobs: int
    runs: int
    files: int
    """Number of files besides the records: the configuration, and with logs the files of jobs."""
    has_logs: bool
    made_at: str | None
    home: str | None


def back_up(
    home: Home, target: Path, *, with_logs: bool, force: bool, now: datetime, progress: CopyProgress
) -> BackupContents:
    _check_target(home, target, force=force)
    address = config.load(home.config).store.url or str(home.database)
    check_loss(home, open_store(address))
    if not is_postgres_url(address) and not home.database.exists():
        raise NotFound(f"there is nothing to back up: {home.root} has no database yet")
    metadata = {
        "made_at": now.isoformat(),
        "home": str(home.root),
        "version": __version__,
        "logs": "yes" if with_logs else "no",
    }
    with _temporary_target(target, force=force) as new:
        back_up_records(open_store(address if is_postgres_url(address) else home.database), new, progress)
        with open_archive(new, is_writable=True) as archive:
            archive.create(metadata)
            _add_file(archive, CONFIG_NAME, home.config)
            if with_logs:
                _add_job_files(archive, home.jobs, progress)
    return read_contents(target)


def read_contents(file: Path) -> BackupContents:
    with open_archive(file) as archive:
        metadata = archive.metadata()
        return BackupContents(
            file=str(file),
            bytes=file.stat().st_size,
            jobs=archive.count_rows("job"),
            runs=archive.count_rows("run"),
            files=len(archive.files()),
            has_logs=metadata.get("logs") == "yes",
            made_at=metadata.get("made_at"),
            home=metadata.get("home"),
        )


def _check_target(home: Home, target: Path, *, force: bool) -> None:
    if target.resolve().is_relative_to(home.root.resolve()):
        raise InvalidInput(
            f"{target} is inside the home {home.root} and would be lost with it; choose a path outside of it"
        )
    if target.is_dir():
        raise InvalidInput(f"{target} is a directory; name a file in it")
    if not target.parent.is_dir():
        raise InvalidInput(f"directory {target.parent} does not exist; create it first")
    if target.exists() and not force:
        raise Conflict(f"{target} already exists; name another file, or use --force to replace it")


@contextmanager
def _temporary_target(target: Path, *, force: bool) -> Iterator[Path]:
    """Create a file that only its owner can read; rename it to `target` on success, remove it on failure."""
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"cannot write to {target.parent}: {error.strerror}") from error
    try:
        yield new
        sync_path(new)
        _replace_target(new, target, force=force)
        sync_path(target.parent)
    except StorageFull:
        raise StorageFull(f"the disk that holds {target} is full; no backup was made: free some space") from None
    finally:
        remove_file(new)


def _replace_target(new: Path, target: Path, *, force: bool) -> None:
    if force:
        new.replace(target)
        return
    try:
        os.link(new, target)  # unlike a rename, it never replaces a file that was created in the meantime
    except FileExistsError:
        raise Conflict(f"{target} was created by another process in the meantime; name another file") from None
    except OSError:  # a file system without hard links
        new.replace(target)


def sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _add_job_files(archive: Archive, jobs: Path, progress: CopyProgress) -> None:
    directories = [
        entry for entry in _list_entries(jobs) if entry.is_dir(follow_symlinks=False) and entry.name.isdecimal()
    ]
    for done, directory in enumerate(directories):
        progress("logs", done, len(directories))
        for entry in _list_entries(Path(directory.path)):
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".tmp"):
                _add_file(archive, f"{jobs.name}/{directory.name}/{entry.name}", Path(entry.path))


def _list_entries(directory: Path) -> list[os.DirEntry[str]]:
    """List a directory by name. A directory that was removed is empty: jobs come and go during a backup."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _add_file(archive: Archive, name: str, path: Path) -> None:
    """Add a file at its current size, one part at a time: it may grow, and it may be larger than memory."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return
            for part, content in enumerate(_read_parts(lambda size: os.read(descriptor, size), status.st_size)):
                archive.add(name, part, content)
        finally:
            os.close(descriptor)


def _read_parts(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """Yield at least one part, so that an empty file is stored too."""
    content = read(min(PART_BYTES, size))
    yield content
    size -= len(content)
    while size > 0 and (content := read(min(PART_BYTES, size))):
        yield content
        size -= len(content)
