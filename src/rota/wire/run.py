"""Runs as JSON."""

from __future__ import annotations

import msgspec

from rota.wire.job import RunForm


class RunsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, the newest first."""

    runs: list[RunForm]
    """The newest first."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""
