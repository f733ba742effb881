"""What a rewind is answered, as JSON."""

from __future__ import annotations

import msgspec


class RewindForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a rewind."""

    requested_job: str
    """The one that was named."""
    root: str
    """The first of the set: all else in it is downstream of this."""
    last_successful_point: list[str]
    """The jobs upstream whose work is kept."""
    rewind_set: list[str]
    """It and all that is downstream of it, those nearest to the root first."""
    reset: list[str]
    """Those of the set that were put back."""
    restarted: list[str]
    """Those of them that have been started again already."""
    cancelled: list[str]
    """Those of them that somebody had cancelled."""
    warning: str | None
