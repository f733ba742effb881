"""What one tick knows: bounded, never the whole queue."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.core.control import Pauses
from rota.core.lock import Front
from rota.core.pool import Draws, Limits
from rota.core.queue import Rank
from rota.core.slot import SlotStanding
from rota.ids import JobId, LaneId


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Ready jobs with the same draws, type, flow and target, in queue order: a full pool is not walked over."""

    id: LaneId
    draws: Draws
    scopes: tuple[str, ...] = ()
    """What a pause that holds it can be of."""
    keys: tuple[str, ...] = ()
    """The breakers its jobs stand under."""
    heads: tuple[Rank, ...]
    has_more: bool
    """There are ready jobs behind these heads."""
    asks: bool = False
    """Its jobs need artifacts or have a pinned head: what they saw is looked at once more before they start."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    lanes: tuple[Lane, ...]
    used: Mapping[str, int]
    workers: frozenset[int]
    """Numbers of the places that run a job."""
    limits: Limits
    pauses: Pauses
    batch_size: int | None
    has_ready: bool
    """Some job stands ready, whether or not its lane is here."""
    frontier: Rank | None = None
    """No lane that is not here has a job before this one; none when all lanes are here."""
    slots: tuple[SlotStanding, ...] = ()
    """Direct executions that wait, in order of arrival."""
    fronts: Mapping[str, Front] = {}
    """Of the keys that these want."""
    horizon: Rank | None = None
    """The first job marked for a look that has not had it: nothing at or behind it starts yet."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    lane: LaneId
    worker: int
    probes: tuple[str, ...] = ()
    """The breakers for which it is the one that tries."""
    asks: bool = False
    """As its lane says."""
