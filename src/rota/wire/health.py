"""JSON representations of the health checks."""

from __future__ import annotations

from typing import Literal

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a running scheduler."""

    status: Literal["ok"] = "ok"
    """Always `ok`. A scheduler that does not respond is not healthy."""
    pid: int | msgspec.UnsetType = msgspec.UNSET
    """Process id of the scheduler. Over TCP it is present only in authenticated responses."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a scheduler that can start jobs."""

    status: Literal["ready"] = "ready"
    """Always `ready`. A scheduler that is not ready responds with a problem and status 503."""
