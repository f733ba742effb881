"""The delay gate and the paused gate: jobs that they hold stay in the queue and reserve no capacity.

A pause has a scope: `global` covers everything, any other scope is a pool's name. A job is covered by `global`, by
every pool that it draws from, and by its own type, flow and target, even if no pool of that name exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from rota.ids import ReservationId, format_job_id
from rota.kernel.breaker import BreakerStates, OpenState
from rota.kernel.pools import PoolDemand
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Verdict, Wait, WaitKind
from rota.naming import GLOBAL


def format_time(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC, with microseconds only if they are not zero."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    actor: str
    at: datetime


def scopes_of(demand: PoolDemand, type_: str | None, flow: str | None, target: str | None) -> tuple[str, ...]:
    """Return the scopes that cover a job, widest first."""
    own = (("type", type_), ("flow", flow), ("target", target))
    return tuple(dict.fromkeys((GLOBAL, *(f"{kind}/{name}" for kind, name in own if name), *demand)))


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons to hold jobs that are not in the store's table of pauses."""

    hold_text: str | None = None
    """Content of the hold file, if it exists."""
    clearing: Mapping[str, Pause] = {}
    """Scopes that are being cleared: their jobs do not start while they wait to be cancelled."""
    reservations_without_client: frozenset[ReservationId] = frozenset()
    """Direct executions whose client connection belonged to an earlier scheduler and has not been reestablished."""


NO_HOLDS = Holds()


class PauseState(msgspec.Struct, frozen=True):
    """Paused scopes (`global` is everything), breakers that are not closed, and the hold file."""

    scopes: Mapping[str, Pause] = {}
    breakers: BreakerStates = BreakerStates()
    hold_text: str | None = None

    def is_paused(self, scopes: Sequence[str], breaker_keys: tuple[str, ...]) -> bool:
        return (
            self.is_paused_globally
            or self.find_pause(scopes) is not None
            or self.breakers.find_holding(breaker_keys) is not None
        )

    @property
    def is_paused_globally(self) -> bool:
        return self.hold_text is not None or GLOBAL in self.scopes

    def find_pause(self, scopes: Sequence[str]) -> Pause | None:
        """Return the pause of the widest paused scope among these."""
        return next((self.scopes[scope] for scope in (GLOBAL, *scopes) if scope in self.scopes), None)


def judge_delay(not_before: datetime | None, now: datetime) -> Verdict:
    if not_before is None or not_before <= now:
        return PASS
    return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=f"not before {format_time(not_before)}")


def judge_pause(pauses: PauseState, scopes: Sequence[str], breaker_keys: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict of the paused gate. A pause by a user comes before a breaker, which cannot end it."""
    pause = pauses.find_pause(scopes)
    if pause is not None:
        return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"paused by {pause.actor}", on=("pause",))
    if pauses.hold_text is not None:
        return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"held: {pauses.hold_text}", on=("hold_file",))
    held = pauses.breakers.find_holding(breaker_keys) if breaker_keys else None
    if held is None:
        return PASS
    key, state = held
    until = format_time(state.until) if isinstance(state, OpenState) else f"{format_job_id(state.job)} has ended"
    detail = f"breaker open for {key} until {until}"
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=detail, on=(f"breaker:{key}",))
