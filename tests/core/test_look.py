"""The look: where each job that something has happened to is put, and that nothing is written without need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import EXCLUSIVE, NOW, SHARED, edge, facts, lock, rank, standing
from rota.core.after import AfterPolicy
from rota.core.gate import Facts, Standing
from rota.core.lock import Front
from rota.core.status import IllegalTransition, Status
from rota.core.tick import Placement, is_free, look
from rota.core.wait import WaitKind

LATER = NOW + timedelta(hours=1)
OPEN = (edge(9, Status.RUNNING),)
DEPENDENCIES, LOCKS, PINNED_HEAD = WaitKind.DEPENDENCIES, WaitKind.LOCKS, WaitKind.PINNED_HEAD


def _look(job: Standing, world: Facts | None = None) -> Placement:
    (placement,) = look([job], world or facts())
    return placement


def _expect(placement: Placement, **fields: Any) -> None:
    assert {name: getattr(placement, name) for name in fields} == fields


def test_a_job_that_nothing_holds_is_ready_and_goes_to_its_lane() -> None:
    _expect(
        _look(standing(3)),
        job=3, chain=3, was=Status.QUEUED, to=Status.QUEUED, wait_kind=None, waited_on=(), lane=1, was_ready=False,
        is_ready=True, joins=False, leaves=False, has_changed=True, reason=None,
    )  # fmt: skip


def test_a_job_that_gets_its_locks_joins_their_queues_and_is_ready() -> None:
    _expect(
        _look(standing(locks=["repo"])), to=Status.QUEUED, is_ready=True, joins=True, leaves=False, has_changed=True
    )


def test_a_job_that_does_not_get_its_locks_joins_their_queues_all_the_same() -> None:
    _expect(
        _look(standing(locks=["repo"]), facts(fronts={"repo": Front(held=SHARED)})),
        to=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, waited_on=(LOCKS,), is_ready=False, joins=True, has_changed=True,
    )  # fmt: skip


@pytest.mark.parametrize("fields", [{"edges": OPEN}, {"not_before": LATER}])
def test_a_job_held_at_a_gate_before_locks_does_not_join(fields: dict[str, Any]) -> None:
    """It reserves nothing: whoever comes later passes it."""
    held, later = look([standing(1, locks=["repo"], **fields), standing(2, locks=["repo"])], facts())
    _expect(held, joins=False, leaves=False, is_ready=False)
    _expect(later, joins=True, is_ready=True)


def test_a_delayed_job_stays_queued_and_nothing_is_written() -> None:
    _expect(
        _look(standing(not_before=LATER)),
        to=Status.QUEUED, wait_kind=None, waited_on=(), is_ready=False, has_changed=False,
    )  # fmt: skip


def test_dependencies_met_but_delayed_is_queued() -> None:
    job = standing(status=Status.WAITING_ON_DEPS, wait_kind=DEPENDENCIES, waited_on=(DEPENDENCIES,), not_before=LATER)
    _expect(_look(job), to=Status.QUEUED, wait_kind=None, waited_on=(DEPENDENCIES,), is_ready=False, has_changed=True)


@pytest.mark.parametrize(
    ("policy", "end", "to", "reason"),
    [
        (AfterPolicy.SUCCESS, Status.FAILED, Status.BLOCKED_BY_DEPENDENCY, "dependency failed for job job-9 (FAILED)"),
        (AfterPolicy.FAILED, Status.COMPLETED, Status.SKIPPED, "not needed: job-9 COMPLETED"),
    ],
)
@pytest.mark.parametrize("contends", [False, True])
def test_a_job_that_can_never_start_ends_with_its_reason_and_gives_up_its_turn(
    policy: AfterPolicy, end: Status, to: Status, reason: str, contends: bool
) -> None:
    job = standing(
        status=Status.WAITING_ON_DEPS, wait_kind=DEPENDENCIES, waited_on=(DEPENDENCIES,), locks=["repo"],
        edges=(edge(9, end, policy),), contends=contends,
    )  # fmt: skip
    _expect(
        _look(job),
        to=to, reason=reason, wait_kind=None, waited_on=(DEPENDENCIES,), is_ready=False, joins=False, leaves=contends,
        has_changed=True,
    )  # fmt: skip


def test_a_contender_that_is_held_further_up_again_leaves_the_queues_of_its_locks() -> None:
    job = standing(
        status=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, waited_on=(LOCKS,), locks=["repo"], contends=True, edges=OPEN
    )
    _expect(
        _look(job),
        to=Status.WAITING_ON_DEPS, wait_kind=DEPENDENCIES, waited_on=(LOCKS, DEPENDENCIES), joins=False, leaves=True,
    )  # fmt: skip


def test_a_ready_job_that_somebody_came_before_waits_again() -> None:
    ready = standing(2, locks=["repo"], is_ready=True, contends=True)
    first, second = look([standing(1, locks=["repo"]), ready], facts(fronts={"repo": _front(2)}))
    _expect(first, is_ready=True, joins=True)
    _expect(
        second,
        was_ready=True, is_ready=False, to=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, joins=False, leaves=False,
        has_changed=True,
    )  # fmt: skip


def _front(job: int) -> Front:
    return Front(first=rank(job), first_exclusive=rank(job))


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_inv_004_all_join_before_any_is_judged(order: Sequence[int]) -> None:
    """The order of the queue decides, not the order of asking."""
    jobs = {
        1: standing(1, locks=["repo:shared"]),
        2: standing(2, locks=["repo"]),
        3: standing(3, locks=["repo:shared"]),
    }
    placements = look([jobs[job] for job in order], facts())
    assert [placement.job for placement in placements] == list(order)
    assert {placement.job for placement in placements if placement.is_ready} == {1}


def test_no_room_in_a_pool_does_not_keep_a_job_from_its_lane() -> None:
    """Pools are asked when the plan is made: one event never rewrites every job that waits for room."""
    _expect(_look(standing(), facts(sizes={"global": 0})), to=Status.QUEUED, is_ready=True)


UNCHANGED = [
    standing(is_ready=True),
    standing(is_ready=True, locks=["free"], contends=True),
    standing(not_before=LATER),
    standing(status=Status.WAITING_ON_DEPS, wait_kind=DEPENDENCIES, waited_on=(DEPENDENCIES,), edges=OPEN),
    standing(status=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, waited_on=(LOCKS,), locks=["held"], contends=True),
]


@pytest.mark.parametrize("job", UNCHANGED)
def test_nothing_has_changed_when_the_verdict_is_what_is_stored(job: Standing) -> None:
    _expect(
        _look(job, facts(fronts={"held": Front(held=EXCLUSIVE)})),
        to=job.status, wait_kind=job.wait_kind, waited_on=job.waited_on, is_ready=job.is_ready, has_changed=False,
        joins=False, leaves=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "edges", "after"),
    [
        ((), OPEN, (DEPENDENCIES,)),
        ((DEPENDENCIES,), OPEN, (DEPENDENCIES,)),
        ((LOCKS,), OPEN, (LOCKS, DEPENDENCIES)),
        ((DEPENDENCIES, LOCKS), OPEN, (DEPENDENCIES, LOCKS)),
        ((), (), (LOCKS,)),
        ((DEPENDENCIES,), (), (DEPENDENCIES, LOCKS)),
        ((PINNED_HEAD, LOCKS), (), (PINNED_HEAD, LOCKS)),
    ],
)
def test_waited_on_lists_each_kind_once_in_the_order_met(
    before: tuple[WaitKind, ...], edges: Any, after: tuple[WaitKind, ...]
) -> None:
    job = standing(waited_on=before, edges=edges, locks=["held"])
    assert _look(job, facts(fronts={"held": Front(held=EXCLUSIVE)})).waited_on == after


@pytest.mark.parametrize("status", [Status.DISPATCHED, Status.RUNNING, Status.COMPLETED, Status.CANCELLED])
def test_dec_006_a_job_that_does_not_wait_cannot_be_placed(status: Status) -> None:
    with pytest.raises(IllegalTransition):
        _look(standing(status=status, edges=OPEN))


@pytest.mark.parametrize("unmet", [0, 1])
@pytest.mark.parametrize("not_before", [None, LATER])
@pytest.mark.parametrize("locks", [(), ("repo",)])
def test_a_job_is_free_exactly_when_a_look_would_find_it_ready_whatever_the_world(
    unmet: int, not_before: datetime | None, locks: Sequence[str]
) -> None:
    wanted = [lock(text) for text in locks]
    free = is_free(unmet=unmet, not_before=not_before, locks=wanted)
    worst = facts(fronts={"repo": Front(held=EXCLUSIVE)}, sizes={"global": 0})
    job = standing(edges=OPEN[:unmet], not_before=not_before, locks=locks)
    assert free is _look(job, worst).is_ready


KEYS = ("a", "b")
edges = st.lists(
    st.builds(edge, st.integers(50, 60), st.sampled_from(Status) | st.none(), st.sampled_from(AfterPolicy)), max_size=2
)
queue = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "a:shared", "b", "b:shared"]), max_size=2, unique_by=lambda text: text[0]),
        edges.map(tuple),
        st.sampled_from([None, NOW, LATER]),
        st.integers(-1, 1),
    ),
    max_size=8,
)
holders = st.fixed_dictionaries({}, optional={key: st.sampled_from([EXCLUSIVE, SHARED]) for key in KEYS})


def _settled(job: Standing, placement: Placement) -> Standing:
    """The job as the store has it after the placement."""
    return msgspec.structs.replace(
        job,
        status=placement.to,
        wait_kind=placement.wait_kind,
        waited_on=placement.waited_on,
        is_ready=placement.is_ready,
        contends=job.contends or placement.joins,
    )


def _jobs(drawn: Sequence[Any]) -> list[Standing]:
    return [
        standing(job, locks=locks, edges=facts, not_before=not_before, priority=priority)
        for job, (locks, facts, not_before, priority) in enumerate(drawn, 1)
    ]


@given(queue, holders)
def test_a_second_look_at_what_has_not_changed_writes_nothing(drawn: Sequence[Any], held: dict[str, Any]) -> None:
    fronts = {key: Front(held=mode) for key, mode in held.items()}
    jobs = _jobs(drawn)
    placements = look(jobs, facts(fronts=fronts))
    settled = [
        _settled(job, placement) for job, placement in zip(jobs, placements, strict=True) if placement.reason is None
    ]
    for placement in look(settled, facts(fronts=fronts)):
        _expect(placement, has_changed=False, joins=False, leaves=False)


@given(queue, holders)
def test_ready_jobs_never_want_the_same_key_against_each_other_or_a_holder(
    drawn: Sequence[Any], held: dict[str, Any]
) -> None:
    jobs = _jobs(drawn)
    placements = look(jobs, facts(fronts={key: Front(held=mode) for key, mode in held.items()}))
    ready = [job.locks for job, placement in zip(jobs, placements, strict=True) if placement.is_ready]
    for one, other in combinations(ready, 2):
        assert not any(a.key == b.key and EXCLUSIVE in (a.mode, b.mode) for a in one for b in other)
    for locks in ready:
        assert all(wanted.key not in held or held[wanted.key] is wanted.mode is SHARED for wanted in locks)


def test_what_is_paused_waits_in_its_lane_and_with_locks_it_waits_outside_of_their_queues() -> None:
    """So nothing is to be written for those without locks, however many, when a pause begins or ends."""
    paused = facts(paused=["global"])
    _expect(_look(standing(1), paused), to=Status.QUEUED, is_ready=True, has_waited=False)
    _expect(_look(standing(1, locks=["k"]), paused), to=Status.QUEUED, is_ready=False, joins=False, has_changed=False)
    waiting = standing(1, locks=["k"], status=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, contends=True)
    _expect(_look(waiting, paused), to=Status.QUEUED, is_ready=False, leaves=True, wait_kind=None)
    _expect(_look(standing(1, locks=["k"], is_ready=True, contends=True), paused), is_ready=False, leaves=True)


def test_a_delay_that_is_over_is_forgotten_where_something_else_holds_the_job() -> None:
    """Else its timer would wake it again and again."""
    paused = facts(paused=["global"])
    _expect(_look(standing(1, locks=["k"], not_before=NOW), paused), is_ready=False, has_waited=True)
    _expect(_look(standing(1, locks=["k"], not_before=LATER), paused), is_ready=False, has_waited=False)
    _expect(_look(standing(1, not_before=NOW), paused), is_ready=True, has_waited=False)
