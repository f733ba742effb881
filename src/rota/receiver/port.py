"""What the sender needs of the world: somebody who brings a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from rota.core.webhook import HookPolicy


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None = None
    """None: there was no answer."""
    error: str | None = None
    """What is wrong with it; none: the message was taken."""


class Post(Protocol):
    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: HookPolicy, /) -> Answer:
        """Bring it once. Trouble is an answer."""
        ...
