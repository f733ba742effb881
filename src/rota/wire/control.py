"""What pause, resume and clear are answered, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PauseForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pause."""

    result: bool
    """Whether this has paused it; else it was paused before."""
    scope: str
    """`global`, or a pool's name such as `flow/review`."""
    paused_by: str
    """Who was first."""
    paused_at: datetime
    """Since when."""
    warning: str | None


class ResumeForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a resume."""

    result: bool
    """Whether it was paused."""
    scope: str
    """`global`, or a pool's name such as `flow/review`."""
    paused_by: str | None
    """Who had paused it."""
    paused_at: datetime | None
    """Since when it had been paused."""


class ClearForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a clearing."""

    scope: str
    """`global`, or a pool's name such as `flow/review`."""
    cleared: int
    """How many jobs were cancelled."""
