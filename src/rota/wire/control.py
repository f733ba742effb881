"""What pause, resume and clear are answered, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PauseForm(msgspec.Struct, frozen=True, kw_only=True):
    result: bool
    """Whether this has paused it; else it was paused before."""
    scope: str
    paused_by: str
    """Who was first."""
    paused_at: datetime
    warning: str | None


class ResumeForm(msgspec.Struct, frozen=True, kw_only=True):
    result: bool
    """Whether it was paused."""
    scope: str
    paused_by: str | None
    """Who had paused it."""
    paused_at: datetime | None


class ClearForm(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    cleared: int
    """How many jobs were cancelled."""
