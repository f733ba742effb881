"""JSON representations of the results of submits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rota.wire.depth import QueueDepthView
from rota.wire.job import EffectivePolicy, JobView


class SubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of submitting a job."""

    result: Literal["submitted", "already_active", "dry_run"]
    """`submitted`; `already_active` if another active chain has the unique key: `job` is the job of that chain, and
    nothing is stored; `dry_run` if this is a dry run: nothing is stored."""
    job: JobView
    """The job that was stored, the active job with the unique key, or the job that would be stored."""
    warning: str | None = None
    """Warning about the submitted job; `null` if there is none."""
    depth: QueueDepthView | msgspec.UnsetType = msgspec.UNSET
    """Number of ready jobs. Present only at or above the soft limit."""


class BatchSubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of submitting a batch."""

    result: Literal["submitted", "already_active"]
    """`submitted`, or `already_active` if other active chains have unique keys of the batch: nothing is stored."""
    jobs: list[str]
    """Ids of the jobs in the order of the request, or of the active jobs that have the unique keys."""
    active: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Ids of the active jobs that have the unique keys, by key."""
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    """Id of the group that was created; absent if none was requested."""
    warning: str | None = None
    """Warning about the batch; `null` if there is none."""
    depth: QueueDepthView | msgspec.UnsetType = msgspec.UNSET
    """Number of ready jobs. Present only at or above the soft limit."""


class DryRunJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would be stored."""

    id: str
    """Id that the job would get if no other job is submitted first."""
    local: str | None
    """Name of the job within the batch."""
    policies: list[EffectivePolicy]
    """Policies in force for the job, with their sources."""


class BatchDryRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dry run of a batch."""

    result: Literal["dry_run", "already_active", "deferred"]
    """Result that a submit would have, or `dry_run` if it would succeed."""
    jobs: list[DryRunJob]
    """Jobs that would be stored, in the order of the request."""
    active: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Ids of the active jobs that have the unique keys, by key."""
    graph: Any
    """Dependency graph in the requested format, as in `GET /api/graph`; `null` if nothing would be stored."""
    warning: str | None
    """Warning about the batch; `null` if there is none."""
