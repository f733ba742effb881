"""Aligned tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unicodedata import category, east_asian_width

from rota.errors import escape_unprintable

_GAP = "  "
_MAX_COLUMN_WIDTH = 100
_COMBINING_CATEGORIES = ("Mn", "Me")
"""Unicode categories of characters without a width of their own, such as accents and emoji selectors."""


class Table:
    """Table that is printed part by part. Its columns grow with later parts and never shrink, so that each part is
    aligned, and all parts are aligned with each other once the columns are wide enough.

    If the table is wider than `width`, the flexible columns shrink, the widest first and none below its minimum width;
    a later group shrinks only if the earlier groups are not enough. Without a width nothing is cut, and a very long
    cell exceeds its column instead of widening it. `paint(column, cell, padded)` can color a cell after it has been
    measured.
    """

    def __init__(
        self,
        head: Sequence[str],
        *,
        width: int | None = None,
        flexible: Sequence[tuple[Sequence[int], int]] = (),
        paint: Callable[[int, str, str], str] | None = None,
    ) -> None:
        self._head: Sequence[str] | None = head
        self._widths = [0] * len(head)
        self._width = width
        self._flexible = flexible
        self._paint = paint

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the next lines; the first call also returns the header."""
        head = [] if self._head is None else [[escape_unprintable(cell) for cell in self._head]]
        cells = [[escape_unprintable(cell) for cell in row] for row in rows]
        self._head = None
        self._widen([*head, *cells])
        widths = self._fitted()
        lines = [self._line(row, widths, None) for row in head]
        return lines + [self._line(row, widths, self._paint) for row in cells]

    def reserve_width(self, rows: Sequence[Sequence[str]]) -> None:
        """Widen the columns for rows that are printed later."""
        self._widen([[escape_unprintable(cell) for cell in row] for row in rows])

    def _widen(self, cells: Sequence[Sequence[str]]) -> None:
        self._widths = [
            max(size, *(display_width(row[index]) for row in cells), 0) for index, size in enumerate(self._widths)
        ]

    def _fitted(self) -> list[int]:
        if self._width is None:
            return [min(size, _MAX_COLUMN_WIDTH) for size in self._widths]
        widths = list(self._widths)
        for group, min_width in self._flexible:
            _shrink(widths, self._width, group, min_width)
        return widths

    def _line(self, row: Sequence[str], widths: Sequence[int], paint: Callable[[int, str, str], str] | None) -> str:
        shown = []
        for index, cell in enumerate(row):
            padded = fit(cell, widths[index], should_cut=self._width is not None)
            shown.append(padded if paint is None else paint(index, cell, padded))
        return _GAP.join(shown).rstrip()


def render(
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    flexible: Sequence[tuple[Sequence[int], int]] = (),
    paint: Callable[[int, str, str], str] | None = None,
) -> list[str]:
    """Return the lines of a whole table; the first row is the header."""
    return Table(rows[0], width=width, flexible=flexible, paint=paint).lines(rows[1:])


def _shrink(widths: list[int], width: int, flexible: Sequence[int], min_width: int) -> None:
    for index in flexible:  # limit very wide columns first, which is faster than shrinking them by single characters
        widths[index] = min(widths[index], max(width, min_width))
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= min_width:
            return  # a narrower table would be unreadable, so the terminal wraps the lines
        widths[widest] -= 1
        excess -= 1


def fit(text: str, width: int, *, should_cut: bool = True) -> str:
    """Return the text with exactly `width` columns: padded, or cut with an ellipsis."""
    size = display_width(text)
    if size <= width or not should_cut:
        return text + " " * (width - size)
    kept, used = [], 0
    for character in text:
        used += display_width(character)
        if used > width - 1:
            break
        kept.append(character)
    shown = "".join(kept) + "…"
    return shown + " " * (width - display_width(shown))


def display_width(text: str) -> int:
    """Return the terminal columns of a text: wide East Asian characters take two, combining ones zero."""
    if text.isascii():
        return len(text)
    return sum(
        0 if category(character) in _COMBINING_CATEGORIES else 2 if east_asian_width(character) in "WF" else 1
        for character in text
    )
