"""Leases of direct executions: whether a reservation still has a client.

    the connection that it depends on is open         present
    this connection closes                            withdrawn immediately: a killed client leaves nothing behind
    never had a connection, and a client polls        present
    never had a connection, and its client is silent  withdrawn after `lease`, unless it runs a command
    the scheduler restarts                            30 s for its client to reconnect, then withdrawn
    it does not start within `wait`                   abandoned, even if its client is present

The state is in memory, in the process that serves the connections. Times are monotonic: the leases do not depend on a
clock that can be set, and apply while the scheduler runs, not at its next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from rota.config import DirectConfig
from rota.direct.commands import abandon, expire, withdraw
from rota.duration import format_duration
from rota.engine.calls import RunInTurnAsync
from rota.engine.transaction import Transaction
from rota.errors import NotFound, RotaError
from rota.ids import ReservationId, format_reservation_id
from rota.kernel.reservations import Reservation

log = logging.getLogger("rota.http")

RECONNECT_TIMEOUT = timedelta(seconds=30)
"""Time after the scheduler's start in which the clients of earlier reservations can reconnect."""
CLIENT_GONE = "its client disconnected"
WAIT_EXPIRED = "it did not start in time"
RETRY_DELAY = 1.0
"""Seconds before a withdrawal that could not be stored is repeated."""


class ClientLease:
    """Connection that a reservation depends on."""

    has_ended = False
    """Whether the reservation has ended, so that it cannot be withdrawn."""


class LeaseMonitor:
    """Monitor of the leases, on the event loop only."""

    def __init__(self, run_in_turn: RunInTurnAsync, direct: Callable[[], DirectConfig]) -> None:
        self._run_in_turn = run_in_turn
        self._direct = direct
        self._connections: Counter[ReservationId] = Counter()
        self._polls: Counter[ReservationId] = Counter()
        self._lease_timers: dict[ReservationId, asyncio.TimerHandle] = {}
        """Timers of the maximum silence of a client."""
        self._wait_timers: dict[ReservationId, asyncio.TimerHandle] = {}
        """Timers of the maximum wait for a start."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.expired_count = 0
        """Number of reservations from before the start whose client did not reconnect."""

    def start_wait(self, reservation: ReservationId, wait: timedelta | None = None) -> None:
        """Start the wait of a new reservation, or of one whose client has reconnected and says how long it waits."""
        self.renew(reservation)
        limit = self._direct().wait if wait is None else wait
        _restart_timer(self._wait_timers, reservation, limit, partial(self._expire_wait, reservation))

    def remaining_wait(self, reservation: ReservationId) -> float | None:
        """Return the seconds for which the reservation may still wait."""
        timer = self._wait_timers.get(reservation)
        return None if timer is None else max(0.0, timer.when() - asyncio.get_running_loop().time())

    def adopt(self, reservations: Iterable[Reservation]) -> None:
        """Monitor the reservations from before the scheduler's start. Some clients may have reconnected already. A
        reservation that runs a command and never depended on a connection needs no client."""
        for record in reservations:
            reservation = record.id
            if reservation in self._wait_timers:
                continue
            has_client = self._connections[reservation] or self._polls[reservation] or reservation in self._lease_timers
            self.start_wait(reservation)
            if not has_client and (record.has_client or record.run is None):
                _restart_timer(
                    self._lease_timers, reservation, RECONNECT_TIMEOUT, partial(self._expire_unclaimed, reservation)
                )

    def renew(self, reservation: ReservationId) -> None:
        """Restart the lease, because the client has sent a request."""
        if not self._connections[reservation] and not self._polls[reservation] and not self._is_closed:
            lease = self._direct().lease
            reason = f"its client was silent for {format_duration(lease)}"
            _restart_timer(self._lease_timers, reservation, lease, partial(self._expire_lease, reservation, reason))

    def forget(self, reservation: ReservationId) -> None:
        """Cancel the timers of a reservation that has ended."""
        for timers in (self._lease_timers, self._wait_timers):
            if reservation in timers:
                timers.pop(reservation).cancel()

    @contextmanager
    def hold_connection(self, reservation: ReservationId, lease: ClientLease) -> Iterator[None]:
        """Hold a connection that the reservation depends on. It is withdrawn when its last connection closes."""
        self._connections[reservation] += 1
        self._cancel_lease_timer(reservation)
        try:
            yield
        finally:
            self._connections[reservation] -= 1
            is_last = not self._connections[reservation]
            if is_last:
                del self._connections[reservation]
            if lease.has_ended:
                self.forget(reservation)
            elif is_last:
                self._withdraw(reservation, CLIENT_GONE)

    @contextmanager
    def hold_poll(self, reservation: ReservationId) -> Iterator[None]:
        """Hold a request that waits for a change of the reservation. Any client can send one, so it does not keep a
        reservation that depends on a connection."""
        self._polls[reservation] += 1
        self._cancel_lease_timer(reservation)
        try:
            yield
        finally:
            self._polls[reservation] -= 1
            if not self._polls[reservation]:
                del self._polls[reservation]
                self.renew(reservation)

    def close(self) -> None:
        """Stop all timers, because the scheduler is stopping: connections that close now are not closed by clients."""
        self._is_closed = True
        for timer in (*self._lease_timers.values(), *self._wait_timers.values()):
            timer.cancel()

    def _cancel_lease_timer(self, reservation: ReservationId) -> None:
        if reservation in self._lease_timers:
            self._lease_timers.pop(reservation).cancel()

    def _expire_wait(self, reservation: ReservationId) -> None:
        self._wait_timers.pop(reservation, None)
        self._start_task(reservation, partial(abandon, reservation=reservation, reason=WAIT_EXPIRED))

    def _expire_unclaimed(self, reservation: ReservationId) -> None:
        reason = f"its client did not reconnect within {format_duration(RECONNECT_TIMEOUT)} of the scheduler's start"

        def expire(tx: Transaction) -> None:
            record = tx.reservations.find(reservation)
            if record is not None and record.finished_at is None:
                withdraw(tx, reservation, reason=reason)
                tx.effects.on_commit.append(self._count_expired)

        self.forget(reservation)
        self._start_task(reservation, expire)

    def _count_expired(self) -> None:
        """Count a reservation, after the commit and in the engine's thread."""
        self.expired_count += 1

    def _expire_lease(self, reservation: ReservationId, reason: str) -> None:
        self._lease_timers.pop(reservation, None)
        self._start_task(reservation, partial(expire, reservation=reservation, reason=reason))

    def _withdraw(self, reservation: ReservationId, reason: str) -> None:
        self.forget(reservation)
        self._start_task(reservation, partial(withdraw, reservation=reservation, reason=reason))

    def _start_task(self, reservation: ReservationId, operation: Callable[[Transaction], Any]) -> None:
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._run_with_retry(reservation, operation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_with_retry(self, reservation: ReservationId, operation: Callable[[Transaction], Any]) -> None:
        """Run an operation until it is stored. A full disk must not keep a place forever."""
        while not self._is_closed:
            try:
                await self._run_in_turn(operation)
            except NotFound:
                return
            except RotaError as error:
                log.warning("cannot withdraw %s, retrying: %s", format_reservation_id(reservation), error.message)
                await asyncio.sleep(RETRY_DELAY)
            else:
                return


def _restart_timer(
    timers: dict[ReservationId, asyncio.TimerHandle],
    reservation: ReservationId,
    delay: timedelta,
    callback: Callable[[], Any],
) -> None:
    if reservation in timers:
        timers[reservation].cancel()
    timers[reservation] = asyncio.get_running_loop().call_later(delay.total_seconds(), callback)
