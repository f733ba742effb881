"""Starts that nobody has confirmed yet.

A start that is not confirmed within `start_timeout` is called back; when its end comes it counts as a failed
dispatch, also if a confirmation crosses the call. All on the monotonic clock, and in memory: a new connection to
the executor accounts for every run anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.ids import RunId


class AwaitedStarts:
    def __init__(self) -> None:
        self._deadlines: dict[RunId, float] = {}
        self._called_back: set[RunId] = set()

    def copy(self) -> AwaitedStarts:
        copied = AwaitedStarts()
        copied._deadlines, copied._called_back = dict(self._deadlines), set(self._called_back)
        return copied

    def forget(self) -> None:
        self._deadlines.clear()
        self._called_back.clear()

    def expect(self, runs: Iterable[RunId], deadline: float) -> None:
        self._deadlines.update(dict.fromkeys(runs, deadline))

    def heard_of(self, run: RunId) -> None:
        self._deadlines.pop(run, None)

    def ended(self, run: RunId) -> None:
        self.heard_of(run)
        self._called_back.discard(run)

    @property
    def next_deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)

    def overdue(self, now: float) -> list[RunId]:
        return [run for run, deadline in self._deadlines.items() if deadline <= now]

    def call_back(self, runs: Iterable[RunId]) -> None:
        for run in runs:
            self._deadlines.pop(run, None)
            self._called_back.add(run)

    def is_called_back(self, run: RunId) -> bool:
        return run in self._called_back
