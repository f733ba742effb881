"""Which gate holds a job."""

from __future__ import annotations

from enum import StrEnum


class WaitKind(StrEnum):
    """Which gate holds a job. The first three are stored; the others are computed when read."""

    DEPENDENCIES = "dependencies"
    PINNED_HEAD = "pinned_head"
    LOCKS = "locks"
    DELAY = "delay"
    PAUSED = "paused"
    SLOT = "slot"
    CAPACITY = "capacity"
