"""JSON representations of circuit breakers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from rota.wire.job import JobStatusText


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit breaker: holds the jobs of one type or target whose runs keep failing."""

    key: str
    """Key of the breaker: `type/NAME` or `target/NAME`."""
    state: Literal["open", "half-open", "closed"]
    """State of the breaker. `open`: no job with this key starts. `half-open`: one probe job may start. `closed`: jobs
    start normally."""
    failures: int
    """Number of failed runs within the window, up to the number that opens the breaker."""
    opened_at: datetime | None
    """Time at which the breaker opened; `null` while it is closed."""
    probe_at: datetime | None
    """Time at which the breaker lets a job probe; `null` unless it is open."""
    probe_job: str | None
    """Id of the probe job; `null` unless the breaker is half-open."""


class BreakerPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of breakers, sorted by key."""

    breakers: list[BreakerView]
    """Breakers, sorted by key."""
    next: str | None


class BreakerResetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of resetting a breaker."""

    key: str
    """Key of the breaker."""
    state: Literal["closed"]
    """State of the breaker after the reset."""
    failures_cleared: int
    """Number of failures that were cleared."""


class StartFailureResetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of clearing the failed starts of a job."""

    job: str
    """Id of the job."""
    status: JobStatusText
    """Status of the job."""
    failures_cleared: int
    """Number of failed starts that were cleared."""
    starts_immediately: bool
    """Whether the reset ended a delay after a failed start, so that the job can start immediately."""
