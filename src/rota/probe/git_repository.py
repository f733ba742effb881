"""Discovery of the repository around a directory, as git does, but ignoring `GIT_*` variables and `safe.directory`."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import msgspec

from rota.probe.refs import read_loose_ref

_NOT_FOUND = frozenset({errno.ENOENT, errno.ENOTDIR})
_HEAD_PATTERN = re.compile(r"ref:\s*refs/|[0-9a-fA-F]{40}")


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    """Git directory: HEAD and the other files of one working tree."""
    common_directory: str
    """Git common directory: refs and objects. Equal to `directory` unless the working tree is linked."""
    worktree: str | None
    """Directory that contains `.git`; None for a bare repository and inside a git directory."""


class _BrokenGitLink(Exception):
    """The `.git` file leads to no repository. Like git, discovery stops here."""


def find_repository(directory: str) -> Repository | None:
    try:
        return _find_above(os.path.realpath(directory))
    except (OSError, ValueError, _BrokenGitLink):
        # Cannot tell: do not continue to a parent, whose repository would be the wrong one.
        return None


def _find_above(directory: str) -> Repository | None:
    device: int | None = None
    while True:
        try:
            status = os.stat(directory)  # noqa: PTH116
        except OSError as error:
            if error.errno not in _NOT_FOUND:
                raise
        else:
            if device is None:
                device = status.st_dev
            elif status.st_dev != device:  # like git, discovery stops at the boundary of the file system
                return None
            if stat.S_ISDIR(status.st_mode):
                repository = _repository_at(directory)
                if repository is not None:
                    return repository
        parent = os.path.dirname(directory)  # noqa: PTH120
        if parent == directory:
            return None
        directory = parent


def _repository_at(directory: str) -> Repository | None:
    link = f"{directory}/.git"
    try:
        status = os.stat(link)  # noqa: PTH116
    except OSError as error:
        if error.errno not in _NOT_FOUND:
            raise
    else:
        if stat.S_ISREG(status.st_mode):
            repository = _open_repository(_read_git_link(link), directory)
            if repository is None:
                raise _BrokenGitLink
            return repository
        repository = _open_repository(os.path.realpath(link), directory)
        if repository is not None:
            return repository
    return _open_repository(directory, None)


def _read_git_link(link: str) -> str:
    content = os.fsdecode(Path(link).read_bytes())
    if not content.startswith("gitdir: "):
        return ""
    path = content.removeprefix("gitdir: ").rstrip("\r\n")
    return os.path.realpath(os.path.join(os.path.dirname(link), path))  # noqa: PTH118, PTH120


def find_common_directory(directory: str) -> str:
    try:
        path = os.fsdecode(Path(directory, "commondir").read_bytes()).rstrip("\r\n")
    except OSError:
        return directory
    return os.path.realpath(os.path.join(directory, path))  # noqa: PTH118


def _open_repository(directory: str, worktree: str | None) -> Repository | None:
    """Return the repository of this git directory, or None if it is not a git directory."""
    if not directory:
        return None
    try:
        head = read_loose_ref(f"{directory}/HEAD")
    except OSError as error:
        if error.errno in _NOT_FOUND | {errno.EISDIR}:
            return None
        raise
    common = find_common_directory(directory)
    if not _HEAD_PATTERN.match(head) or not Path(common, "objects").is_dir() or not Path(common, "refs").is_dir():
        return None
    return Repository(directory=directory, common_directory=common, worktree=worktree)
