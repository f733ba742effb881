"""stdout is data, stderr is talk: the ways to write to either."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

_COLOURS = {
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


def say(text: str) -> None:
    """Data, for people and programs."""
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # A terminal of another encoding sees what it has no letters for as escapes.
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def say_json(value: Any) -> None:
    import json

    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    say(json.dumps(value, indent=2, ensure_ascii=not is_unicode))


def talk(text: str) -> None:
    """What a person wants to know and a program does not."""
    sys.stdout.flush()  # In a terminal both are one: keep the order in which things were said.
    print(f"rota: {text}", file=sys.stderr)


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, word: str, *, colour: bool) -> str:
    """`text` in the colour of a status or verdict."""
    code = _COLOURS.get(word)
    return f"\033[{code}m{text}\033[0m" if colour and code else text


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal, or None where there is none and nothing need be cut."""
    if not stream.isatty():
        return None
    return _size(stream)[0]


def height_of(stream: TextIO) -> int:
    return _size(stream)[1]


def _size(stream: TextIO) -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, lines = 0, 0
    return columns or 80, lines or 24  # A terminal that does not know its size says 0.
