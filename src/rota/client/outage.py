"""Temporary outages of the scheduler or its store, for operations that outlast them: waiting, logs, events."""

from __future__ import annotations

import time

from rota.client.problem import ConnectionBroken, InvalidResponse, ResponseTimeout
from rota.errors import StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.retrying import RetryingTransport
    from rota.errors import ServiceUnavailable

_POLL_INTERVAL = 0.25
STORE_OUTAGE_TIMEOUT = 30.0
"""Seconds to wait for an unavailable store. A database server that restarts is available again by then."""
STORE_POLL_INTERVAL = 1.0
"""Seconds between two checks for the store."""


class StoreOutage:
    """Duration of an outage of the store, for a client that polls."""

    def __init__(self) -> None:
        self._since: float | None = None

    def end(self) -> None:
        """Record that the store answered."""
        self._since = None

    def raise_if_too_long(self, error: StoreUnavailable) -> None:
        """Raise the error if the outage has exceeded its limit."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since >= STORE_OUTAGE_TIMEOUT:
            raise error


class SchedulerOutage:
    """Duration of an outage of the scheduler."""

    def __init__(self, transport: RetryingTransport) -> None:
        self._transport = transport
        self._since: float | None = None
        self._had_broken_connection = False
        self._store_outage = StoreOutage()

    def end(self) -> None:
        """Record that the scheduler answered."""
        self._since, self._had_broken_connection = None, False
        self._store_outage.end()

    async def wait_or_raise(self, error: ServiceUnavailable) -> None:
        """Wait before the next attempt, or raise the error if the outage has exceeded its limit.

        Without an earlier response the error is raised immediately. A broken connection does not mean that the
        scheduler is gone: the first is always followed by another attempt, which starts a scheduler that has crashed.
        While only the store is unavailable, the scheduler itself is running.
        """
        transport, now = self._transport, time.monotonic()
        if isinstance(error, StoreUnavailable) and transport.tolerates_outage:
            self._store_outage.raise_if_too_long(error)
            await transport.sleep(STORE_POLL_INTERVAL)
            return
        if not transport.has_answered or isinstance(error, InvalidResponse):
            raise error
        self._since = self._since or now
        is_first = isinstance(error, ConnectionBroken | ResponseTimeout) and not self._had_broken_connection
        self._had_broken_connection |= is_first
        if not is_first and transport.outage_timeout is not None and now - self._since >= transport.outage_timeout:
            raise error
        await transport.sleep(_POLL_INTERVAL)
