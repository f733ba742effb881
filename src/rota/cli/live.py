"""What `rota wait` shows while it waits: a view redrawn in place on a terminal, else a line for each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.field import excuse, label, time_of
from rota.cli.terminal import has_colour, height_of, paint, talk, width_of
from rota.client.ask.job import TERMINAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from rota.client.ask import Json

ENDED = (*TERMINAL, "PARTIAL")
"""Of jobs and groups alike."""

_STATUS_WIDTH = len("BLOCKED_BY_DEPENDENCY")


class Lines:
    """One line for each status that is new."""

    period = 3600.0

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def draw(self, jobs: Mapping[str, Json]) -> None:
        for name, job in jobs.items():
            if self._seen.get(name) != job["status"]:
                self._seen[name] = job["status"]
                note = excuse(job)
                talk(table.printable(f"{name} {job['status']} {label(job)}" + (f": {note}" if note else "")))

    def close(self) -> None:
        """Nothing is left behind."""


class Canvas:
    """Lines of a terminal that are drawn again where they stand."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        # One write: a terminal never shows half a view. Each line is cleared to its end, and what the last view
        # had below is cleared too.
        up = f"\033[{self._drawn}A" if self._drawn else ""
        self._stream.write("\r" + up + "".join(f"{line}\033[K\n" for line in lines) + "\033[J")
        self._stream.flush()
        self._drawn = len(lines)


class Screen:
    """One line for each job, redrawn where it stands."""

    period = 1.0

    def __init__(self, stream: TextIO, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._stream = stream
        self._clock = clock
        self._canvas = Canvas(stream)

    def draw(self, jobs: Mapping[str, Json]) -> None:
        self._canvas.draw(self._lines(jobs))

    def _lines(self, jobs: Mapping[str, Json]) -> list[str]:
        width, room = (width_of(self._stream) or 80) - 1, height_of(self._stream) - 2
        shown = list(jobs.items())
        if len(shown) > room:
            # What has ended gives way to what has not: it says nothing new.
            shown.sort(key=lambda item: item[1]["status"] in ENDED)
        lines = [self._line(name, job, width) for name, job in shown[:room]]
        hidden = len(shown) - len(lines)
        return [*lines, f"… and {hidden} more"] if hidden else lines

    def _line(self, name: str, job: Json, width: int) -> str:
        status = job["status"]
        rest = f"{time_of(job, self._clock()):>6}  {label(job)}"
        note = excuse(job)
        text = table.printable(f"{rest}  {note}" if note else rest)
        head = f"{name:<8} "
        left = max(8, width - len(head) - _STATUS_WIDTH - 1)
        body = text if table.columns(text) <= left else table.fit(text, left)
        return f"{head}{paint(f'{status:<{_STATUS_WIDTH}}', status, colour=has_colour(self._stream))} {body}"

    def close(self) -> None:
        self._stream.flush()
