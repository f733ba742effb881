"""Client leases of reservations, without a scheduler. `e2e/test_reservation.py` tests them with one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rota.config import DirectConfig
from rota.direct import leases as direct_leases
from rota.direct.leases import RECONNECT_TIMEOUT, ClientLease, LeaseMonitor
from rota.errors import NotFound, StorageFull
from rota.ids import ReservationId
from rota.kernel.reservations import Reservation

RESERVATION = ReservationId(1)


def make_reservation(number: ReservationId, run: int | None = None) -> Reservation:
    """Return a reservation that depends on no connection."""
    fields: dict[str, Any] = dict.fromkeys(Reservation.__struct_fields__)
    return Reservation(**{**fields, "id": number, "run": run, "has_client": False})


class FakeEngine:
    """Engine that raises the given refusals in turn, then accepts every call."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.call_count = 0
        self.is_accepted = asyncio.Event()

    async def run_in_turn(self, _act: Callable[[Any], Any], /) -> Any:
        self.call_count += 1
        if self.refusals:
            raise self.refusals.pop(0)
        self.is_accepted.set()

    def create_monitor(self, **direct: timedelta) -> LeaseMonitor:
        return LeaseMonitor(self.run_in_turn, lambda: DirectConfig(**direct))


async def has_no_calls(engine: FakeEngine) -> bool:
    """Let pending tasks run, and return whether the engine was not called."""
    for _ in range(10):
        await asyncio.sleep(0)
    return engine.call_count == 0


def test_failed_withdrawal_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservation must not keep its capacity forever because the disk was full."""
    monkeypatch.setattr(direct_leases, "RETRY_DELAY", 0.0)

    async def run() -> int:
        engine = FakeEngine(StorageFull("the disk is full"), StorageFull("the disk is full"))
        monitor = engine.create_monitor()
        with monitor.hold_connection(RESERVATION, ClientLease()):
            pass
        await asyncio.wait_for(engine.is_accepted.wait(), 20)
        return engine.call_count

    assert asyncio.run(run()) == 3


def test_withdrawal_of_missing_reservation_is_not_retried() -> None:
    async def run() -> int:
        engine = FakeEngine(*[NotFound("no such reservation")] * 9)
        with engine.create_monitor().hold_connection(RESERVATION, ClientLease()):
            pass
        await has_no_calls(engine)
        return engine.call_count

    assert asyncio.run(run()) == 1


def test_connection_closed_by_shutdown_withdraws_nothing() -> None:
    async def run() -> bool:
        engine = FakeEngine()
        monitor = engine.create_monitor(lease=timedelta(microseconds=1), wait=timedelta(microseconds=1))
        with monitor.hold_connection(RESERVATION, ClientLease()):
            monitor.close()
        return await has_no_calls(engine)

    assert asyncio.run(run())


def test_ended_reservation_is_not_withdrawn() -> None:
    async def run() -> bool:
        engine = FakeEngine()
        monitor, lease = engine.create_monitor(), ClientLease()
        with monitor.hold_connection(RESERVATION, lease):
            lease.has_ended = True
        return await has_no_calls(engine)

    assert asyncio.run(run())


def test_reservation_is_withdrawn_with_its_last_connection() -> None:
    async def run() -> tuple[bool, int]:
        engine = FakeEngine()
        monitor = engine.create_monitor()
        with monitor.hold_connection(RESERVATION, ClientLease()):
            with monitor.hold_connection(RESERVATION, ClientLease()):
                pass
            is_kept = await has_no_calls(engine)
        await asyncio.wait_for(engine.is_accepted.wait(), 20)
        return is_kept, engine.call_count

    assert asyncio.run(run()) == (True, 1)


def test_clients_can_reconnect_after_a_restart() -> None:
    async def run() -> list[float]:
        monitor = FakeEngine().create_monitor(lease=timedelta(hours=9))
        loop, connected, renewed, absent, running = asyncio.get_running_loop(), *map(ReservationId, (1, 2, 3, 4))
        with monitor.hold_connection(connected, ClientLease()):
            monitor.renew(renewed)
            idle = [make_reservation(number) for number in (connected, renewed, absent)]
            monitor.adopt([*idle, make_reservation(running, run=7)])
            leases = {number: timer.when() - loop.time() for number, timer in monitor._lease_timers.items()}
            monitor.close()
        return [leases.get(number, -1.0) for number in (connected, renewed, absent, running)]

    connected, renewed, absent, running = asyncio.run(run())
    assert connected == -1.0, "a connection has no lease"
    assert renewed > 3600
    assert 0 < absent <= RECONNECT_TIMEOUT.total_seconds()
    assert running > 3600, "it needs no client, so it gets the full lease instead of RECONNECT_TIMEOUT"


def test_wait_is_requested_or_configured() -> None:
    async def run() -> list[float | None]:
        monitor = FakeEngine().create_monitor(wait=timedelta(hours=2))
        monitor.start_wait(ReservationId(1))
        monitor.start_wait(ReservationId(2), timedelta(hours=1))
        remaining = [monitor.remaining_wait(ReservationId(number)) for number in (1, 2, 3)]
        monitor.close()
        return remaining

    configured, requested, unknown = asyncio.run(run())
    assert configured == pytest.approx(7200, abs=60)
    assert requested == pytest.approx(3600, abs=60)
    assert unknown is None
