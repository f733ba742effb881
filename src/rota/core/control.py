"""The delay and paused gates: what holds a job in the queue where it reserves nothing.

A pause is of a scope: `global` is everything, any other is a pool's name. A job stands under `global`, under every pool
it draws from, and under its own type, flow and target, whether or not it draws from a pool of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from rota.core.breaker import Breakers, Open
from rota.core.pool import Draws
from rota.core.status import Status
from rota.core.verdict import PASS, Verdict, Wait
from rota.core.wait import WaitKind
from rota.ids import SlotId, show_job
from rota.names import GLOBAL


def show_time(moment: datetime) -> str:
    """RFC 3339 in UTC, to the microsecond only where it has one."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    by: str
    at: datetime


def scopes_of(draws: Draws, type_: str | None, flow: str | None, target: str | None) -> tuple[str, ...]:
    """What a job stands under, the widest first."""
    own = (("type", type_), ("flow", flow), ("target", target))
    return tuple(dict.fromkeys((GLOBAL, *(f"{kind}/{name}" for kind, name in own if name), *draws)))


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """What holds jobs and is not in the store's table of pauses."""

    file: str | None = None
    """What the hold file says, while there is one."""
    clearing: Mapping[str, Pause] = {}
    """Scopes that are being cleared: nothing under them starts before its turn to be cleared has come."""
    absent: frozenset[SlotId] = frozenset()
    """Direct executions that hung on a connection to an earlier scheduler, and whose clients are not back."""


NOTHING_HELD = Holds()


class Pauses(msgspec.Struct, frozen=True):
    """Who paused what (`global` is everything), the breakers that are not closed, and what the hold file says."""

    scopes: Mapping[str, Pause] = {}
    breakers: Breakers = Breakers()
    held: str | None = None

    def are_over(self, scopes: Sequence[str], keys: tuple[str, ...]) -> bool:
        return self.are_over_all or self.over(scopes) is not None or self.breakers.holding(keys) is not None

    @property
    def are_over_all(self) -> bool:
        return self.held is not None or GLOBAL in self.scopes

    def over(self, scopes: Sequence[str]) -> Pause | None:
        """The widest of these that somebody has paused."""
        return next((self.scopes[scope] for scope in (GLOBAL, *scopes) if scope in self.scopes), None)


def judge_delay(not_before: datetime | None, now: datetime) -> Verdict:
    if not_before is None or not_before <= now:
        return PASS
    return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=f"not before {show_time(not_before)}")


def judge_pause(pauses: Pauses, scopes: Sequence[str], keys: tuple[str, ...] = ()) -> Verdict:
    """What a person said comes first: no breaker undoes it."""
    pause = pauses.over(scopes)
    if pause is not None:
        return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"paused by {pause.by}", on=("pause",))
    if pauses.held is not None:
        return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"held: {pauses.held}", on=("hold_file",))
    held = pauses.breakers.holding(keys) if keys else None
    if held is None:
        return PASS
    key, state = held
    until = show_time(state.until) if isinstance(state, Open) else f"{show_job(state.by)} has ended"
    detail = f"breaker open for {key} until {until}"
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=detail, on=(f"breaker:{key}",))
