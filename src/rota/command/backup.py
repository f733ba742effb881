"""`backup`: one file with all that a restore needs, while jobs run.

It reads the store by itself and asks nothing of the scheduler, so it works with one and without. The file is written
under another name and takes its own only when it is whole and on disk.
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
from rota.errors import Conflict, InvalidInput, NotFound, StorageFull, StoreError
from rota.home import Home
from rota.store.backup import back_up_records
from rota.store.copy import Progress
from rota.store.open import is_url, open_store
from rota.store.sqlite.backup import PART, Archive, archive

CONFIG = "rota.toml"


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    file: str
    bytes: int
    jobs: int
    runs: int
    files: int
    """Beside the records: the settings, and the jobs' own files where they were asked for."""
    has_logs: bool
    made_at: str | None
    home: str | None


def back_up(home: Home, target: Path, *, with_logs: bool, force: bool, now: datetime, progress: Progress) -> Contents:
    _check_target(home, target, force=force)
    address = config.load(home.config).store.url or str(home.database)
    if not is_url(address) and not home.database.exists():
        raise NotFound(f"there is nothing to back up: {home.root} has no database yet")
    about = {
        "made_at": now.isoformat(),
        "home": str(home.root),
        "version": __version__,
        "logs": "yes" if with_logs else "no",
    }
    with _beside(target, force=force) as new:
        back_up_records(open_store(address if is_url(address) else home.database), new, progress)
        with archive(new, writes=True) as kept:
            kept.make(about)
            _add(kept, CONFIG, home.config)
            if with_logs:
                _add_jobs(kept, home.jobs, progress)
    return contents_of(target)


def contents_of(file: Path) -> Contents:
    with archive(file) as kept:
        about = kept.about()
        return Contents(
            file=str(file),
            bytes=file.stat().st_size,
            jobs=kept.count("job"),
            runs=kept.count("run"),
            files=len(kept.files()),
            has_logs=about.get("logs") == "yes",
            made_at=about.get("made_at"),
            home=about.get("home"),
        )


def _check_target(home: Home, target: Path, *, force: bool) -> None:
    if target.resolve().is_relative_to(home.root.resolve()):
        raise InvalidInput(f"{target} is inside the home {home.root} and would be lost with it; name another place")
    if target.is_dir():
        raise InvalidInput(f"{target} is a directory; name a file in it")
    if not target.parent.is_dir():
        raise InvalidInput(f"there is no directory {target.parent}; make it first")
    if target.exists() and not force:
        raise Conflict(f"{target} is there already; name another file, or --force to replace it")


@contextmanager
def _beside(target: Path, *, force: bool) -> Iterator[Path]:
    """A new file for its owner alone, which becomes `target` at the end or leaves no trace."""
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"cannot write to {target.parent}: {error.strerror}") from error
    try:
        yield new
        sync(new)
        _place(new, target, force=force)
        sync(target.parent)
    except StorageFull:
        raise StorageFull(f"the disk that holds {target} is full; no backup was made: free some space") from None
    finally:
        for path in (new, *(new.with_name(f"{new.name}-{more}") for more in ("wal", "shm", "journal"))):
            path.unlink(missing_ok=True)


def _place(new: Path, target: Path, *, force: bool) -> None:
    if force:
        new.replace(target)
        return
    try:
        os.link(new, target)  # unlike a rename it never replaces what came meanwhile
    except FileExistsError:
        raise Conflict(f"{target} was made by somebody else meanwhile; name another file") from None
    except OSError:  # a file system without links
        new.replace(target)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _add_jobs(kept: Archive, jobs: Path, progress: Progress) -> None:
    directories = [entry for entry in _entries(jobs) if entry.is_dir(follow_symlinks=False) and entry.name.isdecimal()]
    for done, directory in enumerate(directories):
        progress("logs", done, len(directories))
        for entry in _entries(Path(directory.path)):
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".tmp"):
                _add(kept, f"{jobs.name}/{directory.name}/{entry.name}", Path(entry.path))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Jobs come and go meanwhile."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _add(kept: Archive, name: str, path: Path) -> None:
    """As long as it is now, a part at a time: it may grow, and it may be larger than memory."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return
            for part, content in enumerate(_parts(lambda size: os.read(descriptor, size), found.st_size)):
                kept.add(name, part, content)
        finally:
            os.close(descriptor)


def _parts(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """At least one, so that an empty file is there too."""
    content = read(min(PART, size))
    yield content
    size -= len(content)
    while size > 0 and (content := read(min(PART, size))):
        yield content
        size -= len(content)
