"""How the scheduler is, as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec


class HealthForm(msgspec.Struct, frozen=True, kw_only=True):
    """It is alive."""

    status: Literal["ok"] = "ok"
    """Always the same: who gets no answer knows the rest."""
    pid: int | msgspec.UnsetType = msgspec.UNSET
    """Of the scheduler; over TCP it is told only with the token."""


class ReadyForm(msgspec.Struct, frozen=True, kw_only=True):
    """It takes work."""

    status: Literal["ready"] = "ready"
    """Always the same; else there is a problem with status 503."""
