"""What gates ask of the world outside the store: questions as values, so that asking and looking stay apart.

A `repository` is the absolute path of a git common directory.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Head(msgspec.Struct, frozen=True):
    """Where does this branch stand? The full object id, or none when there is no such branch."""

    repository: str
    branch: str


class Document(msgspec.Struct, frozen=True):
    """Does the tip of this branch hold a file at this path?"""

    repository: str
    branch: str
    path: str


class File(msgspec.Struct, frozen=True):
    """Is there anything at this path? A link to nothing is nothing."""

    path: str


Fact = Head | Document | File


class Trouble(Enum):
    """Why a fact is not known though somebody has looked."""

    UNREADABLE = "unreadable"
    """It may be there or not: nothing is ever given up for it."""


UNREADABLE = Trouble.UNREADABLE
Seen = str | bool | Trouble | None
