"""How a group gets on, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.group import OVER
from rota.wire.group import GroupState
from rota.wire.job import JobStatus


class EndedForm(msgspec.Struct, frozen=True, kw_only=True):
    """A member that has ended."""

    id: str
    name: str | None
    """Its name, if it has one."""
    status: JobStatus
    """How it ended."""
    reason: str | None
    """Why it ended as it did."""
    exit_code: int | None
    """Of its process; null where it had none."""
    retried_as: str | None
    """The job that tries it again."""


class RunningForm(msgspec.Struct, frozen=True, kw_only=True):
    """A member that runs."""

    id: str
    name: str | None
    """Its name, if it has one."""
    started_at: datetime
    """Since when."""


class ProgressForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a group gets on."""

    id: str
    name: str | None
    """Its name, if it has one."""
    status: GroupState
    """Of the group as a whole."""
    counts: dict[str, int]
    """Chains by the status of their last job."""
    total: int
    """How many chains it has."""
    running: list[RunningForm]
    """In the order of the group, and no more than fit a screen."""
    ended: list[EndedForm]
    """In the order of their ends; a long list comes in parts, each behind the `seen` of the one before."""
    seen: str
    """What to ask with next, for what happens from here on."""

    @property
    def is_over(self) -> bool:
        return self.status in OVER
