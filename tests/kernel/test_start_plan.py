"""The plan: which ready jobs start, compared with a naive walk down the whole queue (INV-003, INV-004, DEC-011)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId
from rota.kernel.breaker import HALF_OPEN, BreakerStates, OpenState, ProbingState
from rota.kernel.holds import Pause, PauseState
from rota.kernel.lanes import Lane, Snapshot
from rota.kernel.pools import PoolSizes
from rota.kernel.queue import Rank
from rota.kernel.tick import StartPlan, compute_bound, plan
from rota.kernel.verdict import Pass
from tests.kernel.factories import NOW, lane, rank, snapshot

ONE = {"global": 1}


def _started(plan: StartPlan) -> list[int]:
    return [claim.job for claim in plan.claims]


def _limited(*lanes: Lane, sizes: Mapping[str, int], **fields: Any) -> StartPlan:
    return plan(snapshot(*lanes, pool_sizes=PoolSizes(sizes), **fields))


def test_empty_snapshot_plans_nothing() -> None:
    empty = plan(snapshot())
    assert (empty.claims, empty.bound_by, empty.is_truncated) == ((), "none", False)


def test_inv_004_lanes_are_merged_in_queue_order() -> None:
    plan_ = plan(
        snapshot(
            lane(1, ONE, rank(2, priority=5), rank(1), rank(6)), lane(2, {"global": 1, "flow/a": 1}, rank(3), rank(4))
        )
    )
    assert _started(plan_) == [2, 1, 3, 4, 6]
    assert [claim.lane for claim in plan_.claims] == [1, 1, 2, 2, 1]
    assert (plan_.bound_by, plan_.is_truncated) == ("ready", False)


def test_dec_011_one_job_at_a_time_by_default() -> None:
    waiting = lane(1, ONE, rank(1), rank(2))
    first = _limited(waiting, sizes=ONE)
    assert (_started(first), first.bound_by) == ([1], "capacity")
    full = _limited(waiting, sizes=ONE, pool_usage=ONE)
    assert (_started(full), full.bound_by) == ([], "capacity")


@pytest.mark.parametrize(("size", "started"), [(-1, [1, 2, 3]), (0, []), (2, [1, 2]), (3, [1, 2, 3])])
def test_dec_011_pool_size_limits_starts(size: int, started: list[int]) -> None:
    plan_ = _limited(lane(1, ONE, rank(1), rank(2), rank(3)), sizes={"global": size})
    assert _started(plan_) == started
    assert plan_.bound_by == ("ready" if size == -1 else "capacity")


def test_full_pool_does_not_hold_up_jobs_of_other_pools() -> None:
    busy = lane(1, {"global": 1, "flow/a": 1}, rank(1))
    free = lane(2, {"global": 1, "flow/b": 1}, rank(2))
    plan_ = _limited(busy, free, sizes={"global": 9, "flow/*": 1}, pool_usage={"global": 1, "flow/a": 1})
    assert (_started(plan_), plan_.bound_by) == ([2], "capacity")


def test_heavy_job_is_not_starved_by_light_jobs() -> None:
    """The heavy job closes the pool in which it lacks room, but not the pool in which it had room."""
    heavy = lane(1, {"resource/cpu": 1, "resource/gpu": 3}, rank(1))
    light = lane(2, {"resource/gpu": 1}, rank(2))
    other = lane(3, {"resource/cpu": 1}, rank(3))
    plan_ = _limited(heavy, light, other, sizes={"resource/gpu": 3, "resource/cpu": 2}, pool_usage={"resource/gpu": 1})
    assert _started(plan_) == [3]
    assert not isinstance(plan_.pools.judge(light.demand), Pass)


def test_light_job_before_heavy_job_starts() -> None:
    heavy, light = lane(1, {"resource/gpu": 3}, rank(2)), lane(2, {"resource/gpu": 1}, rank(1))
    assert _started(_limited(heavy, light, sizes={"resource/gpu": 3})) == [1]


def test_oversized_job_does_not_hold_up_others() -> None:
    giant = lane(1, {"global": 1, "resource/gpu": 9}, rank(1))
    small = lane(2, ONE, rank(2))
    assert _started(_limited(giant, small, sizes={"global": 2, "resource/gpu": 3})) == [2]


def test_horizon_holds_back_jobs_from_it_on() -> None:
    """A job that has not been evaluated may precede the later jobs."""
    queue = lane(1, ONE, rank(1), rank(2), rank(3))
    for horizon, started in ((rank(1), []), (rank(2), [1]), (rank(3), [1, 2])):
        plan_ = plan(snapshot(queue, horizon=horizon))
        assert (_started(plan_), plan_.is_truncated) == (started, True)
    beyond = plan(snapshot(queue, horizon=rank(4)))
    assert (_started(beyond), beyond.is_truncated) == ([1, 2, 3], True)


@pytest.mark.parametrize("lanes", [(), (lane(1, {"flow/full": 1}, rank(1)),)])
def test_another_tick_follows_while_jobs_are_unevaluated(lanes: Sequence[Lane]) -> None:
    """Otherwise those jobs would wait for an unrelated event."""
    plan_ = _limited(*lanes, sizes={"flow/full": 0}, horizon=rank(9))
    assert (plan_.claims, plan_.is_truncated) == ((), True)
    assert not _limited(*lanes, sizes={"flow/full": 0}).is_truncated


@pytest.mark.parametrize(
    ("batch", "started", "bound_by", "is_truncated"),
    [
        (1, [1], "batch", True),
        (2, [1, 2], "batch", True),
        (3, [1, 2, 3], "batch", False),
        (4, [1, 2, 3], "ready", False),
        (None, [1, 2, 3], "ready", False),
    ],
)
def test_batch_size_limits_starts(batch: int | None, started: list[int], bound_by: str, is_truncated: bool) -> None:
    plan_ = plan(snapshot(lane(1, ONE, rank(1), rank(2), rank(3)), batch_size=batch))
    assert (_started(plan_), plan_.bound_by, plan_.is_truncated) == (started, bound_by, is_truncated)


def test_full_batch_is_the_limiting_factor_without_another_tick() -> None:
    plan_ = _limited(lane(1, ONE, rank(1), rank(2)), sizes=ONE, batch_size=1)
    assert (_started(plan_), plan_.bound_by, plan_.is_truncated) == ([1], "batch", False)


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
def test_starts_are_the_minimum_of_capacity_batch_and_ready(
    capacity: int, batch: int, ready: int, n: int, skipped: int, reason: str
) -> None:
    assert compute_bound(capacity, batch, ready) == (n, skipped, reason)


@pytest.mark.parametrize(
    ("capacity", "batch", "ready", "expected"),
    [
        (None, None, 0, (0, 0, "none")),
        (None, None, 4, (4, 0, "ready")),
        (4, None, 4, (4, 0, "capacity")),
        (5, None, 4, (4, 0, "ready")),
        (None, 4, 9, (4, 5, "batch")),
        (0, None, 9, (0, 9, "capacity")),
    ],
)
def test_none_is_no_limit(capacity: int | None, batch: int | None, ready: int, expected: tuple[int, int, str]) -> None:
    assert compute_bound(capacity, batch, ready) == expected


@given(st.integers(-3, 12), st.none() | st.integers(1, 12), st.integers(0, 12), st.booleans())
def test_plan_over_one_pool_matches_the_formula(capacity: int, batch: int | None, ready: int, is_split: bool) -> None:
    """One or two lanes draw from the same pool. The pool may be over its size after its limit was lowered."""
    ranks = [rank(job) for job in range(1, ready + 1)]
    halves = (ranks[::2], ranks[1::2]) if is_split else (ranks, [])
    lanes = [lane(n, {"global": 1, f"flow/{n}": 1}, *half) for n, half in enumerate(halves) if half]
    size = max(capacity, 0)
    made = _limited(*lanes, sizes={"global": size}, pool_usage={"global": size - capacity}, batch_size=batch)
    n, _skipped, reason = compute_bound(capacity, batch, ready)
    assert (len(made.claims), made.bound_by) == (n, reason)


def test_held_jobs_are_not_ready() -> None:
    pauses = PauseState({"flow/a": Pause(actor="ann", at=NOW)})
    held = lane(1, {"global": 1, "flow/a": 1}, rank(1))
    assert plan(snapshot(held, pauses=pauses)).bound_by == "none"
    both = _limited(held, lane(2, ONE, rank(2)), sizes={"global": 9}, pauses=pauses)
    assert (_started(both), both.bound_by) == ([2], "ready")


def test_full_global_pool_limits_even_without_lanes() -> None:
    full = _limited(sizes=ONE, pool_usage=ONE, has_ready=True)
    assert (full.claims, full.bound_by) == ((), "capacity")
    paused = PauseState({"global": Pause(actor="ann", at=NOW)})
    assert _limited(sizes=ONE, pool_usage=ONE, has_ready=True, pauses=paused).bound_by == "none"


def test_lane_with_more_jobs_truncates_the_plan() -> None:
    """The next job is unknown: a job of another lane might come after it."""
    plan_ = plan(snapshot(lane(1, ONE, rank(1), rank(2), has_more=True), lane(2, {"flow/a": 1}, rank(9))))
    assert (_started(plan_), plan_.is_truncated) == ([1, 2], True)


def test_lane_that_does_not_fit_is_skipped_as_a_whole() -> None:
    plan_ = _limited(
        lane(1, {"flow/a": 1}, rank(1), has_more=True), lane(2, {"flow/b": 1}, rank(2)), sizes={"flow/a": 0}
    )
    assert (_started(plan_), plan_.is_truncated) == ([2], False)


def test_paused_lane_does_not_start_and_closes_no_pool() -> None:
    pauses = PauseState({"type/story": Pause(actor="ann", at=NOW)})
    paused = lane(1, {"resource/gpu": 3, "type/story": 1}, rank(1))
    light = lane(2, {"resource/gpu": 1}, rank(2))
    plan_ = _limited(paused, light, sizes={"resource/gpu": 2}, pauses=pauses)
    assert _started(plan_) == [2]
    assert _started(_limited(light, sizes={}, pauses=PauseState({"global": Pause(actor="ann", at=NOW)}))) == []


X, Y, BOTH = ("type/x",), ("target/y",), ("type/x", "target/y")


@pytest.mark.parametrize("state", [OpenState(NOW), ProbingState(JobId(99))])
def test_lane_under_open_breaker_does_not_start_and_closes_no_pool(state: OpenState | ProbingState) -> None:
    pauses = PauseState(breakers=BreakerStates({"type/x": state}))
    held = [
        lane(1, {"resource/gpu": 3}, rank(1), breaker_keys=X),
        lane(2, {"resource/gpu": 1}, rank(2), breaker_keys=BOTH),
    ]
    free = [lane(3, {"resource/gpu": 1}, rank(3), breaker_keys=Y), lane(4, {"type/x": 1}, rank(4))]
    assert _started(_limited(*held, *free, sizes={"resource/gpu": 2}, pauses=pauses)) == [3, 4]


def test_half_open_breaker_starts_only_the_first_job_of_its_lanes() -> None:
    pauses = PauseState(breakers=BreakerStates({"type/x": HALF_OPEN}))
    lanes = [
        lane(1, ONE, rank(2), rank(4), breaker_keys=X),
        lane(2, ONE, rank(1), rank(5), breaker_keys=("type/x", "target/z")),
        lane(3, ONE, rank(3), rank(6)),
    ]
    chosen = plan(snapshot(*lanes, pauses=pauses))
    assert [(claim.job, claim.probes) for claim in chosen.claims] == [(1, X), (3, ()), (6, ())]
    assert chosen.pauses.breakers.states == {"type/x": ProbingState(JobId(1))}
    assert not chosen.is_truncated


def test_one_job_can_probe_type_and_target_breakers() -> None:
    pauses = PauseState(breakers=BreakerStates({"type/x": HALF_OPEN, "target/y": HALF_OPEN}))
    chosen = plan(
        snapshot(
            lane(1, ONE, rank(1), rank(2), breaker_keys=BOTH), lane(2, ONE, rank(3), breaker_keys=Y), pauses=pauses
        )
    )
    assert [(claim.job, claim.probes) for claim in chosen.claims] == [(1, BOTH)]


def test_job_held_by_one_breaker_does_not_probe_another() -> None:
    pauses = PauseState(breakers=BreakerStates({"type/x": HALF_OPEN, "target/y": OpenState(NOW)}))
    chosen = plan(
        snapshot(lane(1, ONE, rank(1), breaker_keys=BOTH), lane(2, ONE, rank(2), breaker_keys=X), pauses=pauses)
    )
    assert [(claim.job, claim.probes) for claim in chosen.claims] == [(2, X)]


def test_job_without_room_is_not_the_probe() -> None:
    pauses = PauseState(breakers=BreakerStates({"type/x": HALF_OPEN}))
    lanes = (lane(1, {"resource/gpu": 3}, rank(1), breaker_keys=X), lane(2, ONE, rank(2), breaker_keys=X))
    assert [
        (claim.job, claim.probes) for claim in _limited(*lanes, sizes={"resource/gpu": 2}, pauses=pauses).claims
    ] == [(2, X)]


def test_inv_003_workers_are_the_smallest_free_numbers() -> None:
    plan_ = plan(snapshot(lane(1, ONE, rank(1), rank(2), rank(3), rank(4)), busy_workers=frozenset({1, 3, 6})))
    assert [claim.worker for claim in plan_.claims] == [2, 4, 5, 7]


# The oracle: every ready job in queue order, without lanes.

POOLS = ("global", "flow/a", "flow/b", "resource/x")
demands = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 3), min_size=1, max_size=3)
sizes = st.dictionaries(
    st.sampled_from(["global", "flow/*", "flow/b", "resource/x"]), st.sampled_from([3, 2, 4, 1, 5, 0, -1])
)


def _rarely(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw a value that ends a walk early in one of four worlds, so that most walks get far."""
    return st.sampled_from(range(4)).flatmap(lambda n: values if n == 3 else st.none())


class World(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: Snapshot
    lane_by_rank: dict[Rank, Lane]
    """Every ready job, including jobs outside the snapshot."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    lane_demands = draw(
        st.lists(demands, min_size=1, max_size=5, unique_by=lambda demand: tuple(sorted(demand.items())))
    )
    jobs = draw(st.lists(st.tuples(st.integers(0, len(lane_demands) - 1), st.integers(-1, 1)), max_size=14))
    members: list[list[Rank]] = [[] for _ in lane_demands]
    for job, (number, priority) in enumerate(jobs, 1):
        members[number].append(rank(job, priority))
    lanes, lane_by_rank = [], {}
    for number, (demand, ranks) in enumerate(zip(lane_demands, members, strict=True)):
        if ranks:
            head_count = draw(_rarely(st.integers(1, len(ranks)))) or len(ranks)
            heads = sorted(ranks)[:head_count]
            lanes.append(lane(number, demand, *heads, has_more=head_count < len(ranks)))
            lane_by_rank.update(dict.fromkeys(ranks, lanes[-1]))
    return World(
        snapshot=snapshot(
            *draw(st.permutations(lanes)),
            pool_sizes=PoolSizes(draw(sizes)),
            pool_usage=draw(st.dictionaries(st.sampled_from(POOLS), st.integers(0, 2))),
            busy_workers=draw(st.frozensets(st.integers(1, 6))),
            batch_size=draw(_rarely(st.integers(1, 5))),
            horizon=draw(_rarely(st.builds(rank, st.integers(1, 15), st.integers(-1, 1)))),
            pauses=PauseState(
                {scope: Pause(actor="ann", at=NOW) for scope in draw(st.sampled_from([(), (), ("flow/a",)]))}
            ),
        ),
        lane_by_rank=lane_by_rank,
    )


class Walk(msgspec.Struct, kw_only=True):
    started: list[Rank]
    refused: list[Rank]
    """Jobs that are not held but lack room."""
    has_room: bool
    """Whether another job of one of the lanes would have fitted."""
    is_truncated: bool


def _walk(world: World) -> Walk:
    """Walk down the queue one job at a time.

    A job that lacks room closes those pools to all later jobs. Jobs that need a closed pool, are paused or exceed the
    size of a pool are skipped. The walk ends at the horizon, before the batch is exceeded, and after the last known
    head of a lane with more jobs.
    """
    snapshot_ = world.snapshot
    used, closed = dict(snapshot_.pool_usage), set[str]()
    is_truncated = snapshot_.horizon is not None
    walk = Walk(started=[], refused=[], has_room=False, is_truncated=is_truncated)
    for job in sorted(world.lane_by_rank):
        demand = world.lane_by_rank[job].demand
        if snapshot_.horizon is not None and not job < snapshot_.horizon:
            break
        lacking = {name for name, weight in demand.items() if _lacks(snapshot_.pool_sizes, used, name, weight)}
        is_paused = any(scope in snapshot_.pauses.scopes for scope in demand)
        if is_paused or any(_is_too_small(snapshot_.pool_sizes, name, weight) for name, weight in demand.items()):
            continue
        if closed & demand.keys() or lacking:
            walk.refused.append(job)
            closed |= set() if closed & demand.keys() else lacking
            continue
        if len(walk.started) == snapshot_.batch_size:
            walk.is_truncated = True
            break
        walk.started.append(job)
        used.update({name: used.get(name, 0) + weight for name, weight in demand.items()})
        if world.lane_by_rank[job].has_more and job == world.lane_by_rank[job].heads[-1]:
            walk.is_truncated = True
            break
    walk.has_room = any(
        not closed & lane_.demand.keys()
        and not any(_lacks(snapshot_.pool_sizes, used, name, weight) for name, weight in lane_.demand.items())
        for lane_ in snapshot_.lanes
        if not any(scope in snapshot_.pauses.scopes for scope in lane_.demand)
    )
    return walk


def _reason(world: World, walk: Walk) -> str:
    """Apply the formula to all jobs that are neither held nor beyond the known part of the queue."""
    started, batch = len(walk.started), world.snapshot.batch_size
    if started == batch:
        return "batch"
    ends_at_last_head = walk.started and any(
        lane_.has_more and lane_.heads[-1] == walk.started[-1] for lane_ in world.snapshot.lanes
    )
    if ends_at_last_head:
        return "batch"
    return compute_bound(started + (walk.has_room and not walk.refused), batch, started + len(walk.refused))[2]


def _is_too_small(limits: PoolSizes, name: str, weight: int) -> bool:
    """Return whether the weight exceeds the pool. A pool of size 0 is closed, not too small."""
    return _lacks(limits, {}, name, weight) and not _lacks(limits, {}, name, 1)


def _lacks(limits: PoolSizes, used: Mapping[str, int], name: str, weight: int) -> bool:
    size = limits.sizes.get(name, limits.sizes.get(f"{name.split('/', maxsplit=1)[0]}/*", -1))
    return size >= 0 and used.get(name, 0) + weight > size


@given(worlds())
def test_inv_004_plan_matches_naive_walk_of_the_queue(world: World) -> None:
    made, walk = plan(world.snapshot), _walk(world)
    assert _started(made) == [job.job for job in walk.started]
    assert made.is_truncated is walk.is_truncated
    assert made.bound_by == _reason(world, walk)


@given(worlds())
def test_inv_004_starts_are_in_queue_order_from_their_own_lanes(world: World) -> None:
    claims = plan(world.snapshot).claims
    by_job = {job.job: job for job in world.lane_by_rank}
    started = [by_job[claim.job] for claim in claims]
    assert started == sorted(set(started))
    assert [claim.lane for claim in claims] == [world.lane_by_rank[job].id for job in started]


@given(worlds())
def test_inv_003_no_worker_gets_two_jobs(world: World) -> None:
    workers = [claim.worker for claim in plan(world.snapshot).claims]
    free = (number for number in count(1) if number not in world.snapshot.busy_workers)
    assert workers == list(islice(free, len(workers)))


@given(worlds())
def test_dec_011_plan_never_exceeds_a_pool(world: World) -> None:
    made = plan(world.snapshot)
    for name in POOLS:
        size, before = world.snapshot.pool_sizes.size(name), world.snapshot.pool_usage.get(name, 0)
        accepted = sum(world.snapshot.lanes[_index(world, claim.lane)].demand.get(name, 0) for claim in made.claims)
        assert made.pools.used(name) == before + accepted
        assert size is None or accepted == 0 or before + accepted <= size


def _index(world: World, number: int) -> int:
    return next(index for index, lane_ in enumerate(world.snapshot.lanes) if lane_.id == number)


@given(worlds())
def test_complete_plan_leaves_no_startable_job(world: World) -> None:
    """Without pauses, the same pools explain why the remaining jobs wait, so every remaining job has a reason."""
    unpaused = msgspec.structs.replace(world.snapshot, pauses=PauseState())
    made = plan(unpaused)
    if made.is_truncated:
        return
    started = {claim.job for claim in made.claims}
    remaining: Sequence[Rank] = [job for job in world.lane_by_rank if job.job not in started]
    assert all(not isinstance(made.pools.judge(world.lane_by_rank[job].demand), Pass) for job in remaining)


@given(worlds(), st.randoms(use_true_random=False))
def test_lane_order_does_not_matter(world: World, random: Any) -> None:
    lanes = list(world.snapshot.lanes)
    random.shuffle(lanes)
    shuffled = msgspec.structs.replace(world.snapshot, lanes=tuple(lanes))
    assert plan(shuffled).claims == plan(world.snapshot).claims
