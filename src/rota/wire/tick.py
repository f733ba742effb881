"""JSON representation of the result of a tick."""

from __future__ import annotations

from typing import Literal

import msgspec


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tick, or of its dry run."""

    dispatched: list[str]
    """Ids of the jobs that the tick started."""
    would_dispatch: list[str]
    """Ids of the jobs that the tick chose but did not start. In a dry run these are all chosen jobs; otherwise a spawn
    delay or a fact that is being probed holds them."""
    skipped: int
    """Number of ready jobs that the tick did not choose."""
    reason: Literal["capacity", "batch", "ready", "none", "blocked"]
    """Limit that ended the tick: `capacity`, `batch` (the batch size), `ready` (no further jobs are ready), `none` (no
    jobs were ready), or `blocked` (no job starts at the moment)."""
    blocker: str | None
    """Reason that no job starts at the moment; `null` unless `reason` is `blocked`."""
