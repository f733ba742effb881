"""Heads of the branches of one repository.

Git's `files` storage has a stable format, so it is read without a git process: a ref is a file of its own, or else a
line of `packed-refs`. Git replaces both atomically, packs a ref before it removes the loose file, and rewrites
`packed-refs` before it deletes a branch. A reader that reads the loose file first and `packed-refs` second therefore
sees a value that the ref really had:

    git pack-refs     packed-refs renamed into place ── loose file removed
    git branch -D     packed-refs renamed into place ── loose file removed
    reader                       loose file? ── no ── packed-refs

`packed-refs` is read again only after a change (`CachedFile`). For any other storage (`reftable`), `git` lists the
branches, again whenever the list of tables has changed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from rota.kernel.facts import UNREADABLE, ProbeFailure
from rota.probe.git_command import Failures, run_git

T = TypeVar("T")

HEADS = "refs/heads/"

_MAX_SYMBOLIC_DEPTH = 5
_MIN_STABLE_AGE = 2_000_000_000
"""Nanoseconds after which a replacement of the file always has other timestamps. No file system has coarser ones."""
_OID = re.compile(r"([0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?)(?:\s|\Z)")
_PACKED_HEAD = re.compile(rb"^([0-9a-f]{40,64}) refs/heads/(.+)$", re.MULTILINE)
_PACKED_LINES = re.compile(rb"(?:#[^\n]*\n|\^[0-9a-f]{40,64}\n|[0-9a-f]{40,64} [^\n]+\n)*")
_PACKED_REF = re.compile(rb"^([0-9a-f]{40,64}) (refs/.+)$", re.MULTILINE)
_INVALID_REF_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|\Z)|\.\Z|/\Z|^[./]")


class BrokenRef(Exception):
    """The ref exists, but its content is invalid."""


class RefReader:
    def __init__(self, repository: str, failures: Failures) -> None:
        self._repository = repository
        self._failures = failures
        self._git_only = CachedFile(f"{repository}/config", lambda data: b"refstorage" in data.lower())
        self._packed = CachedFile(f"{repository}/packed-refs", _parse_packed)
        self._branches: dict[str, str] = {}
        self._branches_version: bytes | None = None

    def is_git_only(self) -> bool:
        """Return whether the repository configures a ref storage, so that only git may read its refs."""
        return self._git_only.read()

    def read_heads(self, branches: Iterable[str]) -> dict[str, str | ProbeFailure | None]:
        """Return the head of each branch, or None if it does not exist.

        Raises OSError, ValueError or GitProbeError if the repository as a whole cannot be read.
        """
        for part in ("HEAD", "refs"):
            self._check_part(part)
        if self.is_git_only():
            listed = self._list_branches()
            return {branch: listed.get(branch) for branch in branches}
        return {branch: self._read_head(branch) for branch in branches}

    def _check_part(self, part: str) -> None:
        """Raise ValueError for a damaged repository, and FileNotFoundError for one that does not exist."""
        try:
            os.lstat(f"{self._repository}/{part}")
        except FileNotFoundError:
            os.lstat(f"{self._repository}/objects")
            raise ValueError(f"{part} is missing") from None

    def _read_head(self, branch: str) -> str | ProbeFailure | None:
        if not is_ref_name(HEADS + branch):
            return None
        subject = f"branch {branch} of {self._repository}"
        try:
            oid = self._resolve(HEADS + branch)
        except OSError as error:
            self._failures.report(subject, str(error.strerror))
            return UNREADABLE
        except BrokenRef as error:
            self._failures.report(subject, str(error))
            return UNREADABLE
        self._failures.clear(subject)
        return oid

    def _resolve(self, name: str) -> str | None:
        for _ in range(_MAX_SYMBOLIC_DEPTH + 1):
            content = self._read(name)
            if content is None:
                return None
            target = symbolic_target(content)
            if target is None:
                oid = _OID.match(content)
                if oid is None:
                    raise BrokenRef(f"{name} contains no object id")
                return oid[1].lower()
            if not target.startswith("refs/") or not is_ref_name(target):
                raise BrokenRef(f"{name} points at {target!r}, which is not a ref")
            name = target
        raise BrokenRef(f"more than {_MAX_SYMBOLIC_DEPTH} symbolic refs in a row")

    def _read(self, name: str) -> str | None:
        try:
            return read_loose_ref(f"{self._repository}/{name}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if name.startswith(HEADS):
                return self._packed.read().get(name.removeprefix(HEADS))
            return self._read_packed(name)

    def _read_packed(self, name: str) -> str | None:
        """Read a packed ref that is not a branch. Only a symbolic ref leads here, so the file is not cached."""
        try:
            data = Path(self._repository, "packed-refs").read_bytes()
        except FileNotFoundError:
            return None
        _check_packed(data)
        return next((oid.decode() for oid, ref in _PACKED_REF.findall(data) if os.fsdecode(ref) == name), None)

    def _list_branches(self) -> dict[str, str]:
        try:
            version: bytes | None = Path(self._repository, "reftable/tables.list").read_bytes()
        except OSError:
            version = None  # unknown storage without a change marker: list the branches every time
        if version is None or version != self._branches_version:
            output = run_git(self._repository, ["for-each-ref", "--format=%(objectname) %(refname)", HEADS])
            self._branches = _parse_packed(output)
            self._branches_version = version
        return self._branches


def is_ref_name(name: str) -> bool:
    """Return whether git accepts the name. The rule also keeps the path inside the repository."""
    if not name or _INVALID_REF_NAME.search(name):
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def read_loose_ref(path: str) -> str:
    """Return the content of a ref file. A symbolic link into refs/ is an old form of a symbolic ref."""
    try:
        target = os.readlink(path)  # noqa: PTH115 - a Path would cost more than the call itself
    except FileNotFoundError:
        raise
    except OSError:
        target = ""
    if target.startswith("refs/"):
        return f"ref: {target}"
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(descriptor, 4096))
    finally:
        os.close(descriptor)


def symbolic_target(content: str) -> str | None:
    """Return the target of a symbolic ref, or None for another ref."""
    return content[4:].strip() if content.startswith("ref:") else None


def _check_packed(data: bytes) -> None:
    """Refuse a damaged file: a truncated last line would be read as a branch with a shortened name."""
    if data and (not data.endswith(b"\n") or _PACKED_LINES.fullmatch(data) is None):
        raise ValueError("packed-refs is damaged")


def _parse_packed(data: bytes) -> dict[str, str]:
    _check_packed(data)
    return {os.fsdecode(name): oid.decode() for oid, name in _PACKED_HEAD.findall(data)}


class CachedFile(Generic[T]):
    """Parsed content of a file, or of an empty file if it does not exist.

    The file must be replaced by a rename and never written in place, as git does, so that a read is always complete.
    """

    def __init__(self, path: str, parse: Callable[[bytes], T]) -> None:
        self._path = Path(path)
        self._parse = parse
        self._stamp: tuple[int, ...] | None = None
        self._value = parse(b"")

    def read(self) -> T:
        try:
            if self._stamp is None or _stamp(self._path.stat()) != self._stamp:
                self._read()
        except (FileNotFoundError, NotADirectoryError):
            self._stamp = None
            self._value = self._parse(b"")
        return self._value

    def _read(self) -> None:
        self._stamp = None
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            self._value = self._parse(file.read())
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _MIN_STABLE_AGE:
            self._stamp = _stamp(status)


def _stamp(file_status: os.stat_result) -> tuple[int, ...]:
    return file_status.st_dev, file_status.st_ino, file_status.st_size, file_status.st_mtime_ns, file_status.st_ctime_ns
