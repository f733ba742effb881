"""Adjustment of stored due times after the wall clock was set back.

A due time is wall time, so that time passes for it while the scheduler or the machine is off. The delay that it came
from, or the time at which it was set, is stored with it. No due time may be further away than its delay: if the clock
was set back, while the scheduler ran or before it started, the due time moves to now plus the delay.

    set at 10:00 for 10:05 ── clock set back to 9:00 ──▶ 9:05

A delay that is over stays over. A finished job keeps its due time; a rewind, the only way back into the queue, adjusts
it in the same way (`store/sql/rewind.sql`). Times of day (`store/schedule.py`) follow the wall clock and are not
adjusted.
"""

from __future__ import annotations

from datetime import datetime

from rota.store.database import Database
from rota.store.timestamp import to_micros


class DueTimeWriter:
    _db: Database

    def shorten_due_times(self, now: datetime) -> None:
        """Move every due time that is further away than its delay."""
        for statement in (
            "end_delays",
            "shorten_delays",
            "shorten_cool_downs",
            "clamp_failure_times",
            "shorten_delivery_delays",
            "shorten_webhook_holds",
            "shorten_old_secrets",
        ):
            self._db.run(statement, now=to_micros(now))
