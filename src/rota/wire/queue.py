"""The queue as JSON, and what a move in it is answered."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobForm, JobStatus, WaitForm


class QueueForm(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits, at its place."""

    id: str
    name: str | None
    status: JobStatus
    priority: int
    position: int
    """Where it stands among those of its priority, as it is stored."""
    place: int
    """Which one it is of those of its priority that wait, from 1: what `to` of a move takes."""
    wait: WaitForm | None
    """Why it has not started."""


class QueuePageForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the queue."""

    jobs: list[QueueForm]
    """In the order in which they start as far as nothing else holds them."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class PlaceForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a move."""

    job: JobForm
    """The job as it is now."""
    place: int | None
    """Which one it is of those of its priority that wait; null when it waits no more."""
    moved: bool
    """Else it stood there already."""


class OrderForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a reorder."""

    order: list[str]
    """The jobs as they stand now."""
    moved: bool
    """Else they stood in this order already."""
