"""Faults of a workflow file, with their positions."""

from __future__ import annotations

from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PathPart = str | int
DocumentPath = tuple[PathPart, ...]
"""Keys and list indexes from the top of the document."""
SourcePosition = tuple[int, int]
"""Line and column, both from 1. Column 0 stands for the whole line."""

MAX_SHOWN_FAULTS = 20


class Fault(Exception):
    """Single fault in a workflow file."""

    def __init__(self, path: DocumentPath, message: str, position: SourcePosition | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.position = position


class InvalidWorkflow(Exception):
    """Workflow file with one or more faults. It reports as many faults at once as possible."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults)
        self.faults = faults


def format_path(path: DocumentPath) -> str:
    """Format the path as `jobs.build.after[0]`."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{escape_unprintable(part)}" for part in path
    ).removeprefix(".")


def format_faults(source: str, faults: list[Fault], positions: Mapping[DocumentPath, SourcePosition]) -> str:
    """Format one line per fault, in the order of the file, in the style of compilers."""
    located = [(fault.position or find_position(fault.path, positions), fault) for fault in faults]
    located.sort(key=lambda item: item[0] or (0, 0))
    lines = [_format_fault(source, position, fault) for position, fault in located[:MAX_SHOWN_FAULTS]]
    rest = len(located) - MAX_SHOWN_FAULTS
    return "\n".join((*lines, f"… and {rest} more") if rest > 0 else lines)


def find_position(path: DocumentPath, positions: Mapping[DocumentPath, SourcePosition]) -> SourcePosition | None:
    """Return the position of the path, or of its nearest parent that has one."""
    for end in range(len(path), 0, -1):
        if path[:end] in positions:
            return positions[path[:end]]
    return None


def _format_fault(source: str, position: SourcePosition | None, fault: Fault) -> str:
    at = "" if position is None else f":{position[0]}:{position[1]}" if position[1] else f":{position[0]}"
    path = f"{format_path(fault.path)}: " if fault.path else ""
    return f"{source}{at}: {path}{fault.message}"
