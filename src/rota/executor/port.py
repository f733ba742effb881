"""Executor port. It consists of messages, so that a remote executor fits it as well as the local one.

The scheduler sends an `ExecutorOrder`, the executor sends an `ExecutorMessage`. A `RunInventory` is the first message
of each connection. An `ExitReport` is repeated on every new connection until it is acknowledged, and the scheduler
acknowledges it only after its commit: an exit can be reported twice but never be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from rota.errors import ServiceUnavailable
from rota.ids import JobId, RunId

EndedBy = Literal["stop", "timeout", "idle_timeout"]


class StartOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Start this run. Sent only after the claim is on disk."""

    run: RunId
    job: JobId
    """Id of the job. For a reservation its negated number, as in the lock queues."""
    argv: Sequence[str]
    cwd: str
    environment_id: int
    """Id of the variables that an earlier `EnvironmentUpload` on this connection sent."""
    overlay: Mapping[str, str]
    """Variables set on top of the environment: ROTA_HOME, ROTA_JOB, ROTA_RUN, …"""
    directory: str
    """The job's directory, created if missing. It holds stdout.log and stderr.log."""
    timeout: float | None = None
    idle_timeout: float | None = None
    kill_after: float = 5.0
    skip_if: str | None = None
    workspace: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Parameters of the children that set up and finish the workspace (`worktrees/record.py`)."""
    superseded_run: RunId | msgspec.UnsetType = msgspec.UNSET
    """An earlier run of this job. Its files are moved aside before any file is opened (`job_files.py`)."""
    is_trial: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether this start shows if the machine and the home are usable again. It fails if any directory of the home that
    a start needs is unusable, whatever this start needs itself."""


class EnvironmentUpload(msgspec.Struct, frozen=True, kw_only=True):
    """Environment variables that many runs share, sent once per connection."""

    environment_id: int
    variables: Mapping[str, str]


class StopOrder(msgspec.Struct, frozen=True, kw_only=True):
    """End the whole process tree of this run: TERM, then KILL after `kill_after`."""

    run: RunId
    kill_after: float | None = None
    """None keeps the value of the `StartOrder`."""


class SignalOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Send this signal to the main process and its process group."""

    run: RunId
    number: int


class PrefetchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Queue runs to start without a further order, as long as every run that ends succeeds.

    Whenever fewer than `max_running` runs are live, the executor starts the first of them and reports it with a
    `PrefetchStart`. The runs are appended to those of the same series that were sent before. Sent only after the
    prefetch is on disk.
    """

    series: int
    """A series ends with its `WithdrawConfirmation`; runs sent for it after that are ignored."""
    max_running: int
    starts: Sequence[StartOrder]
    known_runs: Sequence[RunId] = ()
    """The running runs the scheduler knows of. If one of them has ended without success, the order was decided without
    that knowledge, and the series ends at once."""


class WithdrawOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Start no more runs of this series. Confirmed by a `WithdrawConfirmation`."""

    series: int


class PingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Request a `Pong`. Sent when the executor has been silent for a while."""


class AcknowledgeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Confirm that the exit of this run is committed; the executor may forget the run."""

    run: RunId


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of one run at the start of a connection: live, about to start, or ended."""

    run: RunId
    pid: int | None
    start_time: int | None = None
    has_ended: bool = False
    """Whether the run has ended; its `ExitReport` or `StartFailure` follows."""
    is_lost: bool = False
    """Whether the process ended unobserved, so that its exit status cannot be known."""


class RunInventory(msgspec.Struct, frozen=True, kw_only=True):
    """Every run the executor knows at the start of a connection. A run that is missing was never started."""

    runs: Sequence[RunReport]


class StartConfirmation(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that the child exists. `start_time` is field 22 of its /proc stat: together with the boot id it
    identifies the process permanently."""

    run: RunId
    pid: int
    start_time: int


class StartFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Failure to create the child: program missing or not executable, directory missing, process limit reached."""

    run: RunId
    error: str
    is_machine_failure: bool = False
    """Whether the machine is at fault and not the job: no disk space, memory or descriptors. Does not count against the
    job."""


class ExitReport(msgspec.Struct, frozen=True, kw_only=True):
    """End of the main process, sent when no process of its tree is left."""

    run: RunId
    at: float
    """Wall-clock time at which the main process ended, in seconds since the epoch."""
    code: int | None = None
    """Exit code. None if a signal ended the process or the code is unknown."""
    signal: int | None = None
    ended_by: EndedBy | None = None
    skip_reason: str | None = None
    """First line of output of `skip_if`, possibly empty, if it exited with 0."""
    is_observed: bool = True
    """Whether the supervisor observed the exit; false if the process was gone before the supervisor started."""
    is_verified: bool = True
    """Whether no process of the tree can be left. False if the supervisor that started the run was replaced and the run
    had no cgroup: a process that left its session and its environment is not found then."""
    tail: str = ""
    """The end of stderr if the run did not succeed."""
    workspace_error: str = ""
    """Failure to finish the workspace afterward. It does not change the result of the run."""


class StartRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Refusal of a `StartOrder` that is invalid or repeats a known run; nothing was started."""

    run: RunId
    error: str


class PrefetchStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start of the next prefetched run, in the capacity that an ended run freed. Its own `StartConfirmation`,
    `StartFailure` and `ExitReport` follow."""

    run: RunId
    at: float
    """Wall-clock time in seconds since the epoch."""


class WithdrawConfirmation(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmation that no more runs of this series are started: the scheduler withdrew it, or something other than a
    success happened."""

    series: int


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a `PingOrder`."""


class ExecutorFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Condition that keeps the executor from reporting exits; the error is None when it is over."""

    error: str | None


class ConnectionLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Loss of the connection. A `RunInventory` follows once there is a new connection."""

    reason: str


ExecutorMessage = (
    RunInventory
    | StartConfirmation
    | StartFailure
    | ExitReport
    | StartRefusal
    | PrefetchStart
    | WithdrawConfirmation
    | Pong
    | ExecutorFailure
    | ConnectionLoss
)
ExecutorOrder = (
    EnvironmentUpload
    | StartOrder
    | PrefetchOrder
    | WithdrawOrder
    | StopOrder
    | SignalOrder
    | PingOrder
    | AcknowledgeOrder
)


class ExecutorNotAnswering(ServiceUnavailable):
    """Error raised when the executor exists but does not answer."""


def silence_advice(pid: int) -> str:
    return (
        f"`kill -CONT {pid}` resumes a stopped supervisor, `kill -9 {pid}` replaces it; then running jobs continue,"
        " but their exit status stays unknown"
    )


class Executor(Protocol):
    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        """Send orders, in order. Never blocks; a broken connection shows up later as a `ConnectionLoss`."""
        ...

    def receive(self) -> list[ExecutorMessage]:
        """Return the messages received since the last call; an empty list if there are none. Raises ServiceUnavailable
        if there is no executor, and ExecutorNotAnswering if it does not answer."""
        ...

    def withdraw(self, series: int, timeout: float) -> None:
        """Send a `WithdrawOrder` and wait up to `timeout` seconds for its confirmation. The next `receive` returns it,
        after every start that preceded it. Also returns if the connection breaks."""
        ...

    @property
    def supports_prefetch(self) -> bool:
        """Whether it accepts a `PrefetchOrder`."""
        ...

    @property
    def supervisor_pid(self) -> int:
        """Pid of the process that executes the orders, for messages."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` would return something; -1 while there is no
        connection."""
        ...

    def close(self) -> None: ...
