"""JSON representation of the result of a manual retry."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobView


class RetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a manual retry."""

    job: JobView
    """The new last job of the chain."""
    message: str
    """Description of the result."""
    blocked: list[str]
    """Ids of later jobs that the failure blocked. They stay blocked until they are rewound."""
    dropped: list[str]
    """Ids of group members that the policy ended because of a failure. They are not restored."""
    warning: str | None
    """Warning about the retry; `null` if there is none."""
