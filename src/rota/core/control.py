"""The delay and paused gates: what holds a job in the queue where it reserves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from rota.core.breaker import Breakers, Open
from rota.core.pool import Draws
from rota.core.status import Status
from rota.core.verdict import PASS, Verdict, Wait
from rota.core.wait import WaitKind
from rota.ids import show_job
from rota.names import GLOBAL


def show_time(moment: datetime) -> str:
    """RFC 3339 in UTC, to the microsecond only where it has one."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    by: str
    at: datetime


class Pauses(msgspec.Struct, frozen=True):
    """Who paused what (`global` is everything), and the breakers that are not closed."""

    scopes: Mapping[str, Pause] = {}
    breakers: Breakers = Breakers()

    def are_over(self, draws: Draws, keys: tuple[str, ...]) -> bool:
        return self.over(draws) is not None or self.breakers.holding(keys) is not None

    def over(self, draws: Draws) -> Pause | None:
        for name in (GLOBAL, *draws):
            if name in self.scopes:
                return self.scopes[name]
        return None


def judge_delay(not_before: datetime | None, now: datetime) -> Verdict:
    if not_before is None or not_before <= now:
        return PASS
    return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=f"not before {show_time(not_before)}")


def judge_pause(pauses: Pauses, draws: Draws, keys: tuple[str, ...] = ()) -> Verdict:
    """What a person said comes first: no breaker undoes it."""
    pause = pauses.over(draws)
    if pause is not None:
        return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"paused by {pause.by}", on=("pause",))
    held = pauses.breakers.holding(keys) if keys else None
    if held is None:
        return PASS
    key, state = held
    until = show_time(state.until) if isinstance(state, Open) else f"{show_job(state.by)} has ended"
    detail = f"breaker open for {key} until {until}"
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=detail, on=(f"breaker:{key}",))
