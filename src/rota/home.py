"""Home directory: the one directory that holds everything a scheduler owns, the rules to find it, and its lock.

The home is `$ROTA_HOME`, else the nearest `.rota/` at or above the working directory, else the XDG data directory.
Every command imports this module, and `rota submit` must start fast: no dataclasses, no typing, and `pathlib` (a
quarter of the start of a bare interpreter) only when a caller needs a Path.

The lock is held by the scheduler of the home, or by a command that changes the store while no scheduler runs. The
kernel releases it when the holder exits, so that a dead holder never blocks the next one. A user can remove the lock
file of a living scheduler. The scheduler then puts the file back and locks it again (`HomeLock.restore`). A process
that finds no lock file in a used home waits for that before it takes the lock (`await_removed_lock`). A scheduler that
is stopped for longer than that is fenced off by the epoch of the store.
"""

# ruff: noqa: PTH103, PTH109, PTH111, PTH112, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from rota.errors import Conflict, HomeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

HOME_DIRECTORY_NAME = ".rota"

UNKNOWN_PID = "unknown"
"""Pid of a holder that could not write its pid, for example on a full disk."""

MAX_SOCKET_PATH_BYTES = 107
"""Size of `sun_path` without its terminating NUL."""
NETWORK_FILE_SYSTEMS = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "gpfs",
        "ocfs2",
        "gfs2",
        "orangefs",
        "pvfs2",
        "coda",
        "ncpfs",
        "davfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.davfs2",
        "fuse.gcsfuse",
    )
)
"""File systems on which locks and shared memory maps may not be visible to other machines, so that neither flock nor
the WAL of SQLite is safe."""
LOCK_RESTORE_TIMEOUT = 2.0
"""Seconds in which a living scheduler has certainly put its removed lock file back."""
_LOCK_POLL_INTERVAL = 0.02


class Home:
    """Paths in a home directory. Immutable."""

    __slots__ = ("directory",)

    directory: str
    """Absolute path."""

    def __init__(self, root: Path | str) -> None:
        object.__setattr__(self, "directory", os.fspath(root))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Home is immutable: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Home) and other.directory == self.directory

    def __hash__(self) -> int:
        return hash(self.directory)

    def __repr__(self) -> str:
        return f"Home({self.directory!r})"

    @property
    def root(self) -> Path:
        from pathlib import Path

        return Path(self.directory)

    @property
    def config(self) -> Path:
        return self.root / "rota.toml"

    @property
    def database(self) -> Path:
        return self.root / "rota.db"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def reservations(self) -> Path:
        return self.root / "reservations"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def worktrees(self) -> Path:
        return self.root / "worktrees"

    @property
    def socket(self) -> Path:
        return self.root / "rota.sock"

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def identity(self) -> Path:
        return self.root / "identity"

    @property
    def lock(self) -> Path:
        return self.root / "scheduler.lock"

    @property
    def log(self) -> Path:
        return self.root / "rota.log"

    @property
    def supervisor_socket(self) -> Path:
        return self.root / "supervisor.sock"

    @property
    def supervisor_lock(self) -> Path:
        return self.root / "supervisor.lock"

    @property
    def supervisor_journal(self) -> Path:
        return self.root / "supervisor.journal"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    def prepare(self) -> None:
        """Create the directory, accessible only to its owner, and check that it can be used."""
        kind = file_system_type(self.directory)
        if kind in NETWORK_FILE_SYSTEMS:
            raise HomeError(
                f"{self.directory} is on {kind}, a network file system, where locks are not reliable;"
                " set ROTA_HOME to a directory on a local disk"
            )
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise HomeError(
                f"cannot create the home directory {self.directory}: a part of its path is not a directory;"
                " move that file, or set ROTA_HOME to another directory"
            ) from None
        except OSError as error:
            raise HomeError(
                f"cannot create the home directory {self.directory}: {error.strerror};"
                " set ROTA_HOME to a writable directory"
            ) from None
        if not os.access(self.directory, os.R_OK | os.W_OK | os.X_OK):
            raise HomeError(
                f"the home directory {self.directory} is not writable;"
                " change its permissions, or set ROTA_HOME to another directory"
            )
        self._hide_from_git()

    def _hide_from_git(self) -> None:
        """Keep `git add -A` from adding the home: it is often in a repository, and it holds environment variables."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(f"{self.directory}/.gitignore", flags, 0o600)
        except OSError:
            return  # the file exists, or the directory is not writable
        try:
            os.write(descriptor, b"*\n")
        except OSError:
            pass
        finally:
            os.close(descriptor)


def find_home(
    explicit_path: str | None = None, *, environ: Mapping[str, str] = os.environ, directory: str | None = None
) -> Home:
    """Return the home that `explicit_path` (`--home`) names, or the default home. Creates nothing."""
    path = explicit_path or environ.get("ROTA_HOME")
    if path:
        return Home(_resolve_path(os.path.expanduser(path)))
    nearest = _find_nearest_home(directory)
    if nearest is not None:
        return Home(nearest)
    data_home = environ.get("XDG_DATA_HOME", "")
    # By the XDG specification a relative path is invalid and counts as unset.
    base = data_home if data_home.startswith("/") else os.path.expanduser("~/.local/share")
    return Home(_resolve_path(os.path.join(base, "rota")))


def _resolve_path(path: str) -> str:
    """Resolve links and dots, so that all processes use the same path for a home."""
    try:
        return os.path.realpath(path)
    except FileNotFoundError:
        raise HomeError(
            f"cannot resolve {path}: the working directory no longer exists; use an absolute path"
        ) from None


def _find_nearest_home(directory: str | None) -> str | None:
    try:
        folder = os.path.realpath(directory or os.getcwd())
    except FileNotFoundError:
        return None  # the working directory was removed
    while True:
        candidate = os.path.join(folder, HOME_DIRECTORY_NAME)
        if os.path.isdir(candidate):
            # A submit sends the whole environment: never to a scheduler that another user planted in a parent.
            if os.stat(candidate).st_uid != os.geteuid():
                raise HomeError(f"{candidate} belongs to another user; if you trust it, set ROTA_HOME={candidate}")
            return os.path.realpath(candidate)
        if folder == "/":
            return None
        folder = os.path.dirname(folder)


class HomeLock:
    """Lock of a home, held by this process."""

    def __init__(self, home: Home, file: TextIO) -> None:
        self._home = home
        self._file = file
        # An open descriptor keeps the inode from being used again: a home that was created again is another one.
        self._directory = os.open(home.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def is_current(self) -> bool:
        """Whether the lock file of the home is the one that this process holds."""
        return not self.is_home_gone and _is_same_file(self._home.lock, self._file.fileno())

    @property
    def is_home_gone(self) -> bool:
        """Whether the directory of the home was removed or replaced."""
        return not _is_same_file(self._home.root, self._directory)

    def restore(self) -> None:
        """Create the lock file again and lock it. Raises Conflict if another process holds it, and OSError if it cannot
        be created."""
        previous, self._file = self._file, _lock_file(self._home)
        previous.close()

    def close(self) -> None:
        self._file.close()
        os.close(self._directory)


@contextmanager
def acquire_home_lock(home: Home) -> Iterator[HomeLock]:
    await_removed_lock(home)
    lock = HomeLock(home, _lock_file(home))
    try:
        yield lock
    finally:
        lock.close()


def await_removed_lock(home: Home) -> None:
    """Wait until the lock file of a used home exists: a living scheduler puts it back."""
    deadline = time.monotonic() + LOCK_RESTORE_TIMEOUT
    while not home.lock.exists() and home.jobs.exists() and time.monotonic() < deadline:
        time.sleep(_LOCK_POLL_INTERVAL)


def _lock_file(home: Home) -> TextIO:
    """Return the lock file, created if missing, locked and with the pid of this process."""
    file = _open_locked(home)
    while not _is_same_file(home.lock, file.fileno()):  # removed before it was locked
        file.close()
        file = _open_locked(home)
    with suppress(OSError):  # on a full disk the pid cannot be stored; the lock is held anyway
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    return file


def _open_locked(home: Home) -> TextIO:
    home.lock.touch(mode=0o600)
    file = home.lock.open("r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            holder = file.read().strip() or "?"
        raise Conflict(f"another scheduler (pid {holder}) uses {home.root}; use it, or run `rota down` first") from None
    return file


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


@contextmanager
def short_socket_path(directory: Path | str, name: str) -> Iterator[str]:
    """Yield an address to bind or connect for `directory/name`, however long the path is.

    A path that does not fit in a socket address is written relative to a descriptor of its directory. Only the call
    that uses the address needs the descriptor.
    """
    path = os.path.join(directory, name)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield path
        return
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def file_system_type(path: Path | str, mountinfo: str | None = None) -> str | None:
    """Return the type of the file system that holds `path`, which need not exist, or None if it is unknown."""
    if mountinfo is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                mountinfo = file.read()
        except OSError:
            return None
    searched_path = str(path)
    longest, kind = -1, None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 5 or not types[0]:
            continue
        point = _unescape(fields[4])
        # Of two mounts on one mount point, the later line hides the earlier one.
        if len(point) >= longest and _contains(point, searched_path):
            longest, kind = len(point), types[0]
    return kind


def _contains(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescape(text: str) -> str:
    """Decode the octal escapes that mountinfo uses for space, tab, newline and backslash."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text


def is_held(path: Path) -> bool:
    """Return whether the lock is held. The check takes a shared lock for a moment; a starter that collides with it
    tries again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder_pid(path: Path) -> str:
    """Return the pid that the holder wrote into the lock file, or `UNKNOWN_PID`."""
    try:
        return path.read_text().strip() or UNKNOWN_PID
    except OSError:
        return UNKNOWN_PID
