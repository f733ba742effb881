"""JSON representations of the results of pause, resume and clear."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PauseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a pause."""

    has_changed: bool
    """Whether this request paused the scope; `false` if it was already paused."""
    scope: str
    """Scope of the pause: `global`, or the name of a pool such as `flow/review`."""
    paused_by: str
    """Actor that paused the scope first."""
    paused_at: datetime
    """Time at which the scope was paused."""
    warning: str | None
    """Warning about the pause; `null` if there is none."""


class ResumeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a resume."""

    has_changed: bool
    """Whether the scope was paused."""
    scope: str
    """Scope that was resumed: `global`, or the name of a pool such as `flow/review`."""
    paused_by: str | None
    """Actor that had paused the scope; `null` if it was not paused."""
    paused_at: datetime | None
    """Time at which the scope had been paused; `null` if it was not paused."""


class ClearResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of clearing the queue."""

    scope: str
    """Scope that was cleared: `global`, or the name of a pool such as `flow/review`."""
    cleared: int
    """Number of jobs that were cancelled."""
