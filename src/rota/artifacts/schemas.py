"""JSON representations of artifacts."""

from __future__ import annotations

from datetime import datetime

import msgspec


class ArtifactView(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that was put by a job or a user."""

    artifact: str
    """Artifact as `type:name`."""
    scope: str | None
    """Repository that the artifact belongs to; `null` if it belongs to none."""
    payload: str | None
    """Payload that the artifact was put with; always `null` in a list."""
    created_at: datetime | None
    """Time at which the artifact was last put; `null` if it is unknown."""
    job: str | None
    """Id of the job that put the artifact; `null` if no job did."""


class ArtifactPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of artifacts, sorted by name, without their payloads."""

    artifacts: list[ArtifactView]
    """Artifacts, sorted by name."""
    next: str | None
