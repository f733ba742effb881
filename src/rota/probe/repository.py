"""Which repository is around a directory: git's own rules of discovery, without its environment and its owner check."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import msgspec

from rota.probe.ref import read_loose

_GOES_UP = frozenset({errno.ENOENT, errno.ENOTDIR})
_HEAD = re.compile(r"ref:\s*refs/|[0-9a-fA-F]{40}")


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    """The git directory: HEAD and what else belongs to one working tree."""
    common: str
    """The git common directory: refs and objects. The same one, unless the working tree is a linked one."""
    holder: str | None
    """The directory in which `.git` was found; none for a bare repository and inside a git directory."""


class _DeadEnd(Exception):
    """A `.git` file that leads to no repository: git goes no further up, either."""


def find_repository(directory: str) -> Repository | None:
    try:
        return _find(os.path.realpath(directory))
    except (OSError, ValueError, _DeadEnd):  # unreadable, so unknown: not the next one above
        return None


def _find(here: str) -> Repository | None:
    device: int | None = None
    while True:
        try:
            found = os.stat(here)  # noqa: PTH116
        except OSError as error:
            if error.errno not in _GOES_UP:
                raise
        else:
            if device is None:
                device = found.st_dev
            elif found.st_dev != device:  # as git: a repository ends at its file system
                return None
            if stat.S_ISDIR(found.st_mode):
                repository = _at(here)
                if repository is not None:
                    return repository
        parent = os.path.dirname(here)  # noqa: PTH120
        if parent == here:
            return None
        here = parent


def _at(here: str) -> Repository | None:
    link = f"{here}/.git"
    try:
        found = os.stat(link)  # noqa: PTH116
    except OSError as error:
        if error.errno not in _GOES_UP:
            raise
    else:
        if stat.S_ISREG(found.st_mode):
            repository = _opened(_pointed_at(link), here)
            if repository is None:
                raise _DeadEnd
            return repository
        repository = _opened(os.path.realpath(link), here)
        if repository is not None:
            return repository
    return _opened(here, None)


def _pointed_at(link: str) -> str:
    content = os.fsdecode(Path(link).read_bytes())
    if not content.startswith("gitdir: "):
        return ""
    path = content.removeprefix("gitdir: ").rstrip("\r\n")
    return os.path.realpath(os.path.join(os.path.dirname(link), path))  # noqa: PTH118, PTH120


def common_of(directory: str) -> str:
    try:
        path = os.fsdecode(Path(directory, "commondir").read_bytes()).rstrip("\r\n")
    except OSError:
        return directory
    return os.path.realpath(os.path.join(directory, path))  # noqa: PTH118


def _opened(directory: str, holder: str | None) -> Repository | None:
    """This git directory, if it is one."""
    if not directory:
        return None
    try:
        head = read_loose(f"{directory}/HEAD")
    except OSError as error:
        if error.errno in _GOES_UP | {errno.EISDIR}:
            return None
        raise
    common = common_of(directory)
    if not _HEAD.match(head) or not Path(common, "objects").is_dir() or not Path(common, "refs").is_dir():
        return None
    return Repository(directory=directory, common=common, holder=holder)
