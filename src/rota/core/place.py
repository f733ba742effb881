"""Places: how many messages may be under way at once, and to whom.

A receiver is known by how its last try went. One that hangs keeps its places until its time is over, so those that
failed share a part of all places, those that nobody knows yet have some more, and the rest is for those that take what
they are sent: they find room however many hang. One that is new is sent one message, and more when it has answered. One
that failed begins with one message at a time; its other places are for those that are to be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Standing(IntEnum):
    """How the last try went; what a standing may use, those above it may use too."""

    FAILED = 0
    NEW = 1
    TOOK = 2


MOST_AT_ONCE: Mapping[Standing, int] = {Standing.FAILED: 64, Standing.NEW: 96, Standing.TOOK: 128}
"""To all receivers of this standing and of those below it."""
MOST_OF_ONE: Mapping[Standing, int] = {Standing.FAILED: 4, Standing.NEW: 1, Standing.TOOK: 4}
"""To one receiver."""
MOST_BEGUN: Mapping[Standing, int] = {Standing.FAILED: 1, Standing.NEW: 1, Standing.TOOK: 4}
"""Of these, such as were never tried."""


class Places:
    def __init__(self, flying: Mapping[str, int], known: Mapping[str, Standing]) -> None:
        """With how many are under way to each receiver."""
        self._known = known
        self._of_one = dict(flying)
        self._taken = dict.fromkeys(Standing, 0)
        for receiver, count in flying.items():
            self._taken[self.standing(receiver)] += count

    def standing(self, receiver: str) -> Standing:
        return self._known.get(receiver, Standing.NEW)

    def room(self, receiver: str) -> int:
        own = self.standing(receiver)
        room = MOST_OF_ONE[own] - self._of_one.get(receiver, 0)
        for standing in Standing:
            if standing >= own:
                taken = sum(count for other, count in self._taken.items() if other <= standing)
                room = min(room, MOST_AT_ONCE[standing] - taken)
        return max(0, room)

    def take(self, receiver: str, count: int) -> None:
        self._of_one[receiver] = self._of_one.get(receiver, 0) + count
        self._taken[self.standing(receiver)] += count
