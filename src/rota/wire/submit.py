"""What a submit is answered, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rota.wire.depth import DepthForm
from rota.wire.job import JobForm


class SubmitForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a submit."""

    result: Literal["submitted", "already_active"]
    """`already_active`: another chain has its unique key, and `job` is that one; nothing was stored."""
    job: JobForm
    """The job that was stored, or the one that is active already."""
    warning: str | None = None
    depth: DepthForm | msgspec.UnsetType = msgspec.UNSET
    """How many are ready, where that is at the soft limit or above."""


class BatchForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    result: Literal["submitted", "already_active"]
    """`already_active`: other chains have unique keys of it; nothing was stored."""
    jobs: list[str]
    """Their ids in the order given, or those of the jobs that have a unique key of them."""
    active: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The jobs that have the unique keys, by key."""
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    """The group that was made of them, if one was asked for."""
    warning: str | None = None
    depth: DepthForm | msgspec.UnsetType = msgspec.UNSET
    """How many are ready, where that is at the soft limit or above."""


class RehearsedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would be stored."""

    id: str
    """The one that it would get if nobody came before it."""
    local: str | None
    """The name by which the others of the batch call it."""


class RehearsalForm(msgspec.Struct, frozen=True, kw_only=True):
    """What would come of a batch."""

    result: Literal["rehearsed", "already_active", "deferred"]
    """What a submit would be answered."""
    jobs: list[RehearsedJob]
    """Those that would be stored, in the order given."""
    active: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The jobs that have the unique keys, by key."""
    graph: Any
    """As `GET /api/graph` gives it, in the format asked for; null where nothing would be stored."""
    warning: str | None
