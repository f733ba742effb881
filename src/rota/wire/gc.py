"""What was collected, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.gc import Kept


class RemovedForm(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of each kind went, and how many bytes of files."""

    jobs: int = 0
    runs: int = 0
    events: int = 0
    idempotency_keys: int = 0
    surroundings: int = 0
    lanes: int = 0
    slots: int = 0
    groups: int = 0
    templates: int = 0
    deliveries: int = 0
    fires: int = 0
    bytes: int = 0


class KeptForm(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are old enough and stay, by why."""

    referenced: int
    """Something that stays refers to them."""
    worktree: int
    """A worktree is still there, and may hold work that is nowhere else."""
    files: int
    """Their files cannot be removed."""


class StaysForm(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is kept for a reason that somebody can do something about."""

    job: str
    why: Kept
    detail: str


class CollectionForm(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or in a dry run would be."""

    dry_run: bool
    older_than: datetime
    removed: RemovedForm
    given_up: int
    """Messages to webhooks that were to be sent for so long, and will not be."""
    kept: KeptForm
    jobs: list[str]
    """Those removed; the first of them, if many."""
    stays: list[StaysForm]
    left: list[str]
    """Files of removed jobs that could not be deleted, and why."""


class UnderWayForm(msgspec.Struct, frozen=True, kw_only=True):
    """How far a collection has come."""

    jobs: int
    bytes: int


class LastGcForm(RemovedForm, frozen=True, kw_only=True):
    """When something was last collected, and what came of it."""

    at: datetime
    kept: int = 0
    given_up: int = 0


class GcForm(msgspec.Struct, frozen=True, kw_only=True):
    under_way: UnderWayForm | None
    last: LastGcForm | None
    """Null before the first time."""
