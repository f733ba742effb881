"""What is wrong with a file, and where."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

Step = str | int
Path = tuple[Step, ...]
"""From the top of the document: keys, and places in lists."""
Mark = tuple[int, int]
"""Line and column, each from 1."""

MOST_SHOWN = 20


class Fault(Exception):
    """One thing that cannot be used as it is written."""

    def __init__(self, path: Path, message: str, mark: Mark | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.mark = mark


class Unusable(Exception):
    """All that is wrong with a document, as far as it was found at once."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


def show_path(path: Path) -> str:
    """`jobs.build.after[0]`"""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def show_faults(source: str, faults: list[Fault], marks: Mapping[Path, Mark]) -> str:
    """A line for each, in the order of the file, as compilers write them."""
    placed = [(fault.mark or mark_of(fault.path, marks), fault) for fault in faults]
    placed.sort(key=lambda each: each[0] or (0, 0))
    lines = [_line(source, mark, fault) for mark, fault in placed[:MOST_SHOWN]]
    rest = len(placed) - MOST_SHOWN
    return "\n".join((*lines, f"… and {rest} more") if rest > 0 else lines)


def mark_of(path: Path, marks: Mapping[Path, Mark]) -> Mark | None:
    """Where it stands, or else what it stands in."""
    for end in range(len(path), 0, -1):
        if path[:end] in marks:
            return marks[path[:end]]
    return None


def _line(source: str, mark: Mark | None, fault: Fault) -> str:
    at = "" if mark is None else f":{mark[0]}:{mark[1]}" if mark[1] else f":{mark[0]}"
    path = f"{show_path(fault.path)}: " if fault.path else ""
    return f"{source}{at}: {path}{fault.message}"
