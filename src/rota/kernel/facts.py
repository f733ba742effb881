"""Facts that gates need from outside the store, as values: gates name facts, probes look them up.

A `repository` is the absolute path of a git common directory.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class BranchHead(msgspec.Struct, frozen=True):
    """Object id of a branch's tip, or `None` if the branch does not exist."""

    repository: str
    branch: str


class BranchFile(msgspec.Struct, frozen=True):
    """Whether the tip of the branch has a file at the path."""

    repository: str
    branch: str
    path: str


class FileExists(msgspec.Struct, frozen=True):
    """Whether a file or directory exists at the path. A dangling link does not count."""

    path: str


Fact = BranchHead | BranchFile | FileExists


class ProbeFailure(Enum):
    """Reason why a probe has no result."""

    UNREADABLE = "unreadable"
    """Existence is unknown, so no job is ever blocked because of it."""


UNREADABLE = ProbeFailure.UNREADABLE
FactValue = str | bool | ProbeFailure | None
