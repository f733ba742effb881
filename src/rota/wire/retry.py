"""What a manual retry is answered, as JSON."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobForm


class RetryForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a retry by hand."""

    job: JobForm
    """The chain's last job, which is going to run."""
    text: str
    """What was done."""
    blocked: list[str]
    """Jobs after it that were blocked by its failure, and stay so until they are rewound."""
    dropped: list[str]
    """Members of its group that the policy ended because one had failed, and that stay so."""
    warning: str | None
