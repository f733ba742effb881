"""Artifacts that jobs and people put, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PutForm(msgspec.Struct, frozen=True, kw_only=True):
    artifact: str
    scope: str | None
    """The repository it belongs to."""
    payload: str | None
    """What it was put with; a list goes without."""
    put_at: datetime | None
    job: str | None
    """The job that put it."""


class PutsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of what was put, by name, without the payloads."""

    artifacts: list[PutForm]
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""
