"""Ids: each noun counts up, and no number is ever used again.

The next number is the one after the last row. Where the last rows are taken away their numbers are written down
first (`spend`), so nothing is written as long as rows are only added. Within a transaction the next number is read
once; what is undone gives its numbers back.
"""

from __future__ import annotations

from rota.store.database import Database


class Numbering:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._next: dict[str, int] = {}
        self._known: dict[object, int] = {}
        """Ids of environments and lanes that this transaction has found or made: its submits share most of them."""

    def _forget_numbers(self) -> None:
        """The transaction is over, or a part of it was undone."""
        self._next = {}
        self._known = {}

    def take(self, noun: str, count: int) -> int:
        """The first of so many numbers in a row."""
        first = self._next[noun] if noun in self._next else self._first(noun)
        self._next[noun] = first + count
        return first

    def _first(self, noun: str) -> int:
        return max(int(number) for (number,) in self._db.rows(f"next_{noun}") if number is not None)

    def spend(self, noun: str, last: int) -> None:
        """Numbers up to this one are used, though there may be no row to show it."""
        self._db.run("spend", noun=noun, next=last + 1)
        self._next[noun] = max(self.take(noun, 0), last + 1)
