"""Where the branches of one repository stand.

Git's `files` storage is a contract that is older than most repositories, so it is read here, without a process: a
ref is a file of its own, or else a line of `packed-refs`. Git replaces both whole, packs before it removes the
loose file and unpacks before it deletes, so whoever reads the loose file first and `packed-refs` after it sees a
value that the ref really had:

    git pack-refs     packed-refs renamed into place ── loose file removed
    git branch -D     packed-refs renamed into place ── loose file removed
    a look                       loose file? ── no ── packed-refs

Every other storage (`reftable`) is git's own business: the program lists the branches, and is asked again when the
table of tables has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rota.core.fact import UNREADABLE, Trouble
from rota.probe.kept import KeptFile
from rota.probe.program import ask
from rota.probe.trouble import Troubles

HEADS = "refs/heads/"

_DEEPEST = 5
_OID = re.compile(r"([0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?)(?:\s|\Z)")
_PACKED_HEAD = re.compile(rb"^([0-9a-f]{40,64}) refs/heads/(.+)$", re.MULTILINE)
_PACKED_LINES = re.compile(rb"(?:#[^\n]*\n|\^[0-9a-f]{40,64}\n|[0-9a-f]{40,64} [^\n]+\n)*")
_LISTED = re.compile(rb"^([0-9a-f]{40,64}) (refs/.+)$", re.MULTILINE)
_NO_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|\Z)|\.\Z|/\Z|^[./]")


class BrokenRef(Exception):
    """The ref is there and says nothing that can be used."""


def is_ref_name(name: str) -> bool:
    """Git's own rule; it also keeps a name from leading out of the repository."""
    if not name or _NO_NAME.search(name):
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def read_loose(path: str) -> str:
    """The content of a ref's file. A link into refs/ is how symbolic refs were once written."""
    try:
        target = os.readlink(path)  # noqa: PTH115 - a Path would cost more than the call
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


def target_of(content: str) -> str | None:
    """The ref that a symbolic ref names."""
    return content[4:].strip() if content.startswith("ref:") else None


def _check_packed(data: bytes) -> None:
    """As git writes it, to the end: a file that is cut off must not make a branch of half a name."""
    if data and (not data.endswith(b"\n") or _PACKED_LINES.fullmatch(data) is None):
        raise ValueError("packed-refs is damaged")


def _parse_packed(data: bytes) -> dict[str, str]:
    _check_packed(data)
    return {os.fsdecode(name): oid.decode() for oid, name in _PACKED_HEAD.findall(data)}


class Refs:
    def __init__(self, repository: str, troubles: Troubles) -> None:
        self._repository = repository
        self._troubles = troubles
        self._is_foreign = KeptFile(f"{repository}/config", lambda data: b"refstorage" in data.lower())
        self._packed = KeptFile(f"{repository}/packed-refs", _parse_packed)
        self._listed: dict[str, str] = {}
        self._listed_at: bytes | None = None

    def is_foreign(self) -> bool:
        """The repository names a storage for its refs, so only git may read them."""
        return self._is_foreign.value()

    def look(self, branches: Iterable[str]) -> dict[str, str | Trouble | None]:
        """Raises OSError or GitFailed when the repository as a whole cannot be read."""
        for part in ("HEAD", "refs"):
            self._must_have(part)
        if self.is_foreign():
            listed = self._list()
            return {branch: listed.get(branch) for branch in branches}
        return {branch: self._look_at(branch) for branch in branches}

    def _must_have(self, part: str) -> None:
        """Without its parts it is damaged, which is not the same as gone."""
        try:
            os.lstat(f"{self._repository}/{part}")
        except FileNotFoundError:
            os.lstat(f"{self._repository}/objects")
            raise ValueError(f"there is no {part} in it") from None

    def _look_at(self, branch: str) -> str | Trouble | None:
        if not is_ref_name(HEADS + branch):
            return None
        subject = f"branch {branch} of {self._repository}"
        try:
            oid = self._follow(HEADS + branch)
        except OSError as error:
            self._troubles.tell(subject, str(error.strerror))
            return UNREADABLE
        except BrokenRef as error:
            self._troubles.tell(subject, str(error))
            return UNREADABLE
        self._troubles.is_over(subject)
        return oid

    def _follow(self, name: str) -> str | None:
        for _ in range(_DEEPEST + 1):
            content = self._read(name)
            if content is None:
                return None
            target = target_of(content)
            if target is None:
                oid = _OID.match(content)
                if oid is None:
                    raise BrokenRef(f"{name} holds no object id")
                return oid[1].lower()
            if not target.startswith("refs/") or not is_ref_name(target):
                raise BrokenRef(f"{name} points at {target!r}, which is no ref")
            name = target
        raise BrokenRef(f"more than {_DEEPEST} symbolic refs in a row")

    def _read(self, name: str) -> str | None:
        try:
            return read_loose(f"{self._repository}/{name}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if name.startswith(HEADS):
                return self._packed.value().get(name.removeprefix(HEADS))
            return self._read_packed(name)

    def _read_packed(self, name: str) -> str | None:
        """A ref that is no branch: only a symbolic ref leads here, so nothing is kept for it."""
        try:
            data = Path(self._repository, "packed-refs").read_bytes()
        except FileNotFoundError:
            return None
        _check_packed(data)
        return next((oid.decode() for oid, ref in _LISTED.findall(data) if os.fsdecode(ref) == name), None)

    def _list(self) -> dict[str, str]:
        try:
            at: bytes | None = Path(self._repository, "reftable/tables.list").read_bytes()
        except OSError:
            at = None  # a storage that we cannot watch: git is asked each time
        if at is None or at != self._listed_at:
            said = ask(self._repository, ["for-each-ref", "--format=%(objectname) %(refname)", HEADS])
            self._listed = _parse_packed(said)
            self._listed_at = at
        return self._listed
