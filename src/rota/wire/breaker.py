"""Breakers as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from rota.wire.job import JobStatus


class BreakerForm(msgspec.Struct, frozen=True, kw_only=True):
    """What stops a kind of work that keeps failing."""

    key: str
    """`type/NAME` or `target/NAME`."""
    state: Literal["open", "half-open", "closed"]
    """Open: nothing of it starts. Half-open: one job tries. Closed: all is well."""
    failures: int
    """Of its runs, those that failed within the window; no more are counted than open it."""
    opened_at: datetime | None
    """When it opened; null while it is closed."""
    until: datetime | None
    """While it is open: when it lets one job try."""
    probe: str | None
    """While it is half-open: the job that tries."""


class BreakersForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of breakers, by key."""

    breakers: list[BreakerForm]
    """By key."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class BreakerResetForm(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker that was closed by hand."""

    key: str
    """The breaker's key."""
    state: Literal["closed"]
    """How it is now."""
    failures_forgotten: int
    """How many failures count no more."""


class StartsResetForm(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose failed starts were forgotten."""

    job: str
    status: JobStatus
    failures_forgotten: int
    """How many failed starts count no more."""
    goes_at_once: bool
    """It was put off after a failed start, and is not any more."""
