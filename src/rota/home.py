"""The home: one directory that holds everything a scheduler owns, and how it is found.

`$ROTA_HOME`, else the nearest `.rota/` at or above the working directory, else the XDG data directory.
Every command imports this module, and `rota submit` must be cheap: no dataclasses, no typing, and `pathlib` (a quarter
of a bare interpreter's start) only where somebody asks for a Path.
"""

# ruff: noqa: PTH103, PTH109, PTH111, PTH112, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rota.errors import HomeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MARKER = ".rota"

LONGEST_ADDRESS = 107
"""Bytes of `sun_path` without its closing NUL."""

NETWORK_FILE_SYSTEMS = frozenset((
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs",
    "ocfs2", "gfs2", "orangefs", "pvfs2", "coda", "ncpfs", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
    "fuse.ceph-fuse", "fuse.s3fs", "fuse.rclone", "fuse.davfs2", "fuse.gcsfuse",
))  # fmt: skip
"""Where a lock or a shared memory map may mean nothing to another machine: neither flock nor SQLite's WAL is safe."""


class Home:
    """Where everything is. A value: made once, never changed."""

    __slots__ = ("directory",)

    directory: str
    """Absolute."""

    def __init__(self, root: Path | str) -> None:
        object.__setattr__(self, "directory", os.fspath(root))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Home does not change: {name}")

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
    def slots(self) -> Path:
        return self.root / "slots"

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
        """Make the directory, for its owner alone, and be sure that it can be used."""
        kind = file_system(self.directory)
        if kind in NETWORK_FILE_SYSTEMS:
            raise HomeError(
                f"{self.directory} is on {kind}, a network file system, where locks cannot be trusted;"
                " set ROTA_HOME to a directory on a local disk"
            )
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise HomeError(
                f"something that is not a directory is in the way of the home {self.directory};"
                " move it, or set ROTA_HOME to another directory"
            ) from None
        except OSError as error:
            raise HomeError(
                f"cannot make the home {self.directory}: {error.strerror}; set ROTA_HOME to a directory you can write"
            ) from None
        if not os.access(self.directory, os.R_OK | os.W_OK | os.X_OK):
            raise HomeError(
                f"the home {self.directory} cannot be written; give yourself the right to, or set ROTA_HOME elsewhere"
            )
        self._hide_from_git()

    def _hide_from_git(self) -> None:
        """A home often lies in a repository, and holds environments: no agent's `git add -A` is to take it along."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(f"{self.directory}/.gitignore", flags, 0o600)
        except OSError:
            return  # it is there, or nothing can be written now
        try:
            os.write(descriptor, b"*\n")
        except OSError:
            pass
        finally:
            os.close(descriptor)


def find_home(
    asked: str | None = None, *, environ: Mapping[str, str] = os.environ, directory: str | None = None
) -> Home:
    """The home that `asked` (`--home`) names, or the one that applies here. Nothing is made."""
    named = asked or environ.get("ROTA_HOME")
    if named:
        return Home(_absolute(os.path.expanduser(named)))
    marked = _nearest_marker(directory)
    if marked is not None:
        return Home(marked)
    data = environ.get("XDG_DATA_HOME", "")
    # The XDG specification: a relative path here is invalid and counts as unset.
    base = data if data.startswith("/") else os.path.expanduser("~/.local/share")
    return Home(_absolute(os.path.join(base, "rota")))


def _absolute(path: str) -> str:
    """One spelling for one home: links and dots resolved, so that every process names it alike."""
    try:
        return os.path.realpath(path)
    except FileNotFoundError:
        raise HomeError(f"the working directory no longer exists, so {path} leads nowhere; give it whole") from None


def _nearest_marker(directory: str | None) -> str | None:
    try:
        folder = os.path.realpath(directory or os.getcwd())
    except FileNotFoundError:
        return None  # The working directory was removed: nothing is above it.
    while True:
        marked = os.path.join(folder, MARKER)
        if os.path.isdir(marked):
            # A submit hands over the whole environment: never to a scheduler that somebody else planted on the way.
            if os.stat(marked).st_uid != os.geteuid():
                raise HomeError(f"{marked} belongs to another user; if you trust it, say so with ROTA_HOME={marked}")
            return os.path.realpath(marked)
        if folder == "/":
            return None
        folder = os.path.dirname(folder)


def file_system(path: Path | str, mountinfo: str | None = None) -> str | None:
    """The type of the file system that holds `path` (which may not exist yet), or None if nobody can tell."""
    if mountinfo is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                mountinfo = file.read()
        except OSError:
            return None
    wanted = str(path)
    longest, kind = -1, None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 5 or not types[0]:
            continue
        point = _unescape(fields[4])
        # Of two mounts on one point the later line covers the earlier one.
        if len(point) >= longest and _holds(point, wanted):
            longest, kind = len(point), types[0]
    return kind


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescape(text: str) -> str:
    """mountinfo writes space, tab, newline and backslash as octal."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text


@contextmanager
def short_address(directory: Path | str, name: str) -> Iterator[str]:
    """An address to bind or connect for `directory/name`, however long the path is.

    A path that does not fit in a socket address is named through a descriptor of its directory; the descriptor
    is needed only for the call itself.
    """
    plain = os.path.join(directory, name)
    if len(os.fsencode(plain)) <= LONGEST_ADDRESS:
        yield plain
        return
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
