"""What follows when a job cannot be started, and when the runs of one kind keep failing.

A start that failed is tried again after a short while, and not for ever. Its count stands on the job, so that neither
a restart nor a new session resets it.

A breaker stands over all jobs of one type (`type/x`) or one target (`target/y`), whether or not there is a pool of
that name:

    closed ──`failures` within `window`──▶ open ──`cool_down`──▶ half-open ──the probe completed──▶ closed
                                             ▲                    │     ▲ │
                                             └──the probe failed──┘     └─┘ the probe told nothing: another may try

Open, it holds its jobs; half-open, it lets one through and holds the others until that one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec

from rota.core.run import CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT, Conclusion
from rota.core.status import Status
from rota.ids import JobId

CIRCUIT_BROKEN = "circuit-broken"
KEY_KINDS = ("type", "target")

_FIRST_DELAY = timedelta(seconds=1)
_LONGEST_DELAY = timedelta(minutes=1)
_NOBODYS_FAULT = frozenset({CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT})


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`[breaker]`, as decisions need it."""

    dispatch_failures: int = 3
    """A job is given up when its start has failed so often in a row."""
    failures: int | None = 20
    """Failed runs of one key within the window that open its breaker; none for no breakers at all."""
    window: timedelta = timedelta(minutes=10)
    cool_down: timedelta = timedelta(minutes=10)


def again_after(failures: int, most: int) -> timedelta | None:
    """How long to wait after so many failed starts in a row, each time twice as long; none when it is enough."""
    if failures >= most:
        return None
    return min(_FIRST_DELAY * (1 << min(failures - 1, 16)), _LONGEST_DELAY)


class Closed(msgspec.Struct, frozen=True):
    """Nothing is held."""


class Open(msgspec.Struct, frozen=True):
    """All is held."""

    until: datetime


class HalfOpen(msgspec.Struct, frozen=True):
    """The next may try."""


class Probed(msgspec.Struct, frozen=True):
    """Half-open, and one tries: all others are held until it has ended."""

    by: JobId


State = Closed | Open | HalfOpen | Probed
CLOSED, HALF_OPEN = Closed(), HalfOpen()


class Told(Enum):
    """What the end of a run says of its type and target."""

    GOOD = auto()
    BAD = auto()
    NOTHING = auto()


def told_by(end: Conclusion) -> Told:
    """A run that somebody cancelled, that was not needed, or whose end nobody saw, tells nothing of its kind."""
    if end.status is Status.COMPLETED:
        return Told.GOOD
    return Told.BAD if end.status is Status.FAILED and end.reason not in _NOBODYS_FAULT else Told.NOTHING


def after_end(state: State, job: JobId, told: Told, *, recent: int, policy: BreakerPolicy, now: datetime) -> State:
    """`recent` is how many runs of the key failed within the window, this one included. While it is not closed only
    the probe decides: what was started before has nothing new to say."""
    if policy.failures is None:
        return CLOSED
    if state == Probed(job):
        if told is Told.BAD:
            return Open(now + policy.cool_down)
        return CLOSED if told is Told.GOOD else HALF_OPEN
    if isinstance(state, Closed) and told is Told.BAD and recent >= policy.failures:
        return Open(now + policy.cool_down)
    return state


def after_while(state: State, policy: BreakerPolicy, now: datetime) -> State:
    """What time alone, or a change of the configuration, has made of it."""
    if policy.failures is None:
        return CLOSED
    return HALF_OPEN if isinstance(state, Open) and state.until <= now else state


def keys_of(type_: str | None, target: str | None) -> tuple[str, ...]:
    """The breakers a job stands under."""
    return tuple(f"{kind}/{name}" for kind, name in zip(KEY_KINDS, (type_, target), strict=True) if name)


class Breakers(msgspec.Struct, frozen=True):
    """Those that are not closed: few, and most often none."""

    states: Mapping[str, Open | HalfOpen | Probed] = {}

    def holding(self, keys: tuple[str, ...]) -> tuple[str, Open | Probed] | None:
        """The first of these that holds its jobs."""
        for key in keys:
            state = self.states.get(key)
            if isinstance(state, (Open, Probed)):
                return key, state
        return None

    def awaiting(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these that wait for a job to try."""
        return tuple(key for key in keys if isinstance(self.states.get(key), HalfOpen))

    @property
    def untried(self) -> tuple[str, ...]:
        """All that wait for a job to try."""
        return self.awaiting(tuple(self.states))

    def probed(self, keys: tuple[str, ...], job: JobId) -> Breakers:
        return Breakers({**self.states, **dict.fromkeys(keys, Probed(job))})

    def next_due(self, policy: BreakerPolicy, now: datetime) -> datetime | None:
        """When `after_while` will have something to say."""
        if policy.failures is None:
            return now if self.states else None
        return min((state.until for state in self.states.values() if isinstance(state, Open)), default=None)
