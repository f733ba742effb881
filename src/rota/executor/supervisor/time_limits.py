"""Enforcement of `timeout` and `idle_timeout` in the supervisor, so that they hold while no scheduler is connected.

A run is idle while none of its log files grows. The files are checked when the run could have been idle for long
enough, not earlier. If one has grown, its modification time tells from when to count, so an idle run is detected within
its `idle_timeout` and not within twice that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rota.executor.supervisor import log_files
from rota.executor.supervisor.event_loop import EventLoop
from rota.executor.supervisor.run import SupervisedRun


class TimeLimits:
    def __init__(self, loop: EventLoop, on_expired: Callable[[SupervisedRun, str], None]) -> None:
        self._loop = loop
        self._on_expired = on_expired

    def arm(self, run: SupervisedRun, *, has_output: bool = True) -> None:
        """Start the limits of a run. Called for each process; the main process gets the time that earlier ones left.
        Output is watched from the first step that can produce some."""
        if run.deadline is not None and not run.is_timeout_armed:
            run.is_timeout_armed = True
            run.timers.append(self._loop.call_at(run.deadline, lambda: self._on_expired(run, "timeout")))
        if run.idle_timeout is not None and has_output and not run.idle_checked_at:
            run.log_sizes, _ = log_files.measure_growth(run.directory)
            run.idle_checked_at = time.monotonic()
            self._schedule_idle_check(run, run.idle_checked_at + run.idle_timeout, run.idle_timeout)

    def disarm(self, run: SupervisedRun) -> None:
        for timer in run.timers:
            timer.cancel()
        run.timers.clear()

    def _schedule_idle_check(self, run: SupervisedRun, when: float, idle_timeout: float) -> None:
        run.timers.append(self._loop.call_at(when, lambda: self._check_idle(run, idle_timeout)))

    def _check_idle(self, run: SupervisedRun, idle_timeout: float) -> None:
        sizes, changed_at = log_files.measure_growth(run.directory)
        if sizes == run.log_sizes:
            self._on_expired(run, "idle_timeout")
            return
        run.log_sizes = sizes
        now = time.monotonic()
        # The files carry wall-clock time, which may be set: it is trusted only as far as it is plausible.
        age = min(max(time.time() - changed_at, 0.0), now - run.idle_checked_at)
        run.idle_checked_at = now
        run.timers = [timer for timer in run.timers if timer.action is not None]
        self._schedule_idle_check(run, now - age + idle_timeout, idle_timeout)
