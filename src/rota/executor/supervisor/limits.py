"""`timeout` and `idle_timeout`: enforced here, so that they hold while no scheduler is there.

Idle means that none of the log files grew. They are looked at when the run could be idle for long enough, not
before; if one grew meanwhile, its time of change says from when to count, so a run is found within the
length of its `idle_timeout` and not twice that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rota.executor.supervisor import logs
from rota.executor.supervisor.loop import Loop
from rota.executor.supervisor.run import Run


class Limits:
    def __init__(self, loop: Loop, end: Callable[[Run, str], None]) -> None:
        self._loop = loop
        self._end = end

    def arm(self, run: Run, *, has_output: bool = True) -> None:
        """Once for each run: the main process has what those before it left. Its output is watched from when there can
        be some."""
        if run.deadline is not None and not run.is_timed:
            run.is_timed = True
            run.timers.append(self._loop.at(run.deadline, lambda: self._end(run, "timeout")))
        if run.idle_timeout is not None and has_output and not run.looked_at:
            run.sizes, _ = logs.growth(run.directory)
            run.looked_at = time.monotonic()
            self._look_at(run, run.looked_at + run.idle_timeout, run.idle_timeout)

    def disarm(self, run: Run) -> None:
        for timer in run.timers:
            timer.cancel()
        run.timers.clear()

    def _look_at(self, run: Run, when: float, idle_timeout: float) -> None:
        run.timers.append(self._loop.at(when, lambda: self._look(run, idle_timeout)))

    def _look(self, run: Run, idle_timeout: float) -> None:
        sizes, changed = logs.growth(run.directory)
        if sizes == run.sizes:
            self._end(run, "idle_timeout")
            return
        run.sizes = sizes
        now = time.monotonic()
        # The files carry wall time, which may be set: it is believed only as far as it can be true.
        age = min(max(time.time() - changed, 0.0), now - run.looked_at)
        run.looked_at = now
        run.timers = [timer for timer in run.timers if timer.action is not None]
        self._look_at(run, now - age + idle_timeout, idle_timeout)
