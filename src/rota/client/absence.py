"""A scheduler that is away for a while, to who waits for something that outlasts it: an end, a log, what happens."""

from __future__ import annotations

import time

from rota.client.problem import BadAnswer, Broken, NoAnswer
from rota.errors import StoreAway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.carry import Carrier
    from rota.errors import Unavailable

_LOOK_EVERY = 0.25
STORE_AWAY = 30.0
"""Seconds for which a store that is away is waited for: a server that is restarted is back by then."""
STORE_LOOK = 1.0
"""Seconds between two looks whether it is back."""


class StoreAbsence:
    """How long the store has been away, to who asks again and again."""

    def __init__(self) -> None:
        self._since: float | None = None

    def over(self) -> None:
        """It has been heard from."""
        self._since = None

    def bear(self, error: StoreAway) -> None:
        """Raise the error, where that has been for too long."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since >= STORE_AWAY:
            raise error


class Absence:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._since: float | None = None
        self._has_broken = False
        self._of_store = StoreAbsence()

    def over(self) -> None:
        """It has been heard from."""
        self._since, self._has_broken = None, False
        self._of_store.over()

    async def bear(self, error: Unavailable) -> None:
        """Wait a little, then ask again; or raise the error, where it was away for too long. Who never had an answer is
        told at once. A connection that breaks does not say that the scheduler is away: it is asked once more in any
        case, which starts one that has crashed. One whose store is away is there."""
        carrier, now = self._carrier, time.monotonic()
        if isinstance(error, StoreAway) and carrier.bears:
            self._of_store.bear(error)
            await carrier.pause(STORE_LOOK)
            return
        if not carrier.answered or isinstance(error, BadAnswer):
            raise error
        self._since = self._since or now
        is_first = isinstance(error, Broken | NoAnswer) and not self._has_broken
        self._has_broken |= is_first
        if not is_first and carrier.away is not None and now - self._since >= carrier.away:
            raise error
        await carrier.pause(_LOOK_EVERY)
