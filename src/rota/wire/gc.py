"""What was collected, as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.gc import Kept


class RemovedForm(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of each kind went, and how many bytes of files."""

    jobs: int = 0
    """Jobs."""
    runs: int = 0
    """Runs of jobs."""
    events: int = 0
    """Events."""
    idempotency_keys: int = 0
    """Answers that were kept for keys."""
    surroundings: int = 0
    """Environments that no job has any more."""
    lanes: int = 0
    """Lanes of the queue that no job stands in."""
    slots: int = 0
    """Direct executions."""
    groups: int = 0
    """Groups."""
    templates: int = 0
    """Archived templates that no job was made of."""
    deliveries: int = 0
    """Messages to webhooks."""
    fires: int = 0
    """Times of schedules."""
    bytes: int = 0
    """Bytes of files."""


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
    """Which reason that is."""
    detail: str
    """The same in words, with what to do."""


class CollectionForm(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or in a dry run would be."""

    dry_run: bool
    """Whether nothing was removed."""
    older_than: datetime
    """What ended before this was old enough."""
    removed: RemovedForm
    """How much went of each kind."""
    given_up: int
    """Messages to webhooks that were to be sent for so long, and will not be."""
    kept: KeptForm
    """How much was old enough and stays."""
    jobs: list[str]
    """Those removed; the first of them, if many."""
    stays: list[StaysForm]
    """Jobs that somebody can do something about."""
    left: list[str]
    """Files of removed jobs that could not be deleted, and why."""


class UnderWayForm(msgspec.Struct, frozen=True, kw_only=True):
    """How far a collection has come."""

    jobs: int
    """How many jobs have gone."""
    bytes: int
    """How many bytes have gone."""


class LastGcForm(RemovedForm, frozen=True, kw_only=True):
    """When something was last collected, and what came of it."""

    at: datetime
    """When that was."""
    kept: int = 0
    """How many jobs were old enough and stayed."""
    given_up: int = 0
    """Messages to webhooks that will not be sent any more."""


class GcForm(msgspec.Struct, frozen=True, kw_only=True):
    """How collection stands."""

    under_way: UnderWayForm | None
    """The one that is being carried out; null where none is."""
    last: LastGcForm | None
    """Null before the first time."""
