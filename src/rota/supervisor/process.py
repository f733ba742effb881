"""Process facts, and signals that cannot hit the wrong process.

A pid alone does not identify a process for long, because numbers are reused. A process is its pid and its start time
(field 22 of `/proc/<pid>/stat`, in ticks since boot), within one boot. A pidfd that is opened and then checked against
the start time keeps naming that very process, so a signal sent through it is lost rather than misdirected.

Strays are children of the thread group leader. The supervisor is a subreaper: the kernel reparents every orphan of its
descendants to it, namely to the thread group leader. All main processes are started by other threads (see `spawn`) and
are children of those threads. `__WNOTHREAD` restricts a wait to the children of the calling thread, so one system call
of 2 µs tells whether any run left a process behind; reading `/proc` would cost milliseconds.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH208
from __future__ import annotations

import os
import signal

_WNOTHREAD = 0x20000000
_STRAY_FLAGS = os.WEXITED | os.WNOHANG | _WNOTHREAD


class Process:
    __slots__ = ("group", "has_environment", "is_gone", "parent", "pid", "session", "start_time")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The name may contain anything, including parentheses: the fields begin after the last one.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.start_time = int(fields[19])
        # A leader thread that exits before the others looks like a zombie, though its process is alive.
        self.is_gone = fields[0] in b"ZX" and int(fields[17]) <= 1
        # `env_end`: zero in the middle of an exec, for kernel threads, and without permission.
        self.has_environment = len(fields) > 48 and fields[48] != b"0"

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.start_time


def _read_file(path: str, *, is_long: bool = False) -> bytes:
    """Read a file in /proc. The kernel returns a short one in a single read."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 1 << 16)
        while is_long and (chunk := os.read(fd, 1 << 16)):
            data += chunk
        return data
    finally:
        os.close(fd)


def boot_id() -> str:
    return _read_file("/proc/sys/kernel/random/boot_id").decode().strip()


def read_process(pid: int) -> Process | None:
    """Return the process with this pid, including a zombie."""
    try:
        return Process(pid, _read_file(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None


def read_all_processes() -> dict[int, Process]:
    processes = (read_process(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in processes if process is not None}


def read_environment(pid: int) -> list[bytes]:
    """Return the environment the process was started with; empty without permission."""
    try:
        return _read_file(f"/proc/{pid}/environ", is_long=True).split(b"\0")
    except OSError:
        return []


def is_in_exec(process: Process) -> bool:
    """Return whether the process is in the middle of an exec and its environment is not set up *yet*. An environment
    that cannot be read at all belongs to a foreign process."""
    if process.has_environment or process.is_gone or 2 in (process.pid, process.parent):
        return False
    try:
        os.close(os.open(f"/proc/{process.pid}/environ", os.O_RDONLY | os.O_CLOEXEC))
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
    """Return whether the leader thread has live children, after reaping the dead ones."""
    try:
        while os.waitid(os.P_ALL, 0, _STRAY_FLAGS) is not None:
            pass
    except ChildProcessError:
        return False
    return True


def open_pidfd(pid: int, start_time: int) -> int | None:
    """Return a pidfd of exactly this process; None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    process = read_process(pid)
    if process is None or process.start_time != start_time or process.is_gone:
        os.close(fd)
        return None
    return fd


def send_signal(fd: int, signal_number: int) -> bool:
    """Signal the process behind a pidfd. Return False without permission.

    A TERM is followed by CONT, so that a stopped process can act on it.
    """
    try:
        signal.pidfd_send_signal(fd, signal_number)
        if signal_number == signal.SIGTERM:
            signal.pidfd_send_signal(fd, signal.SIGCONT)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def signal_group(group: int, signal_number: int) -> None:
    """Signal the group of an unreaped child: its number cannot have been reused."""
    try:
        os.killpg(group, signal_number)
        if signal_number == signal.SIGTERM:
            os.killpg(group, signal.SIGCONT)
    except (ProcessLookupError, PermissionError):
        return
