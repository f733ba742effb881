"""What an edit is answered, as JSON."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobForm


class EditForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an edit."""

    job: JobForm
    """The job as it is now."""
    fields: list[str]
    """What is another than before."""
    warning: str | None
