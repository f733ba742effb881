"""Keeps the pace over turns: which turn may start how many. What a turn changes of it counts once it is committed."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.pace import Outlook, Pace, Tick, batch_of, outlook
from rota.core.tick import Plan
from rota.engine.dispatch import choose, choose_all
from rota.engine.work import Settings, Work
from rota.store.moment import from_stored, to_stored
from rota.store.session import Session

LAST_TICK = "last_tick"
OWED = "owed"


class Pacer:
    def __init__(self) -> None:
        self._pace = self._kept = Pace()

    def recall(self, session: Session) -> None:
        """The last start and the last tick outlive the scheduler, and so does what that tick still owes."""
        start, tick = session.last_dispatch(), session.meta(LAST_TICK)
        self._pace = self._kept = Pace(
            last_start=None if start is None else from_stored(start),
            last_tick=None if tick is None else from_stored(int(tick)),
            owed=int(session.meta(OWED) or 0),
        )

    def keep(self) -> None:
        self._kept = self._pace

    def undo(self) -> None:
        self._pace = self._kept

    def outlook(self, settings: Settings, now: datetime) -> Outlook:
        return outlook(self._kept, settings.spawn_delay, settings.heartbeat, now)

    def next_due(self, settings: Settings, now: datetime) -> datetime | None:
        """When a turn is wanted for the pace alone. What is due already was kept from coming, and whatever ends that
        wakes the engine too."""
        has_more = settings.heartbeat is None or self._pace.owed > 0
        start = self._pace.next_start(settings.spawn_delay) if has_more else None
        moments = (start, self._pace.next_tick(settings.heartbeat, now))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def choose(self, work: Work, *, is_left: bool) -> Plan:
        """What may start in this turn. A tick decides on all that it is good for, in one plan (`work.planned`)."""
        settings = work.settings
        self._pace = self._pace.as_of(work.now)
        tick = work.tick or self._own_tick(work, is_left=is_left)
        most = settings.batch_size if settings.heartbeat is None else self._pace.owed
        planned = None
        if tick is not None:
            planned = work.planned = choose_all(
                work.session, settings.limits, tick.batch, holds=work.holds, is_left=is_left
            )  # fmt: skip
            most = len(planned.claims)
            if settings.heartbeat is not None:
                self._pace = msgspec.structs.replace(self._pace, owed=most)
        if settings.spawn_delay:
            most = self._spaced(settings, work.now, most)
        if planned is not None and most == len(planned.claims):
            chosen = planned
        else:
            chosen = choose(work.session, settings.limits, most, holds=work.holds, is_left=is_left)
        if chosen.bound_by == "batch" and (settings.heartbeat is not None or settings.spawn_delay):
            return msgspec.structs.replace(chosen, is_cut_short=False)  # the rest has its own time
        return chosen

    def _spaced(self, settings: Settings, now: datetime, most: int | None) -> int:
        start = self._pace.next_start(settings.spawn_delay)
        return 0 if start is not None and start > now else min(1, 1 if most is None else most)

    def _own_tick(self, work: Work, *, is_left: bool) -> Tick | None:
        """While jobs are owed a look it is too early to say which are the first."""
        settings, due = work.settings, self._pace.next_tick(work.settings.heartbeat, work.now)
        if due is None or due > work.now or is_left:
            return None
        self._pace = msgspec.structs.replace(self._pace, last_tick=work.now)
        return Tick(batch=batch_of(settings.batch_size, settings.heartbeat))

    def book_taken(self, now: datetime) -> None:
        """The executor has started something by itself."""
        self._pace = msgspec.structs.replace(self._pace, last_start=now)

    def book(self, work: Work, started: int) -> None:
        """So many start in this turn."""
        if started:
            owed = max(0, self._pace.owed - started)
            self._pace = msgspec.structs.replace(self._pace, last_start=work.now, owed=owed)
            if self._pace.last_tick == work.now:  # a tick that starts nothing is not worth a write
                work.session.set_meta(LAST_TICK, str(to_stored(work.now)))
        if self._pace.owed != self._kept.owed:
            work.session.set_meta(OWED, str(self._pace.owed))
