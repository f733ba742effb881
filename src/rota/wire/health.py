"""How the scheduler is, as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec


class HealthForm(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"
    pid: int | msgspec.UnsetType = msgspec.UNSET
    """Of the scheduler; over TCP it is told only with the token."""


class ReadyForm(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ready"] = "ready"
