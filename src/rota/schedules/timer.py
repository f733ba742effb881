"""Schedule timer: a task on the event loop that sleeps until a schedule is due, and fires it.

    find       due schedules, a limited number, and the job of each              (a reader thread)
    prepare    the probes that precede any submit                                (threads)
    fire       one operation per schedule; operations that arrive together share a turn      (`schedules/fire.py`)

The timer stores nothing: due times are in the store, so a crash at any point leaves either a complete fire or none. If
the store is full or unavailable, the timer tries again, and times that are late by then are caught up according to the
schedule. Each schedule is prepared by itself, so a slow probe does not delay the others.

The wall clock can be set, and a machine can sleep, so the timer checks once a minute while any schedule has a next
time. If the clock is set back, schedules wait for a time that is far in the future. Their times are corrected at once,
and also at the start, because the clock may have been set while no scheduler was running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from rota.clock import SET_BACK_THRESHOLD, Clock
from rota.engine.calls import ReadStore, RunInTurnAsync
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import ScheduleId
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.kernel.job import WorkspaceSpec
from rota.schedules.fire import DueSchedule, correct_next_fire, find_due_schedules, find_misplaced_schedules, fire

log = logging.getLogger("rota.schedule")

PAGE_SIZE = 100
"""Maximum number of schedules that fire together. The engine does other work between two pages."""
MAX_SLEEP_SECONDS = 60.0
RETRY_DELAY = 1.0
_FIRE_TIMEOUT = 0.5
"""Seconds that due schedules wait for each other before the next ones are read."""


RunPreflight = Callable[[Sequence[Submission]], Awaitable[tuple[Preflight, Sequence[WorkspaceSpec | None]]]]


class ScheduleTimer:
    def __init__(
        self,
        *,
        clock: Clock,
        read: ReadStore,
        run_in_turn: RunInTurnAsync,
        run_preflight: RunPreflight,
        default_environment: DefaultEnvironment,
        changed: asyncio.Event,
    ) -> None:
        """Create a timer. `run_preflight` runs the probes that precede the submit of a job. `changed` is set when a
        schedule may have become due at a different time."""
        self._clock = clock
        self._read = read
        self._run_in_turn = run_in_turn
        self._run_preflight = run_preflight
        self._default_environment = default_environment
        self._changed = changed
        self._due_since: datetime | None = None
        """Time since which a schedule is due; None if none is."""
        self._clock_offset: float | None = None
        """Difference between the wall clock and the monotonic clock at the last check."""
        self._is_failing = False
        self._in_progress: dict[ScheduleId, asyncio.Task[None]] = {}
        """Schedules that are being fired. They are still due, but must not be fired again."""

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            for task in self._in_progress.values():
                task.cancel()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                seconds = await self.fire_due()
                self._is_failing = False
            except Exception as error:  # noqa: BLE001 - the failure is logged, and the task continues
                seconds = self._handle_failure(error)
            if seconds is None:
                await self._changed.wait()
            elif seconds > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._changed.wait()

    def _handle_failure(self, error: Exception) -> float:
        """Log the first of consecutive failures, and return the delay before the next attempt."""
        if not self._is_failing:
            is_expected = isinstance(error, RotaError)
            prefix = "" if is_expected else "internal error: "
            log.error("%scannot fire schedules, retrying: %s", prefix, error, exc_info=None if is_expected else error)
        self._is_failing = True
        self._due_since = None  # times that are due at the next attempt count as late
        return RETRY_DELAY

    async def fire_due(self) -> float | None:
        """Fire some of the due schedules, and return the seconds until the next ones; None for never."""
        now = self._clock.now()
        await self._check_clock(now)
        noticed_at = self._due_since = self._due_since or now
        limit = PAGE_SIZE + len(self._in_progress)
        due = await self._read(partial(find_due_schedules, now=now, noticed_at=noticed_at, limit=limit))
        due = [due_schedule for due_schedule in due if due_schedule.schedule.id not in self._in_progress]
        if due:
            await self._fire_all(due)
            return 0.0
        self._due_since = None
        if self._in_progress:
            await self._wait_for_tasks(self._in_progress.values(), RETRY_DELAY, asyncio.FIRST_COMPLETED)
            return 0.0
        first = await self._read(lambda reader: reader.schedules.first_due())
        return (
            None if first is None else min(max((first[2] - self._clock.now()).total_seconds(), 0.0), MAX_SLEEP_SECONDS)
        )

    async def _fire_all(self, due_schedules: Sequence[DueSchedule]) -> None:
        """Fire schedules together. One that is not ready in time fires later."""
        started = {due.schedule.id: asyncio.ensure_future(self._fire_one(due)) for due in due_schedules}
        self._in_progress |= started
        await self._wait_for_tasks(started.values(), _FIRE_TIMEOUT, asyncio.ALL_COMPLETED)

    async def _wait_for_tasks(self, tasks: Iterable[asyncio.Task[None]], max_wait: float, return_when: str) -> None:
        """Wait for tasks, and raise the first failure."""
        done, _ = await asyncio.wait(tasks, timeout=max_wait, return_when=return_when)
        self._in_progress = {schedule: task for schedule, task in self._in_progress.items() if task not in done}
        failures = [error for task in done if not task.cancelled() and (error := task.exception()) is not None]
        if failures:
            raise failures[0]

    async def _fire_one(self, due_schedule: DueSchedule) -> None:
        prepared, preflight, workspace = await self._prepare(due_schedule)
        operation = partial(
            fire,
            due_schedule=prepared,
            default_environment=self._default_environment,
            preflight=preflight,
            workspace=workspace,
        )
        await self._run_in_turn(operation)

    async def _prepare(self, due_schedule: DueSchedule) -> tuple[DueSchedule, Preflight, WorkspaceSpec | None]:
        """Run the probes for the job of a schedule. A refusal becomes a failed fire with a reason."""
        if due_schedule.job is None:
            return due_schedule, EMPTY_PREFLIGHT, None
        try:
            preflight, workspaces = await self._run_preflight([due_schedule.job])
        except (StorageFull, StoreError):
            raise
        except RotaError as error:
            failed = DueSchedule(schedule=due_schedule.schedule, step=due_schedule.step, refusal=error.message)
            return failed, EMPTY_PREFLIGHT, None
        return due_schedule, preflight, workspaces[0] if workspaces else None

    async def _check_clock(self, now: datetime) -> None:
        previous, self._clock_offset = self._clock_offset, now.timestamp() - self._clock.monotonic()
        if previous is not None and self._clock_offset > previous - SET_BACK_THRESHOLD:
            return
        set_back = timedelta(seconds=0 if previous is None else previous - self._clock_offset)
        try:
            await self._correct_schedules(now, set_back)
        except BaseException:
            self._clock_offset = previous
            raise

    async def _correct_schedules(self, now: datetime, set_back: timedelta) -> None:
        after: int | None = 0
        while after is not None:
            misplaced, after = await self._read(
                partial(find_misplaced_schedules, now=now, set_back=set_back, after=after, limit=PAGE_SIZE)
            )
            for schedule in misplaced:
                await self._run_in_turn(partial(correct_next_fire, schedule=schedule, set_back=set_back))
        if self._due_since is not None:
            self._due_since = min(self._due_since, now)
