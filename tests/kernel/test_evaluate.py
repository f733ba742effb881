"""Evaluation: the placement of each dirty job, and no unnecessary writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kernel.edges import DependencyPolicy
from rota.kernel.gates import Candidate, GateContext
from rota.kernel.locks import LockFront
from rota.kernel.status import IllegalTransition, Status
from rota.kernel.tick import Placement, can_skip_evaluation, evaluate
from rota.kernel.verdict import WaitKind
from tests.kernel.factories import EXCLUSIVE, NOW, SHARED, candidate, edge, gate_context, lock, rank

LATER = NOW + timedelta(hours=1)
OPEN = (edge(9, Status.RUNNING),)
DEPENDENCIES, LOCKS, PINNED_HEAD = WaitKind.DEPENDENCIES, WaitKind.LOCKS, WaitKind.PINNED_HEAD


def _evaluate(job: Candidate, context: GateContext | None = None) -> Placement:
    (placement,) = evaluate([job], context or gate_context())
    return placement


def _expect(placement: Placement, **fields: Any) -> None:
    assert {name: getattr(placement, name) for name in fields} == fields


def test_unheld_job_becomes_ready_in_its_lane() -> None:
    _expect(
        _evaluate(candidate(3)),
        job=3,
        chain=3,
        old_status=Status.QUEUED,
        new_status=Status.QUEUED,
        wait_kind=None,
        waited_on=(),
        lane=1,
        was_ready=False,
        is_ready=True,
        joins_lock_queues=False,
        leaves_lock_queues=False,
        has_changed=True,
        reason=None,
    )


def test_job_with_free_locks_joins_lock_queues_and_is_ready() -> None:
    _expect(
        _evaluate(candidate(locks=["repo"])),
        new_status=Status.QUEUED,
        is_ready=True,
        joins_lock_queues=True,
        leaves_lock_queues=False,
        has_changed=True,
    )


def test_job_with_held_locks_joins_lock_queues_and_waits() -> None:
    _expect(
        _evaluate(candidate(locks=["repo"]), gate_context(fronts={"repo": LockFront(held=SHARED)})),
        new_status=Status.WAITING_ON_LOCKS,
        wait_kind=LOCKS,
        waited_on=(LOCKS,),
        is_ready=False,
        joins_lock_queues=True,
        has_changed=True,
    )


@pytest.mark.parametrize("fields", [{"edges": OPEN}, {"not_before": LATER}])
def test_job_held_before_locks_does_not_join_lock_queues(fields: dict[str, Any]) -> None:
    """The job reserves nothing, so a later job passes it."""
    held, later = evaluate([candidate(1, locks=["repo"], **fields), candidate(2, locks=["repo"])], gate_context())
    _expect(held, joins_lock_queues=False, leaves_lock_queues=False, is_ready=False)
    _expect(later, joins_lock_queues=True, is_ready=True)


def test_delayed_job_stays_queued_unchanged() -> None:
    _expect(
        _evaluate(candidate(not_before=LATER)),
        new_status=Status.QUEUED,
        wait_kind=None,
        waited_on=(),
        is_ready=False,
        has_changed=False,
    )


def test_delayed_job_with_met_dependencies_is_queued() -> None:
    job = candidate(status=Status.WAITING_ON_DEPS, wait_kind=DEPENDENCIES, waited_on=(DEPENDENCIES,), not_before=LATER)
    _expect(
        _evaluate(job),
        new_status=Status.QUEUED,
        wait_kind=None,
        waited_on=(DEPENDENCIES,),
        is_ready=False,
        has_changed=True,
    )


@pytest.mark.parametrize(
    ("policy", "end", "to", "reason"),
    [
        (
            DependencyPolicy.SUCCESS,
            Status.FAILED,
            Status.BLOCKED_BY_DEPENDENCY,
            "dependency failed for job job-9 (FAILED)",
        ),
        (DependencyPolicy.FAILED, Status.COMPLETED, Status.SKIPPED, "not needed: job-9 COMPLETED"),
    ],
)
@pytest.mark.parametrize("is_contending", [False, True])
def test_unstartable_job_ends_with_reason_and_leaves_lock_queues(
    policy: DependencyPolicy, end: Status, to: Status, reason: str, is_contending: bool
) -> None:
    job = candidate(
        status=Status.WAITING_ON_DEPS,
        wait_kind=DEPENDENCIES,
        waited_on=(DEPENDENCIES,),
        locks=["repo"],
        edges=(edge(9, end, policy),),
        is_contending=is_contending,
    )
    _expect(
        _evaluate(job),
        new_status=to,
        reason=reason,
        wait_kind=None,
        waited_on=(DEPENDENCIES,),
        is_ready=False,
        joins_lock_queues=False,
        leaves_lock_queues=is_contending,
        has_changed=True,
    )


def test_contender_held_at_earlier_gate_leaves_lock_queues() -> None:
    job = candidate(
        status=Status.WAITING_ON_LOCKS,
        wait_kind=LOCKS,
        waited_on=(LOCKS,),
        locks=["repo"],
        is_contending=True,
        edges=OPEN,
    )
    _expect(
        _evaluate(job),
        new_status=Status.WAITING_ON_DEPS,
        wait_kind=DEPENDENCIES,
        waited_on=(LOCKS, DEPENDENCIES),
        joins_lock_queues=False,
        leaves_lock_queues=True,
    )


def test_ready_job_waits_again_behind_earlier_contender() -> None:
    ready = candidate(2, locks=["repo"], is_ready=True, is_contending=True)
    first, second = evaluate([candidate(1, locks=["repo"]), ready], gate_context(fronts={"repo": _front(2)}))
    _expect(first, is_ready=True, joins_lock_queues=True)
    _expect(
        second,
        was_ready=True,
        is_ready=False,
        new_status=Status.WAITING_ON_LOCKS,
        wait_kind=LOCKS,
        joins_lock_queues=False,
        leaves_lock_queues=False,
        has_changed=True,
    )


def _front(job: int) -> LockFront:
    return LockFront(first=rank(job), first_exclusive=rank(job))


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_inv_004_all_jobs_join_lock_queues_before_judgment(order: Sequence[int]) -> None:
    """The queue order decides, not the order of the calls."""
    jobs = {
        1: candidate(1, locks=["repo:shared"]),
        2: candidate(2, locks=["repo"]),
        3: candidate(3, locks=["repo:shared"]),
    }
    placements = evaluate([jobs[job] for job in order], gate_context())
    assert [placement.job for placement in placements] == list(order)
    assert {placement.job for placement in placements if placement.is_ready} == {1}


def test_full_pool_does_not_keep_job_out_of_its_lane() -> None:
    """Pools are checked by the plan, so that one event never rewrites every job that waits for room."""
    _expect(_evaluate(candidate(), gate_context(sizes={"global": 0})), new_status=Status.QUEUED, is_ready=True)


UNCHANGED = [
    candidate(is_ready=True),
    candidate(is_ready=True, locks=["free"], is_contending=True),
    candidate(not_before=LATER),
    candidate(status=Status.WAITING_ON_DEPS, wait_kind=DEPENDENCIES, waited_on=(DEPENDENCIES,), edges=OPEN),
    candidate(status=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, waited_on=(LOCKS,), locks=["held"], is_contending=True),
]


@pytest.mark.parametrize("job", UNCHANGED)
def test_unchanged_verdict_writes_nothing(job: Candidate) -> None:
    _expect(
        _evaluate(job, gate_context(fronts={"held": LockFront(held=EXCLUSIVE)})),
        new_status=job.status,
        wait_kind=job.wait_kind,
        waited_on=job.waited_on,
        is_ready=job.is_ready,
        has_changed=False,
        joins_lock_queues=False,
        leaves_lock_queues=False,
    )


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
def test_waited_on_lists_each_kind_once_in_order(
    before: tuple[WaitKind, ...], edges: Any, after: tuple[WaitKind, ...]
) -> None:
    job = candidate(waited_on=before, edges=edges, locks=["held"])
    assert _evaluate(job, gate_context(fronts={"held": LockFront(held=EXCLUSIVE)})).waited_on == after


@pytest.mark.parametrize("status", [Status.DISPATCHED, Status.RUNNING, Status.COMPLETED, Status.CANCELLED])
def test_dec_006_only_waiting_jobs_can_be_placed(status: Status) -> None:
    with pytest.raises(IllegalTransition):
        _evaluate(candidate(status=status, edges=OPEN))


@pytest.mark.parametrize("unmet", [0, 1])
@pytest.mark.parametrize("not_before", [None, LATER])
@pytest.mark.parametrize("locks", [(), ("repo",)])
def test_evaluation_is_skipped_only_for_jobs_that_are_always_ready(
    unmet: int, not_before: datetime | None, locks: Sequence[str]
) -> None:
    requested = [lock(text) for text in locks]
    can_skip = can_skip_evaluation(unmet=unmet, not_before=not_before, locks=requested)
    all_held = gate_context(fronts={"repo": LockFront(held=EXCLUSIVE)}, sizes={"global": 0})
    job = candidate(edges=OPEN[:unmet], not_before=not_before, locks=locks)
    assert can_skip is _evaluate(job, all_held).is_ready


KEYS = ("a", "b")
edges = st.lists(
    st.builds(edge, st.integers(50, 60), st.sampled_from(Status) | st.none(), st.sampled_from(DependencyPolicy)),
    max_size=2,
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


def _apply(job: Candidate, placement: Placement) -> Candidate:
    """Return the job as stored after the placement."""
    return msgspec.structs.replace(
        job,
        status=placement.new_status,
        wait_kind=placement.wait_kind,
        waited_on=placement.waited_on,
        is_ready=placement.is_ready,
        is_contending=job.is_contending or placement.joins_lock_queues,
    )


def _jobs(drawn: Sequence[Any]) -> list[Candidate]:
    return [
        candidate(job, locks=locks, edges=edges, not_before=not_before, priority=priority)
        for job, (locks, edges, not_before, priority) in enumerate(drawn, 1)
    ]


@given(queue, holders)
def test_second_evaluation_without_changes_writes_nothing(drawn: Sequence[Any], held: dict[str, Any]) -> None:
    fronts = {key: LockFront(held=mode) for key, mode in held.items()}
    jobs = _jobs(drawn)
    placements = evaluate(jobs, gate_context(fronts=fronts))
    stored = [
        _apply(job, placement) for job, placement in zip(jobs, placements, strict=True) if placement.reason is None
    ]
    for placement in evaluate(stored, gate_context(fronts=fronts)):
        _expect(placement, has_changed=False, joins_lock_queues=False, leaves_lock_queues=False)


@given(queue, holders)
def test_ready_jobs_have_no_lock_conflicts(drawn: Sequence[Any], held: dict[str, Any]) -> None:
    jobs = _jobs(drawn)
    placements = evaluate(jobs, gate_context(fronts={key: LockFront(held=mode) for key, mode in held.items()}))
    ready = [job.locks for job, placement in zip(jobs, placements, strict=True) if placement.is_ready]
    for first, second in combinations(ready, 2):
        assert not any(a.key == b.key and EXCLUSIVE in (a.mode, b.mode) for a in first for b in second)
    for locks in ready:
        assert all(lock.key not in held or held[lock.key] is lock.mode is SHARED for lock in locks)


def test_paused_job_stays_in_lane_but_leaves_lock_queues() -> None:
    """Jobs without locks need no write when a pause begins or ends."""
    paused = gate_context(paused=["global"])
    _expect(_evaluate(candidate(1), paused), new_status=Status.QUEUED, is_ready=True, has_delay_ended=False)
    _expect(
        _evaluate(candidate(1, locks=["k"]), paused),
        new_status=Status.QUEUED,
        is_ready=False,
        joins_lock_queues=False,
        has_changed=False,
    )
    waiting = candidate(1, locks=["k"], status=Status.WAITING_ON_LOCKS, wait_kind=LOCKS, is_contending=True)
    _expect(
        _evaluate(waiting, paused), new_status=Status.QUEUED, is_ready=False, leaves_lock_queues=True, wait_kind=None
    )
    _expect(
        _evaluate(candidate(1, locks=["k"], is_ready=True, is_contending=True), paused),
        is_ready=False,
        leaves_lock_queues=True,
    )


def test_ended_delay_is_cleared_if_another_gate_holds_the_job() -> None:
    """Otherwise its timer would wake it repeatedly."""
    paused = gate_context(paused=["global"])
    _expect(_evaluate(candidate(1, locks=["k"], not_before=NOW), paused), is_ready=False, has_delay_ended=True)
    _expect(_evaluate(candidate(1, locks=["k"], not_before=LATER), paused), is_ready=False, has_delay_ended=False)
    _expect(_evaluate(candidate(1, not_before=NOW), paused), is_ready=True, has_delay_ended=False)
