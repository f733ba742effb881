"""Port for the delivery of webhook messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from rota.core.webhook import WebhookPolicy


class PostResult(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None = None
    """HTTP status; None without a response."""
    error: str | None = None
    """Reason why the delivery failed; None if the receiver accepted the message."""


class MessagePoster(Protocol):
    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, policy: WebhookPolicy, /) -> PostResult:
        """Send the message once. Failures are results, not exceptions."""
        ...
