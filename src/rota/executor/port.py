"""The executor port is made of messages, so that a remote executor fits it as well as the local one.

The scheduler says `Start`, `Ahead`, `Withdraw`, `Stop`, `Signal`, `Acknowledge`; the executor says `Accounts` (once for
each connection, before anything else), `Started`, `FailedToStart`, `Exited`, `Refused`, `Taken`, `Withdrawn`, `Trouble`
and `Lost`. An `Exited` is repeated on every new connection until it is acknowledged, and the scheduler acknowledges
only after its commit: an end can be told twice and never be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from rota.ids import JobId, RunId

EndedBy = Literal["stop", "timeout", "idle_timeout"]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Start this run. Sent only after the claim is on disk."""

    run: RunId
    job: JobId
    """Of a slot its number negated, as in the queues of locks."""
    argv: Sequence[str]
    cwd: str
    surroundings: int
    """Names a set of environment variables that `Environment` sent before, on this connection."""
    overlay: Mapping[str, str]
    """Variables set on top of the surroundings: ROTA_HOME, ROTA_JOB, ROTA_RUN …"""
    directory: str
    """The job's directory, made if missing; stdout.log and stderr.log are in it."""
    timeout: float | None = None
    idle_timeout: float | None = None
    kill_after: float = 5.0
    skip_if: str | None = None
    workspace: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """For the children that make and finish its workspace (`executor/workspace/order.py`). Since protocol 3."""
    aside: RunId | msgspec.UnsetType = msgspec.UNSET
    """The earlier run of this job whose files are to be aside before any are opened (`leftover.py`)."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Variables that many runs share, told once for each connection."""

    surroundings: int
    variables: Mapping[str, str]


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """End this run's whole tree: TERM, then KILL after `kill_after`."""

    run: RunId
    kill_after: float | None = None
    """None for what its start said."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """Pass this signal on to the main process and its group. Since protocol 4."""

    run: RunId
    number: int


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What comes next, for as long as nothing happens but that runs succeed: whenever fewer than `width` runs live, the
    first of these is started without asking, and `Taken` says so. They stand behind those of the same series that were
    sent before. Sent only after it is on disk. Since protocol 5."""

    series: int
    """A series ends with its `Withdrawn`; what is sent of it after that is not for anybody."""
    width: int
    starts: Sequence[Start]
    runs: Sequence[RunId] = ()
    """What runs, as far as the scheduler has heard. If one of these has ended otherwise than well, this was decided
    without knowing it, and the series is over before it began."""


class Withdraw(msgspec.Struct, frozen=True, kw_only=True):
    """Start nothing more of this series by yourself; `Withdrawn` says that it is so."""

    series: int


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The end of this run is committed; the executor may forget it."""

    run: RunId


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One run that the executor knows: it lives (or is about to be started), or its end follows."""

    run: RunId
    pid: int | None
    start_time: int | None = None
    has_ended: bool = False
    """Its end follows."""
    is_lost: bool = False
    """Nobody saw that end, so how it ended cannot be known."""


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """Every run the executor knows at the start of a connection. A run that is not here was never started."""

    runs: Sequence[Account]


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The child exists. `start_time` is field 22 of its /proc stat: with the boot id it names it for good."""

    run: RunId
    pid: int
    start_time: int


class FailedToStart(msgspec.Struct, frozen=True, kw_only=True):
    """There is no child: program missing, not executable, directory gone, no processes left."""

    run: RunId
    error: str
    is_machine: bool = False
    """The machine's trouble, not the job's: no disk, no memory, no descriptors. It is not held against the job."""


class Exited(msgspec.Struct, frozen=True, kw_only=True):
    """The main process ended and nothing of its tree is left."""

    run: RunId
    at: float
    """Wall time of the main process's end, seconds since the epoch."""
    code: int | None = None
    """Exit code, or none when it was killed or nobody can know."""
    signal: int | None = None
    ended_by: EndedBy | None = None
    skipped: str | None = None
    """Set when `skip_if` exited 0: its first line of output, perhaps empty."""
    watched: bool = True
    """Somebody saw it end; false when it was gone before anybody could look."""
    tail: str = ""
    """The end of stderr, when the run did not succeed."""
    trouble: str = ""
    """What went wrong with its workspace after that; the end is what it is all the same."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The start of this run was not understood, or its number is taken: nothing was started for it."""

    run: RunId
    error: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The next of what was sent ahead is being started, in the room that an end before it has left. Its own `Started`,
    `FailedToStart` and `Exited` follow as of any other."""

    run: RunId
    at: float
    """Wall time, seconds since the epoch."""


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more of this series is started: somebody asked for that, or something else happened than a success."""

    series: int


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the executor from telling what it knows; none when that is over."""

    trouble: str | None


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The connection broke; `Accounts` follows as soon as there is a new one."""

    reason: str


Message = Accounts | Started | FailedToStart | Exited | Refused | Taken | Withdrawn | Trouble | Lost
Order = Environment | Start | Ahead | Withdraw | Stop | Signal | Acknowledge


class Executor(Protocol):
    def send(self, orders: Sequence[Order]) -> None:
        """Pass these on, in order. Never blocks for a child; a broken connection shows as `Lost` later."""
        ...

    def receive(self) -> list[Message]:
        """What has come in since; empty at once when nothing has."""
        ...

    def withdraw(self, series: int, patience: float) -> None:
        """Send `Withdraw` and wait for its `Withdrawn`, so many seconds at most: `receive` has it next, after all that
        was taken before. Returns also when the connection broke."""
        ...

    @property
    def goes_ahead(self) -> bool:
        """Whether it knows `Ahead`."""
        ...

    def fileno(self) -> int:
        """Readable when `receive` would return something; -1 while there is no connection."""
        ...

    def close(self) -> None: ...
