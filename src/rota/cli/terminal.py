"""Standard streams and the terminal: data goes to stdout, messages go to stderr.

A verb that copies output uses a `SignalPipe`, which can be polled, and `StreamOutput`, which does not delay the
handling of signals.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rota.errors import RotaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType
    from typing import Any, TextIO

_COLORS = {
    "QUEUED": "2",
    "WAITING_ON_DEPS": "33",
    "WAITING_ON_LOCKS": "33",
    "RUNNING": "36",
    "COMPLETED": "32",
    "FAILED": "31",
    "SKIPPED": "2",
    "CANCELLED": "35",
    "BLOCKED_BY_DEPENDENCY": "31",
    "PARTIAL": "33",
    "ok": "32",
    "warn": "33",
    "fail": "31",
}
_PIPE_BYTES = 4096
"""Bytes that a writable pipe accepts without blocking (PIPE_BUF)."""


class OutputError(RotaError):
    """Standard output cannot be written."""


@contextmanager
def checked_output() -> Iterator[None]:
    """Raise OutputError for a failed write to stdout. A closed pipe is not an error: `rota list | head`."""
    try:
        yield
    except (BlockingIOError, BrokenPipeError):
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror}") from None


def flush() -> None:
    with checked_output():
        sys.stdout.flush()


def print_text(text: str, end: str = "\n") -> None:
    """Print data to stdout."""
    with checked_output():
        try:
            sys.stdout.write(text + end)
        except UnicodeEncodeError:  # print characters that the encoding lacks as escapes
            encoding = sys.stdout.encoding
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + end)


def print_json(value: Any) -> None:
    print_text(as_json(value))


def as_json(value: Any) -> str:
    """Return indented JSON, with ASCII escapes if stdout is not a Unicode stream."""
    import json

    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(value, indent=2, ensure_ascii=not is_unicode)


class JsonObject:
    """JSON object whose fields are printed one after the other."""

    def __init__(self, fields: Iterable[tuple[str, Any]]) -> None:
        self.fields = fields


def print_json_parts(value: Any) -> None:
    """Print JSON part by part: an iterator as a list, while its values come, and a `JsonObject` field by field."""
    for part in _json_parts(value, "\n"):
        print_text(part, end="")
    print_text("")


def _json_parts(value: Any, line: str) -> Iterator[str]:
    """Yield the JSON of a value in parts. `line` is a line break with the indentation of the value."""
    if isinstance(value, JsonObject):
        start, end, members = "{", "}", ((f"{as_json(name)}: ", member) for name, member in value.fields)
    elif isinstance(value, Iterator):
        start, end, members = "[", "]", (("", member) for member in value)
    else:
        yield as_json(value).replace("\n", line)
        return
    separator = start
    for name, member in members:
        yield f"{separator}{line}  {name}"
        yield from _json_parts(member, f"{line}  ")
        separator = ","
    yield start + end if separator == start else line + end


def print_notice(text: str) -> None:
    """Print a message for the user to stderr."""
    flush()  # a terminal shows both streams: keep their order
    print(f"rota: {text}", file=sys.stderr)


def has_color(stream: TextIO) -> bool:
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, status: str, *, color: bool) -> str:
    """Return the text in the color of a status or verdict."""
    code = _COLORS.get(status)
    return f"\033[{code}m{text}\033[0m" if color and code else text


def can_redraw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal, or None if the stream is not a terminal and nothing is cut."""
    if not stream.isatty():
        return None
    return _terminal_size(stream)[0]


def terminal_height(stream: TextIO) -> int:
    return _terminal_size(stream)[1]


def _terminal_size(stream: TextIO) -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, lines = 0, 0
    return columns or 80, lines or 24  # a terminal of unknown size reports 0


class Canvas:
    """Lines of a terminal that are redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line_count = 0

    def draw(self, lines: Sequence[str]) -> None:
        # A single write, so that the terminal never shows half a view. Each line is cleared to its end, and the
        # remaining lines of the previous view are cleared too.
        up = f"\033[{self._line_count}A" if self._line_count else ""
        self._stream.write("\r" + up + "".join(f"{line}\033[K\n" for line in lines) + "\033[J")
        self._stream.flush()
        self._line_count = len(lines)

    def clear(self) -> None:
        if self._line_count:
            self.draw(())


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
