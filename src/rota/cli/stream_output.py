"""Signals that can be polled, and output that does not delay their handling."""

from __future__ import annotations

import os
import select
import signal
import stat
from collections.abc import Callable

from rota.cli.terminal import checked_output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_PIPE_BYTES = 4096
"""Bytes that a writable pipe accepts without blocking (PIPE_BUF)."""


class SignalPipe:
    """Pipe that collects signals, so that they are handled when the process is ready and do not end it.

    Signals that the parent process ignores stay ignored, as with `nohup` or in a background job of a shell.
    """

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._previous_handlers: dict[int, Any] = {}
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, _ignore_signal)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._read_fd

    def read_signals(self) -> list[int]:
        try:
            return [number for number in os.read(self._read_fd, 512) if number in self._previous_handlers]
        except BlockingIOError:
            return []

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        os.close(self._read_fd)
        os.close(self._write_fd)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal number is in the pipe."""


class StreamOutput:
    """Standard stream, by descriptor. Bytes are written unchanged."""

    def __init__(self, descriptor: int, signals: SignalPipe, on_signal: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._signals = signals
        self._on_signal = on_signal

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if not self._is_file:
                self._wait_writable()
            try:
                with checked_output():
                    rest = rest[os.write(self._descriptor, rest if self._is_file else rest[:_PIPE_BYTES]) :]
            except BlockingIOError:
                continue  # another process has filled the pipe in the meantime

    def _wait_writable(self) -> None:
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


def sleep(seconds: float, signals: SignalPipe, on_signal: Callable[[], None]) -> None:
    if select.select([signals], [], [], seconds)[0]:
        on_signal()
