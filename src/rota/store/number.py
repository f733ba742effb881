"""Ids: each noun counts up, and no number is ever used again.

Within a transaction the next number is read once and stored once, however many are taken. What is undone gives
its numbers back.
"""

from __future__ import annotations

from rota.store.database import Database


class Numbering:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._next: dict[str, int] = {}

    def take(self, noun: str, count: int) -> int:
        """The first of so many numbers in a row."""
        first = self._next[noun] if noun in self._next else int(self._db.rows("next_number", noun=noun)[0][0])
        self._next[noun] = first + count
        return first

    def spend(self, noun: str, last: int) -> None:
        """Numbers up to this one are known to be used: they are not given out again."""
        first = self.take(noun, 0)
        self._next[noun] = max(first, last + 1)

    def _write_numbers(self) -> None:
        self._db.run_many("set_next_number", [{"noun": noun, "next": n} for noun, n in self._next.items()])
        self._next = {}
