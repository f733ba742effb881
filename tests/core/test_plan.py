"""The plan: which ready jobs start, against a naive walk down the whole queue (INV-003, INV-004, DEC-011)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import NOW, lane, rank, snapshot
from rota.core.breaker import HALF_OPEN, Breakers, Open, Probed
from rota.core.control import Pause, Pauses
from rota.core.pool import Limits
from rota.core.queue import Rank
from rota.core.snapshot import Lane, Snapshot
from rota.core.tick import Plan, bound, plan
from rota.core.verdict import Pass
from rota.ids import JobId

ONE = {"global": 1}


def _started(plan: Plan) -> list[int]:
    return [claim.job for claim in plan.claims]


def _limited(*lanes: Lane, sizes: Mapping[str, int], **fields: Any) -> Plan:
    return plan(snapshot(*lanes, limits=Limits(sizes), **fields))


def test_nothing_to_start() -> None:
    empty = plan(snapshot())
    assert (empty.claims, empty.bound_by, empty.is_cut_short) == ((), "none", False)


def test_inv_004_lanes_are_merged_in_queue_order() -> None:
    plan_ = plan(
        snapshot(
            lane(1, ONE, rank(2, priority=5), rank(1), rank(6)), lane(2, {"global": 1, "flow/a": 1}, rank(3), rank(4))
        )
    )
    assert _started(plan_) == [2, 1, 3, 4, 6]
    assert [claim.lane for claim in plan_.claims] == [1, 1, 2, 2, 1]
    assert (plan_.bound_by, plan_.is_cut_short) == ("ready", False)


def test_dec_011_one_at_a_time_by_default() -> None:
    waiting = lane(1, ONE, rank(1), rank(2))
    first = _limited(waiting, sizes=ONE)
    assert (_started(first), first.bound_by) == ([1], "capacity")
    full = _limited(waiting, sizes=ONE, used=ONE)
    assert (_started(full), full.bound_by) == ([], "capacity")


@pytest.mark.parametrize(("size", "started"), [(-1, [1, 2, 3]), (0, []), (2, [1, 2]), (3, [1, 2, 3])])
def test_dec_011_as_many_as_there_is_room_for(size: int, started: list[int]) -> None:
    plan_ = _limited(lane(1, ONE, rank(1), rank(2), rank(3)), sizes={"global": size})
    assert _started(plan_) == started
    assert plan_.bound_by == ("ready" if size == -1 else "capacity")


def test_a_full_pool_in_front_does_not_hold_up_those_that_do_not_draw_from_it() -> None:
    busy = lane(1, {"global": 1, "flow/a": 1}, rank(1))
    free = lane(2, {"global": 1, "flow/b": 1}, rank(2))
    plan_ = _limited(busy, free, sizes={"global": 9, "flow/*": 1}, used={"global": 1, "flow/a": 1})
    assert (_started(plan_), plan_.bound_by) == ([2], "capacity")


def test_a_heavy_job_is_not_starved_by_light_ones() -> None:
    """It closes the pool it lacks room in to those behind it, and not the pool where it had room."""
    heavy = lane(1, {"resource/cpu": 1, "resource/gpu": 3}, rank(1))
    light = lane(2, {"resource/gpu": 1}, rank(2))
    other = lane(3, {"resource/cpu": 1}, rank(3))
    plan_ = _limited(heavy, light, other, sizes={"resource/gpu": 3, "resource/cpu": 2}, used={"resource/gpu": 1})
    assert _started(plan_) == [3]
    assert not isinstance(plan_.pools.judge(light.draws), Pass)


def test_a_light_job_before_a_heavy_one_starts() -> None:
    heavy, light = lane(1, {"resource/gpu": 3}, rank(2)), lane(2, {"resource/gpu": 1}, rank(1))
    assert _started(_limited(heavy, light, sizes={"resource/gpu": 3})) == [1]


def test_a_job_that_can_never_fit_closes_its_pool_but_stops_nothing_else() -> None:
    giant = lane(1, {"global": 1, "resource/gpu": 9}, rank(1))
    small = lane(2, ONE, rank(2))
    assert _started(_limited(giant, small, sizes={"global": 2, "resource/gpu": 3})) == [2]


def test_the_horizon_holds_back_everything_at_or_behind_it() -> None:
    """A job that has not been looked at may be entitled to what stands behind it."""
    queue = lane(1, ONE, rank(1), rank(2), rank(3))
    for horizon, started in ((rank(1), []), (rank(2), [1]), (rank(3), [1, 2])):
        plan_ = plan(snapshot(queue, horizon=horizon))
        assert (_started(plan_), plan_.is_cut_short) == (started, True)
    beyond = plan(snapshot(queue, horizon=rank(4)))
    assert (_started(beyond), beyond.is_cut_short) == ([1, 2, 3], True)


@pytest.mark.parametrize("lanes", [(), (lane(1, {"flow/full": 1}, rank(1)),)])
def test_while_jobs_are_owed_a_look_another_tick_follows_even_if_nothing_can_start(lanes: Sequence[Lane]) -> None:
    """Otherwise they would wait for an event that need not come."""
    owed = _limited(*lanes, sizes={"flow/full": 0}, horizon=rank(9))
    assert (owed.claims, owed.is_cut_short) == ((), True)
    assert not _limited(*lanes, sizes={"flow/full": 0}).is_cut_short


@pytest.mark.parametrize(
    ("batch", "started", "bound_by", "is_cut_short"),
    [
        (1, [1], "batch", True),
        (2, [1, 2], "batch", True),
        (3, [1, 2, 3], "batch", False),
        (4, [1, 2, 3], "ready", False),
        (None, [1, 2, 3], "ready", False),
    ],
)
def test_a_batch_bounds_the_number_of_starts(
    batch: int | None, started: list[int], bound_by: str, is_cut_short: bool
) -> None:
    plan_ = plan(snapshot(lane(1, ONE, rank(1), rank(2), rank(3)), batch_size=batch))
    assert (_started(plan_), plan_.bound_by, plan_.is_cut_short) == (started, bound_by, is_cut_short)


def test_a_batch_that_is_done_speaks_though_nothing_more_would_fit_and_no_other_tick_follows() -> None:
    plan_ = _limited(lane(1, ONE, rank(1), rank(2)), sizes=ONE, batch_size=1)
    assert (_started(plan_), plan_.bound_by, plan_.is_cut_short) == ([1], "batch", False)


BOUNDS = [
    (5, 3, 0, 0, 0, "none"),
    (-1, 3, 10, 0, 10, "capacity"),
    (0, 3, 10, 0, 10, "capacity"),
    (2, 3, 10, 2, 8, "capacity"),
    (10, 3, 10, 3, 7, "batch"),
    (10, 5, 2, 2, 0, "ready"),
    (3, 3, 3, 3, 0, "batch"),
    (10, 3, 1, 1, 0, "ready"),
    (1, 3, 10, 1, 9, "capacity"),
]


@pytest.mark.parametrize(("capacity", "batch", "ready", "n", "skipped", "reason"), BOUNDS)
def test_the_number_of_starts_is_the_least_of_capacity_batch_and_ready(
    capacity: int, batch: int, ready: int, n: int, skipped: int, reason: str
) -> None:
    assert bound(capacity, batch, ready) == (n, skipped, reason)


@pytest.mark.parametrize(
    ("capacity", "batch", "ready", "said"),
    [
        (None, None, 0, (0, 0, "none")),
        (None, None, 4, (4, 0, "ready")),
        (4, None, 4, (4, 0, "capacity")),
        (5, None, 4, (4, 0, "ready")),
        (None, 4, 9, (4, 5, "batch")),
        (0, None, 9, (0, 9, "capacity")),
    ],
)
def test_none_is_no_bound(capacity: int | None, batch: int | None, ready: int, said: tuple[int, int, str]) -> None:
    assert bound(capacity, batch, ready) == said


@given(st.integers(-3, 12), st.none() | st.integers(1, 12), st.integers(0, 12), st.booleans())
def test_the_plan_over_one_pool_says_what_the_formula_says(
    capacity: int, batch: int | None, ready: int, is_split: bool
) -> None:
    """Over one lane or two that draw from the same pool; what was lowered below what runs is less than no room."""
    ranks = [rank(job) for job in range(1, ready + 1)]
    halves = (ranks[::2], ranks[1::2]) if is_split else (ranks, [])
    lanes = [lane(n, {"global": 1, f"flow/{n}": 1}, *half) for n, half in enumerate(halves) if half]
    size = max(capacity, 0)
    made = _limited(*lanes, sizes={"global": size}, used={"global": size - capacity}, batch_size=batch)
    n, _skipped, reason = bound(capacity, batch, ready)
    assert (len(made.claims), made.bound_by) == (n, reason)


def test_what_is_held_is_not_ready() -> None:
    pauses = Pauses({"flow/a": Pause(by="ann", at=NOW)})
    held = lane(1, {"global": 1, "flow/a": 1}, rank(1))
    assert plan(snapshot(held, pauses=pauses)).bound_by == "none"
    both = _limited(held, lane(2, ONE, rank(2)), sizes={"global": 9}, pauses=pauses)
    assert (_started(both), both.bound_by) == ([2], "ready")


def test_a_full_global_speaks_though_no_lane_is_shown() -> None:
    full = _limited(sizes=ONE, used=ONE, has_ready=True)
    assert (full.claims, full.bound_by) == ((), "capacity")
    paused = Pauses({"global": Pause(by="ann", at=NOW)})
    assert _limited(sizes=ONE, used=ONE, has_ready=True, pauses=paused).bound_by == "none"


def test_a_lane_that_has_more_than_is_known_cuts_the_plan_short() -> None:
    """Who comes next is not known: a job of another lane might be behind it."""
    plan_ = plan(snapshot(lane(1, ONE, rank(1), rank(2), has_more=True), lane(2, {"flow/a": 1}, rank(9))))
    assert (_started(plan_), plan_.is_cut_short) == ([1, 2], True)


def test_a_lane_that_does_not_fit_is_left_whole_however_long_it_is() -> None:
    plan_ = _limited(
        lane(1, {"flow/a": 1}, rank(1), has_more=True), lane(2, {"flow/b": 1}, rank(2)), sizes={"flow/a": 0}
    )
    assert (_started(plan_), plan_.is_cut_short) == ([2], False)


def test_a_paused_lane_does_not_start_and_closes_nothing() -> None:
    pauses = Pauses({"type/story": Pause(by="ann", at=NOW)})
    paused = lane(1, {"resource/gpu": 3, "type/story": 1}, rank(1))
    light = lane(2, {"resource/gpu": 1}, rank(2))
    plan_ = _limited(paused, light, sizes={"resource/gpu": 2}, pauses=pauses)
    assert _started(plan_) == [2]
    assert _started(_limited(light, sizes={}, pauses=Pauses({"global": Pause(by="ann", at=NOW)}))) == []


X, Y, BOTH = ("type/x",), ("target/y",), ("type/x", "target/y")


@pytest.mark.parametrize("state", [Open(NOW), Probed(JobId(99))])
def test_a_lane_under_an_open_breaker_does_not_start_and_closes_nothing(state: Open | Probed) -> None:
    pauses = Pauses(breakers=Breakers({"type/x": state}))
    held = [lane(1, {"resource/gpu": 3}, rank(1), keys=X), lane(2, {"resource/gpu": 1}, rank(2), keys=BOTH)]
    free = [lane(3, {"resource/gpu": 1}, rank(3), keys=Y), lane(4, {"type/x": 1}, rank(4))]
    assert _started(_limited(*held, *free, sizes={"resource/gpu": 2}, pauses=pauses)) == [3, 4]


def test_a_half_open_breaker_lets_the_first_in_the_order_through_over_all_its_lanes_and_no_other() -> None:
    pauses = Pauses(breakers=Breakers({"type/x": HALF_OPEN}))
    lanes = [
        lane(1, ONE, rank(2), rank(4), keys=X),
        lane(2, ONE, rank(1), rank(5), keys=("type/x", "target/z")),
        lane(3, ONE, rank(3), rank(6)),
    ]
    chosen = plan(snapshot(*lanes, pauses=pauses))
    assert [(claim.job, claim.probes) for claim in chosen.claims] == [(1, X), (3, ()), (6, ())]
    assert chosen.pauses.breakers.states == {"type/x": Probed(JobId(1))}
    assert not chosen.is_cut_short


def test_one_job_can_try_for_its_type_and_its_target() -> None:
    pauses = Pauses(breakers=Breakers({"type/x": HALF_OPEN, "target/y": HALF_OPEN}))
    chosen = plan(snapshot(lane(1, ONE, rank(1), rank(2), keys=BOTH), lane(2, ONE, rank(3), keys=Y), pauses=pauses))
    assert [(claim.job, claim.probes) for claim in chosen.claims] == [(1, BOTH)]


def test_one_that_may_not_try_for_its_target_does_not_try_for_its_type() -> None:
    pauses = Pauses(breakers=Breakers({"type/x": HALF_OPEN, "target/y": Open(NOW)}))
    chosen = plan(snapshot(lane(1, ONE, rank(1), keys=BOTH), lane(2, ONE, rank(2), keys=X), pauses=pauses))
    assert [(claim.job, claim.probes) for claim in chosen.claims] == [(2, X)]


def test_one_that_finds_no_room_is_not_the_one_that_tries() -> None:
    pauses = Pauses(breakers=Breakers({"type/x": HALF_OPEN}))
    lanes = (lane(1, {"resource/gpu": 3}, rank(1), keys=X), lane(2, ONE, rank(2), keys=X))
    assert [
        (claim.job, claim.probes) for claim in _limited(*lanes, sizes={"resource/gpu": 2}, pauses=pauses).claims
    ] == [(2, X)]


def test_inv_003_workers_are_the_smallest_free_numbers() -> None:
    plan_ = plan(snapshot(lane(1, ONE, rank(1), rank(2), rank(3), rank(4)), workers=frozenset({1, 3, 6})))
    assert [claim.worker for claim in plan_.claims] == [2, 4, 5, 7]


# The oracle: every ready job, sorted, one after the other, with nothing known of lanes.

POOLS = ("global", "flow/a", "flow/b", "resource/x")
draws = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 3), min_size=1, max_size=3)
sizes = st.dictionaries(
    st.sampled_from(["global", "flow/*", "flow/b", "resource/x"]), st.sampled_from([3, 2, 4, 1, 5, 0, -1])
)


def _seldom(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What ends a walk early is drawn in one world of four, so that most walks get far."""
    return st.sampled_from(range(4)).flatmap(lambda n: values if n == 3 else st.none())


class World(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: Snapshot
    whole: dict[Rank, Lane]
    """Every ready job, those included that the snapshot does not show."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    demands = draw(st.lists(draws, min_size=1, max_size=5, unique_by=lambda each: tuple(sorted(each.items()))))
    jobs = draw(st.lists(st.tuples(st.integers(0, len(demands) - 1), st.integers(-1, 1)), max_size=14))
    members: list[list[Rank]] = [[] for _ in demands]
    for job, (number, priority) in enumerate(jobs, 1):
        members[number].append(rank(job, priority))
    lanes, whole = [], {}
    for number, (demand, ranks) in enumerate(zip(demands, members, strict=True)):
        if ranks:
            known = draw(_seldom(st.integers(1, len(ranks)))) or len(ranks)
            heads = sorted(ranks)[:known]
            lanes.append(lane(number, demand, *heads, has_more=known < len(ranks)))
            whole.update(dict.fromkeys(ranks, lanes[-1]))
    return World(
        snapshot=snapshot(
            *draw(st.permutations(lanes)),
            limits=Limits(draw(sizes)),
            used=draw(st.dictionaries(st.sampled_from(POOLS), st.integers(0, 2))),
            workers=draw(st.frozensets(st.integers(1, 6))),
            batch_size=draw(_seldom(st.integers(1, 5))),
            horizon=draw(_seldom(st.builds(rank, st.integers(1, 15), st.integers(-1, 1)))),
            pauses=Pauses({scope: Pause(by="ann", at=NOW) for scope in draw(st.sampled_from([(), (), ("flow/a",)]))}),
        ),
        whole=whole,
    )


class Walk(msgspec.Struct, kw_only=True):
    started: list[Rank]
    refused: list[Rank]
    """Not held, and no room for them."""
    has_room: bool
    """Another like one of these would have fitted."""
    is_cut_short: bool


def _walk(world: World) -> Walk:
    """One job after the other. Who lacks room closes those pools to all behind it; who finds a pool closed, or is
    paused, is passed over. It ends at the horizon, before one too many for the batch, and where a lane's known
    heads have all been started while there are more of them."""
    facts = world.snapshot
    used, closed = dict(facts.used), set[str]()
    is_cut_short = facts.horizon is not None
    walk = Walk(started=[], refused=[], has_room=False, is_cut_short=is_cut_short)
    for job in sorted(world.whole):
        wanted = world.whole[job].draws
        if facts.horizon is not None and not job < facts.horizon:
            break
        lacking = {name for name, weight in wanted.items() if _lacks(facts.limits, used, name, weight)}
        is_paused = any(scope in facts.pauses.scopes for scope in wanted)
        if is_paused:
            continue
        if closed & wanted.keys() or lacking:
            walk.refused.append(job)
            closed |= set() if closed & wanted.keys() else lacking
            continue
        if len(walk.started) == facts.batch_size:
            walk.is_cut_short = True
            break
        walk.started.append(job)
        used.update({name: used.get(name, 0) + weight for name, weight in wanted.items()})
        if world.whole[job].has_more and job == world.whole[job].heads[-1]:
            walk.is_cut_short = True
            break
    walk.has_room = any(
        not closed & each.draws.keys()
        and not any(_lacks(facts.limits, used, name, weight) for name, weight in each.draws.items())
        for each in facts.lanes
        if not any(scope in facts.pauses.scopes for scope in each.draws)
    )
    return walk


def _reason(world: World, walk: Walk) -> str:
    """By the formula: of all jobs that are not held and not beyond what may be seen yet."""
    started, batch = len(walk.started), world.snapshot.batch_size
    if started == batch:
        return "batch"
    is_out_of_sight = walk.started and any(
        each.has_more and each.heads[-1] == walk.started[-1] for each in world.snapshot.lanes
    )
    if is_out_of_sight:
        return "batch"
    return bound(started + (walk.has_room and not walk.refused), batch, started + len(walk.refused))[2]


def _lacks(limits: Limits, used: Mapping[str, int], name: str, weight: int) -> bool:
    size = limits.sizes.get(name, limits.sizes.get(f"{name.split('/', maxsplit=1)[0]}/*", -1))
    return size >= 0 and used.get(name, 0) + weight > size


@given(worlds())
def test_inv_004_the_plan_is_a_naive_walk_down_the_whole_order(world: World) -> None:
    made, walk = plan(world.snapshot), _walk(world)
    assert _started(made) == [job.job for job in walk.started]
    assert made.is_cut_short is walk.is_cut_short
    assert made.bound_by == _reason(world, walk)


@given(worlds())
def test_inv_004_starts_are_in_queue_order_and_each_from_its_own_lane(world: World) -> None:
    claims = plan(world.snapshot).claims
    by_job = {job.job: job for job in world.whole}
    started = [by_job[claim.job] for claim in claims]
    assert started == sorted(set(started))
    assert [claim.lane for claim in claims] == [world.whole[job].id for job in started]


@given(worlds())
def test_inv_003_no_worker_gets_two_jobs(world: World) -> None:
    workers = [claim.worker for claim in plan(world.snapshot).claims]
    free = (number for number in count(1) if number not in world.snapshot.workers)
    assert workers == list(islice(free, len(workers)))


@given(worlds())
def test_dec_011_a_plan_never_exceeds_a_pool(world: World) -> None:
    made = plan(world.snapshot)
    for name in POOLS:
        size, before = world.snapshot.limits.size(name), world.snapshot.used.get(name, 0)
        taken = sum(world.snapshot.lanes[_index(world, claim.lane)].draws.get(name, 0) for claim in made.claims)
        assert made.pools.used(name) == before + taken
        assert size is None or taken == 0 or before + taken <= size


def _index(world: World, number: int) -> int:
    return next(index for index, each in enumerate(world.snapshot.lanes) if each.id == number)


@given(worlds())
def test_a_plan_that_is_not_cut_short_leaves_nothing_that_could_start(world: World) -> None:
    """Without a pause: what is left is told by the same boards why, so no job is left that nothing holds."""
    facts = msgspec.structs.replace(world.snapshot, pauses=Pauses())
    made = plan(facts)
    if made.is_cut_short:
        return
    started = {claim.job for claim in made.claims}
    left: Sequence[Rank] = [job for job in world.whole if job.job not in started]
    assert all(not isinstance(made.pools.judge(world.whole[job].draws), Pass) for job in left)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_lanes_does_not_matter(world: World, random: Any) -> None:
    lanes = list(world.snapshot.lanes)
    random.shuffle(lanes)
    turned = msgspec.structs.replace(world.snapshot, lanes=tuple(lanes))
    assert plan(turned).claims == plan(world.snapshot).claims
