"""Token of a home: it grants over TCP the access that the owner of the home has over the socket.

The token is in a file next to the socket, accessible only to its owner. The file is created atomically: no process
reads a partial token, and of two concurrent creators the second one uses the token of the first. A file that other
users can read or own is refused, not repaired, because its token may already be known.

Each request over TCP compares the timestamps of the file to detect a change.
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

TOKEN_BYTES = 32
MIN_TOKEN_LENGTH = 16
"""Minimum length of a token that the user chose."""
_MAX_FILE_BYTES = 4096
_GROUP_AND_OTHER_BITS = stat.S_IRWXG | stat.S_IRWXO
_ROTATE_HINT = "`rota token --rotate` creates a new one"

FileStamp = tuple[int, ...]


def read(path: Path) -> str:
    """Return the token, or raise `HomeError` that says what is wrong with the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise HomeError(f"{path} does not exist; `rota token` creates it") from None
    except OSError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}; {_ROTATE_HINT}") from None
    try:
        _check_file_mode(path, os.fstat(descriptor))
        text = os.read(descriptor, _MAX_FILE_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise HomeError(f"{path} cannot be read: {error.strerror}; {_ROTATE_HINT}") from None
    finally:
        os.close(descriptor)
    if len(text) < MIN_TOKEN_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        raise HomeError(f"{path} does not contain a token of {MIN_TOKEN_LENGTH} or more characters; {_ROTATE_HINT}")
    return text


def _check_file_mode(path: Path, file_status: os.stat_result) -> None:
    if not stat.S_ISREG(file_status.st_mode):
        raise HomeError(f"{path} is not a regular file; {_ROTATE_HINT}")
    if file_status.st_uid != os.geteuid():
        raise HomeError(f"{path} belongs to another user; {_ROTATE_HINT}")
    if file_status.st_mode & _GROUP_AND_OTHER_BITS:
        mode = stat.S_IMODE(file_status.st_mode)
        raise HomeError(f"other users can read {path}: its mode is {mode:04o}, not 0600; {_ROTATE_HINT}")


def ensure(path: Path) -> None:
    """Create the token file unless it exists."""
    with suppress(FileExistsError):
        if not os.path.lexists(path):
            with _new_token_file(path) as copy:
                os.link(copy, path)  # unlike a rename, it never replaces a file that another process created first


def rotate(path: Path) -> None:
    """Replace the token with a new one. The old token becomes invalid."""
    with _new_token_file(path) as copy:
        os.replace(copy, path)


@contextmanager
def _new_token_file(path: Path) -> Iterator[str]:
    """Yield the path of a file with a new token.

    The path is fixed and the directory is locked, so that a file left by a killed process can be removed.
    """
    copy = f"{path.parent}/.{path.name}.new"
    with _translate_errors(path), _lock_directory(path.parent):
        with suppress(FileNotFoundError):
            os.unlink(copy)
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                os.fchmod(descriptor, 0o600)  # regardless of the umask
                os.write(descriptor, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield copy
        finally:
            with suppress(FileNotFoundError):
                os.unlink(copy)


@contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise HomeError(f"{path} cannot be created: {error.strerror}") from None


class TokenFile:
    """Currently valid token, reloaded when its file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: FileStamp | None = ()
        self._token: bytes | None = None
        self.error: str | None = None
        """Reason why no token is valid, or None."""

    def reload(self) -> bool:
        """Read the file again if it has changed, and return whether the token has changed."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        before, self._stamp = self._token, stamp
        try:
            self._token, self.error = read(self._path).encode(), None
        except HomeError as error:
            self._token, self.error = None, error.message
            self._stamp = ()  # the cause may go away without a change of the timestamps, so the next call reads again
        return self._token != before

    def is_valid(self, token: bytes) -> bool:
        """Compare in constant time, so that the duration does not reveal how much of a guess is right."""
        return self._token is not None and hmac.compare_digest(self._token, token)

    def _read_stamp(self) -> FileStamp | None:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return None
        # The ctime changes when the mode or the owner changes.
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
