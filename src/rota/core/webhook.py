"""Webhooks: who is told of which ends."""

from __future__ import annotations

import msgspec


class JobHook(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for itself, beyond the endpoints that are told of everything."""

    urls: tuple[str, ...]
    events: tuple[str, ...] = ()
    """None named: the usual ones."""
