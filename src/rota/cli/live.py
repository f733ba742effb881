"""Views of `rota wait`: redrawn in place on a terminal, otherwise a line for each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.field import duration_text, label, reason_text
from rota.cli.terminal import has_color, paint, print_notice, terminal_height, terminal_width
from rota.client.requests.job import TERMINAL_STATUSES
from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from rota.client.requests import Json

ENDED_STATUSES = (*TERMINAL_STATUSES, "PARTIAL")
"""Final statuses of jobs and groups."""

_STATUS_WIDTH = len("BLOCKED_BY_DEPENDENCY")


def attempt_name(requested: str, job: Json) -> str:
    """Return the displayed name of a job. After a retry, the shown job differs from the requested one."""
    return requested if job["id"] == requested else f"{job['id']} (retry of {requested})"


class JobLineView:
    """View that prints a line for each new status, and no line twice."""

    period = 3600.0

    def __init__(self) -> None:
        self._last_state: dict[str, tuple[str, str]] = {}
        self._printed: set[str] = set()

    def draw(self, jobs: Mapping[str, Json]) -> None:
        for name, job in jobs.items():
            if self._last_state.get(name) == (job["id"], job["status"]):
                continue
            self._last_state[name] = (job["id"], job["status"])
            note = reason_text(job)
            text = f"{attempt_name(name, job)} {job['status']} {label(job)}"
            line = escape_unprintable(f"{text}: {note}" if note else text)
            if line not in self._printed:  # while the home cannot be used, one start after another fails
                self._printed.add(line)
                print_notice(line)

    def close(self) -> None:
        """Do nothing: there is nothing to clear."""


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


class JobScreenView:
    """View with a line for each job, redrawn in place."""

    period = 1.0

    def __init__(self, stream: TextIO, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._stream = stream
        self._clock = clock
        self._canvas = Canvas(stream)

    def draw(self, jobs: Mapping[str, Json]) -> None:
        self._canvas.draw(self._lines(jobs))

    def _lines(self, jobs: Mapping[str, Json]) -> list[str]:
        width, room = (terminal_width(self._stream) or 80) - 1, terminal_height(self._stream) - 2
        shown = list(jobs.items())
        if len(shown) > room:
            # Ended jobs give way to the others: they do not change any more.
            shown.sort(key=lambda item: item[1]["status"] in ENDED_STATUSES)
        lines = [self._line(name, job, width) for name, job in shown[:room]]
        hidden = len(shown) - len(lines)
        return [*lines, f"… and {hidden} more"] if hidden else lines

    def _line(self, name: str, job: Json, width: int) -> str:
        status = job["status"]
        rest = f"{duration_text(job, self._clock()):>6}  {label(job)}"
        note = reason_text(job)
        text = escape_unprintable(f"{rest}  {note}" if note else rest)
        head = f"{attempt_name(name, job):<8} "
        room = max(8, width - len(head) - _STATUS_WIDTH - 1)
        body = text if table.display_width(text) <= room else table.fit(text, room)
        return f"{head}{paint(f'{status:<{_STATUS_WIDTH}}', status, color=has_color(self._stream))} {body}"

    def close(self) -> None:
        self._stream.flush()
