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
        "patience",
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
        self.error: str | None = None
        """Why its workspace could not be made."""
        self.is_machine = False
        """That is the machine's trouble, not the job's."""
        self.is_hurried = False
        """Somebody does not want to wait for the rest of what follows its end."""
        self.watchdog: Timer | None = None
        """For the processes that are not the job's own."""
        self.patience = 0.0
        """Seconds that each of these may take."""
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

    def starting(self) -> bytes:
        return protocol.line(
            type="starting",
            run=self.number,
            boot=self.boot,
            directory=self.directory,
            kill_after=self.kill_after,
            deadline=self.deadline,
            idle_timeout=self.idle_timeout,
        )

    def started(self) -> bytes:
        return protocol.line(type="started", run=self.number, pid=self.pid, start_time=self.start_time)

    def ending(self) -> bytes:
        return protocol.line(type="ending", run=self.number, by=self.ended_by, kill_at=self.kill_at)

    def records(self) -> list[bytes]:
        """All that a successor needs to know, for a rewritten journal."""
        records = [self.starting()]
        if self.pid is not None:
            records.append(self.started())
        if self.ended_by is not None:
            records.append(self.ending())
        if self.end is not None:
            records.append(self.end)
        return records
