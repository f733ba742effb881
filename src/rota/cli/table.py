"""Aligned tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unicodedata import category, east_asian_width

_GAP = "  "
_WIDEST = 100
_MARKS = ("Mn", "Me")
"""Set upon the character before: accents, and what makes it an emoji."""


def render(
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    flexible: Sequence[tuple[Sequence[int], int]] = (),
    paint: Callable[[int, str, str], str] | None = None,
) -> list[str]:
    """Lines of the table; its first row is the head.

    Where it is wider than `width`, the flexible columns give way, the widest first and none below its least width;
    the next group only when those before are not enough. Without a width nothing is cut, and a cell of many pages does
    not make all others as wide: it sticks out. `paint(column, cell, padded)` may colour a cell after it has been
    measured.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(cells[0]))]
    if width is None:
        widths = [min(each, _WIDEST) for each in widths]
    else:
        for group, least in flexible:
            _shrink(widths, width, group, least)
    lines = []
    for number, row in enumerate(cells):
        shown = []
        for index, cell in enumerate(row):
            padded = fit(cell, widths[index], cuts=width is not None)
            shown.append(paint(index, cell, padded) if paint is not None and number else padded)
        lines.append(_GAP.join(shown).rstrip())
    return lines


def _shrink(widths: list[int], width: int, flexible: Sequence[int], least: int) -> None:
    for index in flexible:  # what is far too wide is not taken back column by column
        widths[index] = min(widths[index], max(width, least))
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= least:
            return  # A narrower table could not be read: let the terminal wrap it.
        widths[widest] -= 1
        excess -= 1


def fit(text: str, width: int, *, cuts: bool = True) -> str:
    """Exactly `width` columns: padded, or cut with an ellipsis."""
    size = columns(text)
    if size <= width or not cuts:
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
    return sum(0 if category(each) in _MARKS else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def printable(text: str) -> str:
    """Names and commands come from anywhere: none may move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
