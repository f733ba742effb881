"""Who may begin: direct executions by arrival, and what they leave to the queue."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from core.making import NOW, lane, lock, rank, snapshot
from rota.core.control import Pause, Pauses, scopes_of
from rota.core.lock import Front, LockBoard, LockMode
from rota.core.pool import Limits, PoolBoard
from rota.core.slot import SlotStanding, owner_of, rank_of, serve, show_owner
from rota.core.tick import plan
from rota.ids import JobId, SlotId

POOLS = ("global", "resource/a", "resource/b")
draws = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 3), min_size=1)


def waiting(number: int, needs: Mapping[str, int], *locks: str) -> SlotStanding:
    scopes = scopes_of(needs, None, None, None)
    return SlotStanding(id=SlotId(number), draws=needs, scopes=scopes, locks=tuple(map(lock, locks)))


def test_a_slot_stands_before_every_job_and_behind_those_that_came_earlier() -> None:
    assert rank_of(SlotId(1)) < rank_of(SlotId(2)) < rank(1, priority=1_000_000, position=-(2**60))
    assert (show_owner(owner_of(SlotId(3))), show_owner(JobId(3))) == ("slot-3", "job-3")


def test_what_a_waiting_slot_reserves_is_not_for_jobs() -> None:
    chosen = plan(
        snapshot(
            lane(1, {"global": 1}, rank(1), rank(2), rank(3)),
            slots=(waiting(1, {"global": 1, "resource/a": 1}),),
            used={"global": 1, "resource/a": 1},
            limits=Limits({"global": 4, "resource/a": 1}),
        )
    )
    assert [claim.job for claim in chosen.claims] == [1, 2]
    assert chosen.slots == ()
    assert chosen.slot_waits[SlotId(1)].detail == "waiting on pool resource/a (1/1)"


def test_workers_are_shared_out_among_slots_and_jobs() -> None:
    chosen = plan(
        snapshot(lane(1, {"global": 1}, rank(1)), slots=(waiting(1, {"global": 1}),), workers=frozenset({1, 3}))
    )
    assert [claim.worker for claim in chosen.slots] == [2]
    assert [claim.worker for claim in chosen.claims] == [4]


def test_of_two_for_one_lock_the_first_has_it() -> None:
    slots = [waiting(1, {}, "repo"), waiting(2, {}, "repo")]
    board = LockBoard({"repo": Front(first=rank_of(SlotId(1)), first_exclusive=rank_of(SlotId(1)))})
    begun, waits = serve(slots, Pauses(), board, PoolBoard(Limits({}), {}))
    assert begun == [1]
    assert waits[SlotId(2)].on == ("lock:repo",)


def test_one_that_a_pause_holds_reserves_nothing_for_those_behind_it() -> None:
    held = Pauses({"resource/a": Pause(by="ann", at=NOW)})
    pools = PoolBoard(Limits({"global": 1}), {})
    begun, waits = serve(
        [waiting(1, {"global": 1, "resource/a": 1}), waiting(2, {"global": 1})], held, LockBoard({}), pools
    )
    assert begun == [2]
    assert waits[SlotId(1)].detail == "paused by ann"


@given(
    needs=st.lists(draws, max_size=6),
    heads=st.lists(draws, max_size=6),
    sizes=st.dictionaries(st.sampled_from(POOLS), st.integers(0, 4)),
    used=st.dictionaries(st.sampled_from(POOLS), st.integers(0, 4)),
)
def test_no_pool_is_exceeded_and_no_job_takes_what_a_slot_waits_for(
    needs: list[dict[str, int]], heads: list[dict[str, int]], sizes: dict[str, int], used: dict[str, int]
) -> None:
    slots = tuple(waiting(n, each) for n, each in enumerate(needs, 1))
    lanes = [lane(n, each, rank(n)) for n, each in enumerate(heads, 1)]
    chosen = plan(snapshot(*lanes, slots=slots, used=used, limits=Limits(sizes)))
    begun = {claim.slot for claim in chosen.slots}
    after = dict(used)
    for each in [needs[slot - 1] for slot in begun] + [heads[claim.job - 1] for claim in chosen.claims]:
        for name, weight in each.items():
            after[name] = after.get(name, 0) + weight
    for name, size in sizes.items():
        assert after.get(name, 0) <= max(size, used.get(name, 0))
    # A job begins only where what is left is enough for every slot that waits and could ever begin.
    patient = [
        slot for slot in slots if slot.id not in begun and all(w <= sizes.get(n, w) for n, w in slot.draws.items())
    ]
    for claim in chosen.claims:
        for name in heads[claim.job - 1]:
            reserved = sum(slot.draws.get(name, 0) for slot in patient)
            assert name not in sizes or not reserved or after[name] + reserved <= sizes[name]
    assert begun | chosen.slot_waits.keys() == {slot.id for slot in slots}


@given(modes=st.lists(st.sampled_from(list(LockMode)), min_size=1, max_size=6), held=st.sampled_from([None, *LockMode]))
def test_one_exclusive_holder_or_many_shared(modes: list[LockMode], held: LockMode | None) -> None:
    slots = [waiting(n, {}, f"repo:{mode}") for n, mode in enumerate(modes, 1)]
    ranks = [rank_of(slot.id) for slot in slots]
    exclusive = [rank for rank, mode in zip(ranks, modes, strict=True) if mode is LockMode.EXCLUSIVE]
    front = Front(held=held, first=ranks[0], first_exclusive=min(exclusive, default=None))
    begun, _ = serve(slots, Pauses(), LockBoard({"repo": front}), PoolBoard(Limits({}), {}))
    holding = [modes[slot - 1] for slot in begun] + [held] * (held is not None)
    assert LockMode.EXCLUSIVE not in holding or len(holding) == 1
