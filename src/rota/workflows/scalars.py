"""Scalars of a workflow file, and the faults of the file with their positions.

The reader of a field converts a scalar to the type of the field. An unquoted YAML scalar keeps its text until a field
needs a number, so that `command: [sleep, 0.50]` passes `0.50` to the program.
"""

from __future__ import annotations

import math
import re

from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NON_TEXT = re.compile(
    r"(?:~|null|Null|NULL|true|True|TRUE|false|False|FALSE|"
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|"
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|"
    r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))?"
)
_NULL_WORDS = ("", "~", "null", "Null", "NULL")
_BOOLEAN_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_MAX_DIGITS = 300
"""Maximum number of digits of a number. More digits are text, or a mistake."""
PathPart = str | int
DocumentPath = tuple[PathPart, ...]
"""Keys and list indexes from the top of the document."""
SourcePosition = tuple[int, int]
"""Line and column, both from 1. Column 0 stands for the whole line."""
MAX_SHOWN_FAULTS = 20


class PlainScalar(str):
    """Unquoted scalar that is not text in YAML 1.2: null, a boolean or a number."""

    __slots__ = ()


def make_scalar(text: str) -> str:
    """Return the value of an unquoted scalar. `no`, `on` and `1.2.3` are text."""
    return PlainScalar(text) if _NON_TEXT.fullmatch(text) else text


def is_empty(value: object) -> bool:
    """Return whether the value is null, which counts as absent."""
    return value is None or (type(value) is PlainScalar and value in _NULL_WORDS)


def as_text(value: object) -> str | None:
    """Return the value as written in the file, or None for a list, a map or null."""
    if isinstance(value, str):
        return None if is_empty(value) else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def as_integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    is_number = type(value) is PlainScalar and len(value) <= _MAX_DIGITS and _INTEGER.fullmatch(value)
    return _parse_integer(str(value)) if is_number else None


def _parse_integer(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def as_boolean(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _BOOLEAN_WORDS.get(value) if type(value) is PlainScalar else None


def as_json(value: object) -> Any:
    """Return the value as JSON data, or raise ValueError if JSON cannot represent it."""
    if type(value) is str or isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, dict):
        return {key: as_json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if type(value) is not PlainScalar:
        raise ValueError(f"{value} is a date or a time, which JSON cannot represent; put it in quotes")
    return _plain_as_json(value)


def _plain_as_json(value: PlainScalar) -> Any:
    if is_empty(value):
        return None
    if value in _BOOLEAN_WORDS:
        return _BOOLEAN_WORDS[value]
    if len(value) > _MAX_DIGITS:
        raise ValueError("a number has at most 300 digits; put it in quotes")
    if _INTEGER.fullmatch(value):
        return _parse_integer(value)
    number = math.nan if value[-1] in "nNfF" else float(value)
    if not math.isfinite(number):
        raise ValueError(f"JSON cannot represent the number {value}; put it in quotes")
    return number


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
