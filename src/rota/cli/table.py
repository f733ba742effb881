"""Aligned tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unicodedata import combining, east_asian_width

_GAP = "  "
_NARROWEST = 8


def render(
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    flexible: Sequence[int] = (),
    paint: Callable[[int, str, str], str] | None = None,
) -> list[str]:
    """Lines of the table; its first row is the head.

    Where it is wider than `width`, the flexible columns give way, the widest first. `paint(column, cell, padded)`
    may colour a cell after it has been measured.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(cells[0]))]
    if width is not None:
        _shrink(widths, width, flexible)
    lines = []
    for number, row in enumerate(cells):
        shown = []
        for index, cell in enumerate(row):
            padded = fit(cell, widths[index])
            shown.append(paint(index, cell, padded) if paint is not None and number else padded)
        lines.append(_GAP.join(shown).rstrip())
    return lines


def _shrink(widths: list[int], width: int, flexible: Sequence[int]) -> None:
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            return  # A narrower table could not be read: let the terminal wrap it.
        widths[widest] -= 1
        excess -= 1


def fit(text: str, width: int) -> str:
    """Exactly `width` columns: padded, or cut with an ellipsis."""
    size = columns(text)
    if size <= width:
        return text + " " * (width - size)
    kept, used = [], 0
    for character in text:
        used += columns(character)
        if used > width - 1:
            break
        kept.append(character)
    shown = "".join(kept) + "…"
    return shown + " " * (width - columns(shown))


def columns(text: str) -> int:
    """Columns a terminal uses for it: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def printable(text: str) -> str:
    """Names and commands come from anywhere: none may move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
