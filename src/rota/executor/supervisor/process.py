"""Facts about processes, and signals that cannot hit the wrong one.

A pid alone names nothing for long: numbers are used again. A process is its pid and its start time (field 22
of `/proc/<pid>/stat`, in ticks since boot), within one boot. A pidfd, once opened and then checked against
the start time, keeps naming that very process, so a signal sent through it is lost rather than misdirected.

Strays are children of the leader thread. The supervisor is a subreaper: the kernel gives it every orphan of
its descendants, and it gives them to the leader thread. All mains are started by other threads (see `spawn`)
and are those threads' children. `__WNOTHREAD` asks about the calling thread's children alone, so one system
call of 2 µs tells whether any run left something behind, where `/proc` would cost milliseconds.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH208
from __future__ import annotations

import os
import signal

_WNOTHREAD = 0x20000000
_STRAYS = os.WEXITED | os.WNOHANG | _WNOTHREAD


class Process:
    __slots__ = ("group", "has_environment", "is_gone", "parent", "pid", "session", "start_time")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The name may hold anything, brackets too: the fields begin after the last one.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.start_time = int(fields[19])
        # A leader thread that left before the others looks like a zombie, though its process lives.
        self.is_gone = fields[0] in b"ZX" and int(fields[17]) <= 1
        # `env_end`, nought between the two halves of an exec; also for kernel threads and where we may not look.
        self.has_environment = len(fields) > 48 and fields[48] != b"0"

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.start_time


def _read(path: str, *, is_long: bool = False) -> bytes:
    """What is short the kernel gives at once."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 1 << 16)
        while is_long and (more := os.read(fd, 1 << 16)):
            data += more
        return data
    finally:
        os.close(fd)


def boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def look(pid: int) -> Process | None:
    """The process that has this number now, a zombie included."""
    try:
        return Process(pid, _read(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None


def look_at_all() -> dict[int, Process]:
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def variables(pid: int) -> list[bytes]:
    """The environment it was started with; empty where we may not look."""
    try:
        return _read(f"/proc/{pid}/environ", is_long=True).split(b"\0")
    except OSError:
        return []


def is_in_exec(each: Process) -> bool:
    """Whether its environment is not there *yet*: the old program is gone, the new one is not set up. Where we may
    not look at it at all, it is none of ours."""
    if each.has_environment or each.is_gone or 2 in (each.pid, each.parent):
        return False
    try:
        os.close(os.open(f"/proc/{each.pid}/environ", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def has_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def has_strays() -> bool:
    """Whether the leader thread has children. Reaps those that are dead."""
    try:
        while os.waitid(os.P_ALL, 0, _STRAYS) is not None:
            pass
    except ChildProcessError:
        return False
    return True


def handle(pid: int, start_time: int) -> int | None:
    """A pidfd of exactly this process; none when it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    found = look(pid)
    if found is None or found.start_time != start_time or found.is_gone:
        os.close(fd)
        return None
    return fd


def send(fd: int, number: int) -> bool:
    """Signal the process behind a pidfd; false where we may not.

    One that was stopped must be able to act on its TERM, so it is continued.
    """
    try:
        signal.pidfd_send_signal(fd, number)
        if number == signal.SIGTERM:
            signal.pidfd_send_signal(fd, signal.SIGCONT)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def send_group(group: int, number: int) -> None:
    """Signal a group whose leader is a child of ours that is not reaped: its number cannot be anyone else's."""
    try:
        os.killpg(group, number)
        if number == signal.SIGTERM:
            os.killpg(group, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return
