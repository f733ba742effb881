"""The token of a home: who has it may do over TCP what its owner may do over the socket.

It is a file beside the socket, for its owner alone. It appears whole or not at all, so nobody ever reads a part of one,
and who comes second takes the one that is there. A file that others can read, or that is not the owner's, is no secret:
it is refused, not mended, for it may be known already.

A file cannot tell that it was changed, so its time stamps are looked at with each request over TCP.
"""

# ruff: noqa: PTH105, PTH108, PTH116 - as in `home`, which every command imports

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rota.errors import HomeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

BYTES = 32
SHORTEST = 16
"""Characters of a token that somebody has thought of."""
_LONGEST = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_AGAIN = "`rota token --rotate` makes a new one"

Stamp = tuple[int, ...]


def read(path: Path) -> str:
    """The token, or a refusal that says what is wrong with the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise HomeError(f"{path} is not there; `rota token` makes it") from None
    except OSError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}; {_AGAIN}") from None
    try:
        _refuse_open(path, os.fstat(descriptor))
        text = os.read(descriptor, _LONGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}; {_AGAIN}") from None
    finally:
        os.close(descriptor)
    if len(text) < SHORTEST or not text.isascii() or not text.isprintable() or " " in text:
        raise HomeError(f"{path} has no token of {SHORTEST} or more characters in it; {_AGAIN}")
    return text


def _refuse_open(path: Path, seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise HomeError(f"{path} is not a plain file; {_AGAIN}")
    if seen.st_uid != os.geteuid():
        raise HomeError(f"{path} belongs to another user; {_AGAIN}")
    if seen.st_mode & _OTHERS:
        raise HomeError(f"others can read {path}: its mode is {stat.S_IMODE(seen.st_mode):04o}, not 0600; {_AGAIN}")


def ensure(path: Path) -> None:
    """Make it, where there is none."""
    with suppress(FileExistsError):
        if not os.path.lexists(path):
            with _written(path) as copy:
                os.link(copy, path)  # unlike a rename it leaves alone what somebody was quicker to put there


def rotate(path: Path) -> None:
    """Another one in its place; the old one is good for nothing from here on."""
    with _written(path) as copy:
        os.replace(copy, path)


@contextmanager
def _written(path: Path) -> Iterator[str]:
    """A file with a new token. Its name is fixed and it is made by one at a time: what a killed one left is removed."""
    copy = f"{path.parent}/.{path.name}.new"
    with _failures_named(path), _alone(path.parent):
        with suppress(FileNotFoundError):
            os.unlink(copy)
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                os.fchmod(descriptor, 0o600)  # whatever the umask
                os.write(descriptor, f"{secrets.token_urlsafe(BYTES)}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield copy
        finally:
            with suppress(FileNotFoundError):
                os.unlink(copy)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise HomeError(f"{path} cannot be made: {error.strerror}") from None


class Token:
    """The one that is good now, however often it is changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = ()
        self._token: bytes | None = None
        self.trouble: str | None = None
        """Why nobody can have the right one."""

    def look(self) -> bool:
        """Whether another is good than a moment ago."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return False
        before, self._stamp = self._token, stamp
        try:
            self._token, self.trouble = read(self._path).encode(), None
        except HomeError as error:
            self._token, self.trouble = None, error.message
            self._stamp = ()  # what kept it from being read may pass, without a trace in the file
        return self._token != before

    def is_right(self, given: bytes) -> bool:
        """It takes as long for one that is nearly right as for any other of its length."""
        return self._token is not None and hmac.compare_digest(self._token, given)

    def _stamped(self) -> Stamp | None:
        try:
            seen = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return None
        # The time of its change says that mode or owner is another, too.
        return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
