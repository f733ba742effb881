"""What the supervisor knows of one run, in memory and as lines of the journal.

The way of a run:

    STARTING ──► RUNNING ──► CLEARING ──► ENDED ──► forgotten once acknowledged
        │           ▲            │          ▲
        │           └── next ────┘          │        step: its workspace, `skip_if`, main, its workspace again
        └───────── failed to start ─────────┘
"""

from __future__ import annotations

import enum

from rota.executor.supervisor import protocol
from rota.executor.supervisor.loop import Timer
from rota.executor.supervisor.process import Process
from rota.executor.supervisor.spawn import Launch
from rota.executor.supervisor.step import Step
from rota.executor.supervisor.workspace import Workspace


class Phase(enum.Enum):
    STARTING = "asked for; there may or may not be a process yet"
    RUNNING = "its main process lives"
    CLEARING = "its main process is gone; what it left behind is being ended"
    ENDED = "nothing of it is left; its end is told until it is acknowledged"


class Run:
    __slots__ = (
        "boot",
        "deadline",
        "directory",
        "doubts",
        "end",
        "ended_by",
        "error",
        "idle_timeout",
        "inherited",
        "is_good",
        "is_hurried",
        "is_machine",
        "is_timed",
        "is_trusted",
        "is_written",
        "kill_after",
        "kill_at",
        "kill_timer",
        "launch",
        "looked_at",
        "number",
        "phase",
        "pid",
        "signals",
        "sizes",
        "start_time",
        "step",
        "timers",
        "victims",
        "warned",
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
        """Monotonic, the same for every process of one boot: a successor enforces it unchanged."""
        self.idle_timeout = idle_timeout
        self.boot = ""
        self.phase = Phase.STARTING
        self.launch: Launch | None = None
        """While something of it is still to be started."""
        self.step = Step.MAIN
        """Which of its processes it is at."""
        self.workspace: Workspace | None = None
        self.error: str | None = None
        """Why its command never began."""
        self.is_machine = False
        """That is the machine's trouble, not the job's."""
        self.is_hurried = False
        """Somebody does not want to wait for the rest of what follows its end."""
        self.watchdog: Timer | None = None
        """For the processes that are not the job's own."""
        self.is_timed = False
        self.pid: int | None = None
        self.start_time: int | None = None
        self.inherited = False
        """Started by a predecessor: not our child, so neither are its orphans."""
        self.is_trusted = True
        """Its pid names its session and group. Not so when its main process ended unseen: the number may be reused."""
        self.ended_by: str | None = None
        self.kill_at: float | None = None
        self.kill_timer: Timer | None = None
        self.signals: list[int] = []
        """Sent before there was a process to get them."""
        self.timers: list[Timer] = []
        self.sizes: tuple[int, ...] = ()
        self.looked_at = 0.0
        self.victims: dict[int, Process] = {}
        """By pidfd: processes that were signalled and are watched until they are gone."""
        self.warned: set[tuple[int, int]] = set()
        """Pid and start time of those that had their TERM."""
        self.doubts = 0
        """How often a look found nothing, but could not be certain."""
        self.end: bytes | None = None
        """The line that tells its end, the same on the wire and in the journal."""
        self.is_written = False
        """Its end is in the journal."""
        self.is_good = False
        """It was a success, seen by us, with nothing about it that anybody would have to look at."""

    def go_to(self, step: Step, launch: Launch) -> None:
        """Its next process is about to be made."""
        self.phase = Phase.STARTING
        self.pid = self.start_time = None
        self.step = step
        self.workspace = launch.workspace
        is_last = step is Step.FINISH or (step is Step.MAIN and launch.workspace is None)
        self.launch = None if is_last else launch

    def starting(self) -> bytes:
        return protocol.line(
            type="starting",
            run=self.number,
            boot=self.boot,
            directory=self.directory,
            kill_after=self.kill_after,
            deadline=self.deadline,
            idle_timeout=self.idle_timeout,
            **({} if self.workspace is None else {"workspace": self.workspace.order}),
            **({} if self.step is Step.MAIN else {"step": self.step.name}),
        )

    def at_step(self) -> bytes:
        """A process that is not its first is about to be made."""
        place = {} if self.workspace is None else {"place": self.workspace.place, "has_run": self.workspace.has_run}
        return protocol.line(type="step", run=self.number, step=self.step.name, **place)

    def finished(self) -> bytes:
        """Nothing is to be done for it any more but to tell its end."""
        return protocol.line(type="finished", run=self.number)

    def started(self) -> bytes:
        return protocol.plain("started", run=self.number, pid=self.pid, start_time=self.start_time)

    def ending(self) -> bytes:
        return protocol.line(type="ending", run=self.number, by=self.ended_by, kill_at=self.kill_at)

    def records(self) -> list[bytes]:
        """All that a successor needs to know, for a rewritten journal."""
        records = [self.starting()]
        if self.workspace is not None:
            records.append(self.at_step())
        if self.pid is not None:
            records.append(self.started())
        if self.ended_by is not None:
            records.append(self.ending())
        if self.end is not None:
            records.append(self.end)
        if self.step is Step.FINISH and self.phase is Phase.ENDED:
            records.append(self.finished())
        return records
