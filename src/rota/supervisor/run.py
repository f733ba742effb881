"""State of one run in the supervisor, in memory and as lines of the journal, and the enforcement of its time limits.

The phases of a run:

    STARTING ──► RUNNING ──► CLEARING ──► ENDED ──► forgotten once acknowledged
        │           ▲            │          ▲
        │           └── next ────┘          │        steps: set up the workspace, `skip_if`, main, finish the workspace
        └───────── failed to start ─────────┘

The supervisor enforces `timeout` and `idle_timeout`, so that they hold while no scheduler is connected. A run is idle
while none of its log files grows. The files are checked when the run could have been idle for long enough, not earlier.
If one has grown, its modification time tells from when to count, so an idle run is detected within its `idle_timeout`
and not within twice that.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from rota.supervisor import log_files, protocol
from rota.supervisor.event_loop import EventLoop, Timer
from rota.supervisor.process import Process
from rota.supervisor.spawn import RunLaunch, RunStep
from rota.supervisor.workspace import RunWorkspace


class RunPhase(enum.Enum):
    STARTING = "ordered; a process may or may not exist yet"
    RUNNING = "the main process is alive"
    CLEARING = "the main process is gone; the rest of its tree is being terminated"
    ENDED = "no process is left; the exit is reported until it is acknowledged"


class SupervisedRun:
    __slots__ = (
        "boot",
        "cgroup",
        "deadline",
        "directory",
        "end_line",
        "ended_by",
        "error",
        "has_succeeded",
        "idle_checked_at",
        "idle_timeout",
        "is_end_recorded",
        "is_finish_interrupted",
        "is_inherited",
        "is_machine_failure",
        "is_pid_trusted",
        "is_timeout_armed",
        "kill_after",
        "kill_at",
        "kill_timer",
        "launch",
        "log_sizes",
        "number",
        "pending_signals",
        "phase",
        "pid",
        "start_time",
        "step",
        "term_sent",
        "timers",
        "uncertain_scans",
        "victims",
        "watchdog",
        "workspace",
    )

    def __init__(
        self, number: int, *, directory: str, kill_after: float, deadline: float | None, idle_timeout: float | None
    ) -> None:
        self.number = number
        self.directory = directory
        self.kill_after = kill_after
        self.deadline = deadline
        """Monotonic time, the same for every process of one boot: a successor enforces it unchanged."""
        self.idle_timeout = idle_timeout
        self.boot = ""
        self.cgroup = ""
        """Directory of its cgroup; empty if it has none (see `cgroup`)."""
        self.phase = RunPhase.STARTING
        self.launch: RunLaunch | None = None
        """Set while another process of the run remains to be started."""
        self.step = RunStep.MAIN
        """The current step."""
        self.workspace: RunWorkspace | None = None
        self.error: str | None = None
        """Why the command did not start."""
        self.is_machine_failure = False
        """Whether the machine is at fault for that, and not the job."""
        self.is_finish_interrupted = False
        """Whether the finishing of the workspace was cancelled."""
        self.watchdog: Timer | None = None
        """Time limit of a workspace step."""
        self.is_timeout_armed = False
        self.pid: int | None = None
        self.start_time: int | None = None
        self.is_inherited = False
        """Whether a predecessor started it: it is not a child of this process, so its orphans are not reparented to
        it."""
        self.is_pid_trusted = True
        """Whether the pid identifies its session and group. False if the main process ended unobserved: the number may
        be reused."""
        self.ended_by: str | None = None
        self.kill_at: float | None = None
        self.kill_timer: Timer | None = None
        self.pending_signals: list[int] = []
        """Signals sent before the process existed."""
        self.timers: list[Timer] = []
        self.log_sizes: tuple[int, ...] = ()
        self.idle_checked_at = 0.0
        self.victims: dict[int, Process] = {}
        """Signaled processes by pidfd, watched until they are gone."""
        self.term_sent: set[tuple[int, int]] = set()
        """Pid and start time of the processes that got TERM."""
        self.uncertain_scans = 0
        """Number of scans that found nothing without being certain."""
        self.end_line: bytes | None = None
        """The line that reports its exit, identical on the wire and in the journal."""
        self.is_end_recorded = False
        """Whether its exit is in the journal."""
        self.has_succeeded = False
        """Whether it succeeded, was observed, and needs no attention."""

    def advance(self, step: RunStep, launch: RunLaunch) -> None:
        """Begin the next step, whose process is about to be created."""
        self.phase = RunPhase.STARTING
        self.pid = self.start_time = None
        self.step = step
        self.workspace = launch.workspace
        is_last = step is RunStep.FINISH or (step is RunStep.MAIN and launch.workspace is None)
        self.launch = None if is_last else launch

    def starting_line(self) -> bytes:
        return protocol.encode_message(
            type="starting",
            run=self.number,
            boot=self.boot,
            directory=self.directory,
            kill_after=self.kill_after,
            deadline=self.deadline,
            idle_timeout=self.idle_timeout,
            **({"cgroup": self.cgroup} if self.cgroup else {}),
            **({} if self.workspace is None else {"workspace": self.workspace.order}),
            **({} if self.step is RunStep.MAIN else {"step": self.step.name}),
        )

    def step_line(self) -> bytes:
        """Return the journal line of a further process that is about to be created."""
        state = {} if self.workspace is None else {"state": self.workspace.state, "has_run": self.workspace.has_run}
        return protocol.encode_message(type="step", run=self.number, step=self.step.name, **state)

    def finished_line(self) -> bytes:
        """Return the journal line of a run that only waits for its exit to be acknowledged."""
        return protocol.encode_message(type="finished", run=self.number)

    def started_line(self, *, has_cgroup: bool = True) -> bytes:
        """Return the journal line of a started process. `has_cgroup`: False if it could not get the cgroup that
        `starting` announced."""
        extra = {} if has_cgroup else {"has_cgroup": 0}
        return protocol.encode_numeric_message(
            "started", run=self.number, pid=self.pid, start_time=self.start_time, **extra
        )

    def ending_line(self) -> bytes:
        return protocol.encode_message(type="ending", run=self.number, ended_by=self.ended_by, kill_at=self.kill_at)

    def journal_lines(self) -> list[bytes]:
        """Return all lines that a successor needs, for a rewritten journal."""
        records = [self.starting_line()]
        if self.workspace is not None:
            records.append(self.step_line())
        if self.pid is not None:
            records.append(self.started_line())
        if self.ended_by is not None:
            records.append(self.ending_line())
        if self.end_line is not None:
            records.append(self.end_line)
        if self.step is RunStep.FINISH and self.phase is RunPhase.ENDED:
            records.append(self.finished_line())
        return records


class TimeLimits:
    """Timers for the `timeout` and `idle_timeout` of runs."""

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
