"""Failed starts, and circuit breakers for runs of one kind that keep failing.

A failed start is retried after a delay, a limited number of times. The count is stored with the job, so a restart of
the scheduler does not reset it.

A breaker covers all jobs of one type (`type/x`) or one target (`target/y`), whether or not a pool of that name exists:

    closed ──`failures` within `window`──▶ open ──`cool_down`──▶ half-open ──the probe completed──▶ closed
                                             ▲                    │     ▲ │
                                             └──the probe failed──┘     └─┘ the probe was inconclusive: try another

An open breaker holds its jobs. A half-open breaker lets one job through, the probe, and holds the others until the
probe has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec

from rota.ids import JobId
from rota.kernel.run import CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT, RunResult
from rota.kernel.status import Status

CIRCUIT_BROKEN = "circuit-broken"
KEY_KINDS = ("type", "target")

_NEUTRAL_REASONS = frozenset({CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT})


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The `[breaker]` configuration."""

    dispatch_failures: int = 3
    """Failed starts in a row after which the job FAILS."""
    start_delays: tuple[timedelta, ...] = (timedelta(seconds=30), timedelta(minutes=5))
    """Delay after the first failed start, the second, and so on; the last delay repeats."""
    failures: int | None = 20
    """Failed runs of one key within the window that open its breaker; `None` disables breakers."""
    window: timedelta = timedelta(minutes=10)
    cool_down: timedelta = timedelta(minutes=10)

    def start_delay(self, failures: int) -> timedelta | None:
        """Return the delay after this number of failed starts in a row, or `None` if the job is not started again."""
        if failures >= self.dispatch_failures:
            return None
        return self.start_delays[min(failures, len(self.start_delays)) - 1]


class ClosedState(msgspec.Struct, frozen=True):
    """State in which no job is held."""


class OpenState(msgspec.Struct, frozen=True):
    """State in which all jobs are held."""

    until: datetime


class HalfOpenState(msgspec.Struct, frozen=True):
    """State in which the next job becomes the probe."""


class ProbingState(msgspec.Struct, frozen=True):
    """Half-open state with a running probe: all other jobs are held until it has ended."""

    job: JobId


BreakerState = ClosedState | OpenState | HalfOpenState | ProbingState
CLOSED, HALF_OPEN = ClosedState(), HalfOpenState()


class RunSignal(Enum):
    """Evidence that a finished run gives about its type and target."""

    SUCCESS = auto()
    FAILURE = auto()
    NEUTRAL = auto()


def signal_of(result: RunResult) -> RunSignal:
    """Return the signal of a run. A run that was cancelled, skipped or interrupted is neutral."""
    if result.status is Status.COMPLETED:
        return RunSignal.SUCCESS
    return (
        RunSignal.FAILURE
        if result.status is Status.FAILED and result.reason not in _NEUTRAL_REASONS
        else RunSignal.NEUTRAL
    )


def state_after_run(
    state: BreakerState, job: JobId, signal: RunSignal, *, recent_failures: int, policy: BreakerPolicy, now: datetime
) -> BreakerState:
    """Return the state after a run of the key.

    `recent_failures` counts failed runs of the key within the window, including this run. Unless the breaker is closed,
    only the probe changes the state: other runs started before the breaker opened.
    """
    if policy.failures is None:
        return CLOSED
    if state == ProbingState(job):
        if signal is RunSignal.FAILURE:
            return OpenState(now + policy.cool_down)
        return CLOSED if signal is RunSignal.SUCCESS else HALF_OPEN
    if isinstance(state, ClosedState) and signal is RunSignal.FAILURE and recent_failures >= policy.failures:
        return OpenState(now + policy.cool_down)
    return state


def state_after_time(state: BreakerState, policy: BreakerPolicy, now: datetime) -> BreakerState:
    """Return the state after time has passed or the configuration has changed."""
    if policy.failures is None:
        return CLOSED
    return HALF_OPEN if isinstance(state, OpenState) and state.until <= now else state


def breaker_keys(type_: str | None, target: str | None) -> tuple[str, ...]:
    """Return the keys of the breakers that cover a job."""
    return tuple(f"{kind}/{name}" for kind, name in zip(KEY_KINDS, (type_, target), strict=True) if name)


class BreakerStates(msgspec.Struct, frozen=True):
    """States of the breakers that are not closed; usually empty."""

    states: Mapping[str, OpenState | HalfOpenState | ProbingState] = {}

    def find_holding(self, keys: tuple[str, ...]) -> tuple[str, OpenState | ProbingState] | None:
        """Return the first of these breakers that holds its jobs."""
        for key in keys:
            state = self.states.get(key)
            if isinstance(state, (OpenState, ProbingState)):
                return key, state
        return None

    def find_half_open(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the given breakers that wait for a probe."""
        return tuple(key for key in keys if isinstance(self.states.get(key), HalfOpenState))

    @property
    def half_open_keys(self) -> tuple[str, ...]:
        """All breakers that wait for a probe."""
        return self.find_half_open(tuple(self.states))

    def with_probe(self, keys: tuple[str, ...], job: JobId) -> BreakerStates:
        return BreakerStates({**self.states, **dict.fromkeys(keys, ProbingState(job))})

    def next_transition(self, policy: BreakerPolicy, now: datetime) -> datetime | None:
        """Return when `state_after_time` will next change a state."""
        if policy.failures is None:
            return now if self.states else None
        return min((state.until for state in self.states.values() if isinstance(state, OpenState)), default=None)
