"""Signals as something to wait for, and output that never keeps us from hearing one."""

from __future__ import annotations

import os
import select
import signal
import stat
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_ROOM = 4096
"""A pipe that has room takes this much at once (PIPE_BUF)."""


class SignalPipe:
    """From the first moment on no signal of these ends the process: each is taken up where it can be answered.

    What the caller has set to be ignored stays ignored: `nohup`, or a shell's background job.
    """

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, Any] = {}
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _heard)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._reading

    def take(self) -> list[int]:
        try:
            return [number for number in os.read(self._reading, 512) if number in self._before]
        except BlockingIOError:
            return []

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._reading)
        os.close(self._writing)


def _heard(_number: int, _frame: FrameType | None) -> None:
    """The number is in the pipe."""


class Outlet:
    """One of our own streams, by its descriptor: bytes stay as they are."""

    def __init__(self, descriptor: int, signals: SignalPipe, on_signal: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._signals = signals
        self._on_signal = on_signal

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if not self._is_file:
                self._wait_for_room()
            try:
                rest = rest[os.write(self._descriptor, rest if self._is_file else rest[:_ROOM]) :]
            except BlockingIOError:
                continue  # somebody else has filled it meanwhile

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.register(self._signals, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._signals.fileno() in ready:
                self._on_signal()
            if self._descriptor in ready:
                return


def wait_readable(stream: Any, signals: SignalPipe, on_signal: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    poll.register(signals, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if signals.fileno() in ready:
            on_signal()
        if stream.fileno() in ready:
            return


def pause(seconds: float, signals: SignalPipe, on_signal: Callable[[], None]) -> None:
    if select.select([signals], [], [], seconds)[0]:
        on_signal()
