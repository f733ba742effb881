"""What was seen outside, in memory, and in which order: looks take their time, and one that began first may end last.

Looks are numbered as they begin. What an older look says of a fact is dropped when a younger one has spoken of it, or
when something has happened to it since (`overlook`): so a file that was looked for before its producer ended is never
taken for one that the producer did not make.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rota.core.fact import Fact, Seen
from rota.ids import JobId


class Known:
    """The engine's thread writes; others read `seen`, and begin looks."""

    def __init__(self) -> None:
        self.seen: dict[Fact, Seen] = {}
        self.asked: dict[JobId, int] = {}
        """Jobs that were chosen to start, and since which number it is asked whether they still may."""
        self.doubted: dict[JobId, int] = {}
        """Jobs that would be blocked for want of an artifact, and since which number it is asked whether that is so."""
        self.last_end = 0
        """The number of the last turn in which a run ended: what was seen before may be otherwise now."""
        self._since: dict[Fact, int] = {}
        self._looks = itertools.count(1)

    def copy(self) -> Known:
        """For who only wants to see what would come of it."""
        other = Known()
        other.seen, other.asked, other.last_end = dict(self.seen), dict(self.asked), self.last_end
        other.doubted = dict(self.doubted)
        other._since, other._looks = dict(self._since), self._looks
        return other

    def begin(self) -> int:
        """The number of a look that begins now; from any thread."""
        return next(self._looks)

    def is_outdated(self, fact: Fact, began: int) -> bool:
        return began < self._since.get(fact, 0)

    def since(self, fact: Fact) -> int:
        """The number of the look that saw it last."""
        return self._since.get(fact, 0) if fact in self.seen else 0

    def learn(self, fact: Fact, value: Seen, began: int) -> None:
        self.seen[fact] = value
        self._since[fact] = began

    def overlook(self, fact: Fact) -> None:
        """What was seen of it counts no more, nor what looks see that have begun."""
        self.seen.pop(fact, None)
        self._since[fact] = self.begin()

    def drop(self, facts: Iterable[Fact]) -> None:
        """Nobody waits for these any more."""
        for fact in facts:
            self.seen.pop(fact, None)
            self._since.pop(fact, None)
