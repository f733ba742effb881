"""Artifacts that jobs and people put, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PutForm(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that was put."""

    artifact: str
    """As `type:name`."""
    scope: str | None
    """The repository it belongs to."""
    payload: str | None
    """What it was put with; a list goes without."""
    put_at: datetime | None
    """When it was last put; null where that is not known."""
    job: str | None
    """The job that put it."""


class PutsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of what was put, by name, without the payloads."""

    artifacts: list[PutForm]
    """By name."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""
