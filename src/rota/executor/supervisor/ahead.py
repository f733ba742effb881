"""What comes next, given before there is room for it, so that nothing lies between the end of a run and the next start
but this process: no hop to the scheduler and back, and no commit of its.

    ahead ──► waiting ──► fewer than `width` live: taken, then started as by an order
                 │
                 └──► anything happens but a success, or withdraw: dropped, withdrawn

Nothing is decided here. The scheduler has said, and committed, what follows if all goes well; as soon as something does
not, what should follow is its to say again. That is a series: it ends once and for all, and what was still under way of
it is not for anybody. So the scheduler knows from the stream alone which of its orders were carried out, and in which
order: each that was is told as taken, right behind the end that made room for it.

None of this is written down. Who takes over, the next scheduler or the next supervisor, finds what was taken among the
runs, and the rest was never begun.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rota.executor.supervisor import field, protocol
from rota.executor.supervisor.run import Run

TYPE_CHECKING = False  # the typing module would cost half a megabyte
if TYPE_CHECKING:
    from typing import Any, Protocol

    Fields = dict[str, Any]
    Surroundings = dict[str, str] | None
    Start = Callable[[Fields, Surroundings], bool]

    class Tell(Protocol):
        def __call__(self, line: bytes, within: float = 0.0) -> None: ...


_NONE_SEEN = -1
HOLD = 0.01
"""Seconds that an end may wait for company whose place is taken already: several cost the scheduler one commit."""


class Ahead:
    def __init__(self, runs: dict[int, Run], live: set[int], start: Start, tell: Tell) -> None:
        self._runs = runs
        self._live = live
        self._start = start
        self._tell = tell
        self._waiting: deque[tuple[Fields, Surroundings]] = deque()
        self._width = 0
        self._series: int | None = None
        """The one that is open. It may be so with nothing waiting: more of it may come."""
        self._newest = _NONE_SEEN
        self.has_mail: Callable[[], bool] = bool
        """Whether the scheduler has said something that is not read; who reads it says how to know."""

    @property
    def is_waiting(self) -> bool:
        """Something has been given and there was no room for it yet."""
        return bool(self._waiting)

    def give(self, order: Fields, surroundings: dict[int, dict[str, str]]) -> None:
        """All of it or nothing. It opens its series even so: whoever refuses it ends that, and it is known which."""
        if not self._is_open(field.whole(order, "series")):
            return
        width, starts = field.whole(order, "width"), field.starts(order)
        if not all(map(self._goes_well, field.wholes(order, "runs"))):
            self.end()
            return
        given = [(start, surroundings.get(start["surroundings"])) for start in starts]
        self._width = width
        self._waiting.extend(given)
        self.go_on()

    def _goes_well(self, number: int) -> bool:
        """So far, or to its end. Of one that has not, the scheduler had not heard when it decided."""
        run = self._runs.get(number)
        return run is not None and (number in self._live or run.is_good)

    def _is_open(self, series: int) -> bool:
        """Or is now, since it is newer than all before. One that is over stays so: this was under way when it ended."""
        if series > self._newest:
            self._waiting.clear()
            self._series = self._newest = series
        return series == self._series

    def tell_end(self, end: bytes, *, is_good: bool) -> None:
        """And let what was to follow do so."""
        goes_on = self._series is not None and is_good
        self._tell(end, HOLD if goes_on and self._waiting else 0.0)
        if goes_on:
            self.go_on()
        else:
            self.end()

    def go_on(self) -> None:
        """Not before all that the scheduler has said is read: it may want it back, and after a while it does not wait
        for the answer. It hears of it at once when nothing is left to be taken."""
        while self._waiting and len(self._live) < self._width and not self.has_mail():
            order, surroundings = self._waiting.popleft()
            line = protocol.plain("taken", run=order["run"], at=time.time())
            self._tell(line, HOLD if self._waiting else 0.0)
            if not self._start(order, surroundings):
                self._tell(protocol.refusal(protocol.KNOWN, {"type": "start", "run": order["run"]}))
                self.end()

    def end(self) -> None:
        """Something has happened that the scheduler did not reckon with, so what follows is not what it said."""
        series = self._series
        if series is not None:
            self._close()
            self._tell_withdrawn(series)

    def withdraw(self, series: int) -> None:
        """It is answered in any case: somebody waits for that."""
        self._newest = max(self._newest, series)
        if series == self._series:
            self._close()
        self._tell_withdrawn(series)

    def forget(self) -> None:
        """Whoever gave it is gone, and whoever comes next counts anew."""
        self._close()
        self._newest = _NONE_SEEN

    def _close(self) -> None:
        self._waiting.clear()
        self._series = None

    def _tell_withdrawn(self, series: int) -> None:
        self._tell(protocol.line(type="withdrawn", series=series))
