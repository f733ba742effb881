"""What a tick did, or would do, as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec


class TickForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a tick did, or would do."""

    dispatched: list[str]
    """The jobs that it started."""
    would_dispatch: list[str]
    """What was decided on and has not started yet: in a dry run all of it, else what a spawn delay keeps, or what hangs
    on something that is still being looked at."""
    skipped: int
    """Jobs that are ready, and that this tick left where they are."""
    reason: Literal["capacity", "batch", "ready", "none"]
    """What bound it: no room for more, the batch size, no more jobs that are ready, or none at all."""
