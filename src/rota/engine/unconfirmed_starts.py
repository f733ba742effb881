"""Starts that the executor has not confirmed yet.

A start that is not confirmed within `start_timeout` is late. The order remains valid: an executor that answers again
executes it, and that counts as a start. Only the executor knows that a run never began, so only its report returns the
job to the queue. Times are on the monotonic clock, and in memory: a new connection reports every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rota.ids import RunId


class UnconfirmedStarts:
    def __init__(self) -> None:
        self._ordered_at: dict[RunId, float] = {}
        """Time of each start order."""
        self._newest_confirmed_at = -math.inf
        """Order time of the newest start that the executor has confirmed."""
        self.late_at_disconnect: frozenset[RunId] = frozenset()
        """Starts that the executor had left unconfirmed for too long when the connection ended."""
        self.was_silent_on_connect = False
        """Whether the executor was silent on connect: then starts that are late by the store count as late, too."""

    def copy(self) -> UnconfirmedStarts:
        copied = UnconfirmedStarts()
        copied._ordered_at, copied._newest_confirmed_at = dict(self._ordered_at), self._newest_confirmed_at
        copied.late_at_disconnect, copied.was_silent_on_connect = self.late_at_disconnect, self.was_silent_on_connect
        return copied

    def end_connection(self, late: Iterable[RunId]) -> None:
        """Forget all orders, except which starts were late: the next inventory shows their state."""
        self._ordered_at.clear()
        self._newest_confirmed_at = -math.inf
        self.late_at_disconnect |= frozenset(late)

    def expect(self, runs: Iterable[RunId], now: float) -> None:
        self._ordered_at.update(dict.fromkeys(runs, now))

    def confirm(self, run: RunId) -> None:
        ordered = self._ordered_at.pop(run, None)
        if ordered is not None:
            self._newest_confirmed_at = max(self._newest_confirmed_at, ordered)

    def late_starts(self, now: float, timeout: float) -> Sequence[RunId]:
        """Return the late starts, oldest first."""
        return [run for run, ordered in self._ordered_at.items() if ordered + timeout <= now]

    @property
    def runs(self) -> Sequence[RunId]:
        return list(self._ordered_at)

    def ordered_at(self, run: RunId) -> float:
        return self._ordered_at[run]

    def is_stuck_alone(self, run: RunId) -> bool:
        """Return whether the executor has confirmed a start that was ordered at the same time or later."""
        return self._ordered_at[run] <= self._newest_confirmed_at

    def next_deadline(self, now: float, timeout: float) -> float | None:
        """Return the time at which the next start becomes late."""
        due = (ordered + timeout for ordered in self._ordered_at.values())
        return min((moment for moment in due if moment > now), default=None)
