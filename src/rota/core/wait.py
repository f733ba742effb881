"""Kinds of waiting."""

from __future__ import annotations

from enum import StrEnum


class WaitKind(StrEnum):
    """Gate that holds a job. The first three are stored; the others are computed on each read."""

    DEPENDENCIES = "dependencies"
    PINNED_HEAD = "pinned_head"
    LOCKS = "locks"
    DELAY = "delay"
    PAUSED = "paused"
    RESERVATION = "reservation"
    CAPACITY = "capacity"
