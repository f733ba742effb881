"""JSON representation of the result of an edit."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobView


class EditResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of editing a job."""

    job: JobView
    """The job after the edit."""
    fields: list[str]
    """Names of the fields that changed."""
    warning: str | None
    """Warning about the edited job; `null` if there is none."""
