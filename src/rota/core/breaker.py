"""What follows when a job could not be started: again after a short while, and never more than three times.

The count stands on the job, so that neither a restart nor a new session resets it.
"""

from __future__ import annotations

from datetime import timedelta

CIRCUIT_BROKEN = "circuit-broken"
_AGAIN_AFTER = (timedelta(seconds=1), timedelta(seconds=2))


def again_after(failures: int) -> timedelta | None:
    """How long to wait after so many failures in a row; none when it is enough."""
    return _AGAIN_AFTER[failures - 1] if failures <= len(_AGAIN_AFTER) else None
