"""JSON representation of a page of runs."""

from __future__ import annotations

import msgspec

from rota.wire.job import RunView


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: list[RunView]
    """Runs, newest first."""
    next: str | None
