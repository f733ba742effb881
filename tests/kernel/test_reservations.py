"""Reservations: admission in order of arrival, and the capacity that is left to the queue."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId, ReservationId
from rota.kernel.holds import Pause, PauseState, scopes_of
from rota.kernel.locks import LockBoard, LockFront, LockMode
from rota.kernel.pools import PoolBoard, PoolSizes
from rota.kernel.reservations import (
    ReservationCandidate,
    admit_reservations,
    format_owner,
    lock_owner,
    reservation_rank,
)
from rota.kernel.tick import plan
from tests.kernel.factories import NOW, lane, lock, rank, snapshot

POOLS = ("global", "resource/a", "resource/b")
demands = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 3), min_size=1)


def candidate(number: int, demand: Mapping[str, int], *locks: str) -> ReservationCandidate:
    scopes = scopes_of(demand, None, None, None)
    return ReservationCandidate(id=ReservationId(number), demand=demand, scopes=scopes, locks=tuple(map(lock, locks)))


def test_reservations_rank_before_jobs_in_arrival_order() -> None:
    assert (
        reservation_rank(ReservationId(1))
        < reservation_rank(ReservationId(2))
        < rank(1, priority=1_000_000, position=-(2**60))
    )
    assert (format_owner(lock_owner(ReservationId(3))), format_owner(JobId(3))) == ("reservation-3", "job-3")


def test_jobs_cannot_use_reserved_room() -> None:
    chosen = plan(
        snapshot(
            lane(1, {"global": 1}, rank(1), rank(2), rank(3)),
            reservations=(candidate(1, {"global": 1, "resource/a": 1}),),
            pool_usage={"global": 1, "resource/a": 1},
            pool_sizes=PoolSizes({"global": 4, "resource/a": 1}),
        )
    )
    assert [claim.job for claim in chosen.claims] == [1, 2]
    assert chosen.reservations == ()
    assert chosen.reservation_waits[ReservationId(1)].detail == "waiting on pool resource/a (1/1)"


def test_reservations_and_jobs_share_worker_numbers() -> None:
    chosen = plan(
        snapshot(
            lane(1, {"global": 1}, rank(1)), reservations=(candidate(1, {"global": 1}),), busy_workers=frozenset({1, 3})
        )
    )
    assert [claim.worker for claim in chosen.reservations] == [2]
    assert [claim.worker for claim in chosen.claims] == [4]


def test_first_of_two_reservations_gets_the_lock() -> None:
    reservations = [candidate(1, {}, "repo"), candidate(2, {}, "repo")]
    board = LockBoard(
        {
            "repo": LockFront(
                first=reservation_rank(ReservationId(1)), first_exclusive=reservation_rank(ReservationId(1))
            )
        }
    )
    started, waits = admit_reservations(reservations, PauseState(), board, PoolBoard(PoolSizes({}), {}))
    assert started == [1]
    assert waits[ReservationId(2)].on == ("lock:repo",)


def test_paused_reservation_reserves_no_room() -> None:
    held = PauseState({"resource/a": Pause(actor="ann", at=NOW)})
    pools = PoolBoard(PoolSizes({"global": 1}), {})
    started, waits = admit_reservations(
        [candidate(1, {"global": 1, "resource/a": 1}), candidate(2, {"global": 1})], held, LockBoard({}), pools
    )
    assert started == [2]
    assert waits[ReservationId(1)].detail == "paused by ann"


@given(
    reserved=st.lists(demands, max_size=6),
    heads=st.lists(demands, max_size=6),
    sizes=st.dictionaries(st.sampled_from(POOLS), st.integers(0, 4)),
    used=st.dictionaries(st.sampled_from(POOLS), st.integers(0, 4)),
)
def test_pools_are_not_exceeded_and_jobs_leave_reserved_room(
    reserved: list[dict[str, int]], heads: list[dict[str, int]], sizes: dict[str, int], used: dict[str, int]
) -> None:
    reservations = tuple(candidate(n, demand) for n, demand in enumerate(reserved, 1))
    lanes = [lane(n, demand, rank(n)) for n, demand in enumerate(heads, 1)]
    chosen = plan(snapshot(*lanes, reservations=reservations, pool_usage=used, pool_sizes=PoolSizes(sizes)))
    started = {claim.reservation for claim in chosen.reservations}
    after = dict(used)
    for demand in [reserved[reservation - 1] for reservation in started] + [
        heads[claim.job - 1] for claim in chosen.claims
    ]:
        for name, weight in demand.items():
            after[name] = after.get(name, 0) + weight
    for name, size in sizes.items():
        assert after.get(name, 0) <= max(size, used.get(name, 0))
    # A job starts only if the remaining room is enough for every waiting reservation that could ever start.
    waiting = [
        reservation
        for reservation in reservations
        if reservation.id not in started and all(w <= sizes.get(n, w) for n, w in reservation.demand.items())
    ]
    for claim in chosen.claims:
        for name in heads[claim.job - 1]:
            held_back = sum(reservation.demand.get(name, 0) for reservation in waiting)
            assert name not in sizes or not held_back or after[name] + held_back <= sizes[name]
    assert started | chosen.reservation_waits.keys() == {reservation.id for reservation in reservations}


@given(modes=st.lists(st.sampled_from(list(LockMode)), min_size=1, max_size=6), held=st.sampled_from([None, *LockMode]))
def test_admitted_reservations_have_no_lock_conflicts(modes: list[LockMode], held: LockMode | None) -> None:
    reservations = [candidate(n, {}, f"repo:{mode}") for n, mode in enumerate(modes, 1)]
    ranks = [reservation_rank(reservation.id) for reservation in reservations]
    exclusive = [rank for rank, mode in zip(ranks, modes, strict=True) if mode is LockMode.EXCLUSIVE]
    front = LockFront(held=held, first=ranks[0], first_exclusive=min(exclusive, default=None))
    started, _ = admit_reservations(
        reservations, PauseState(), LockBoard({"repo": front}), PoolBoard(PoolSizes({}), {})
    )
    holding = [modes[reservation - 1] for reservation in started] + [held] * (held is not None)
    assert LockMode.EXCLUSIVE not in holding or len(holding) == 1
