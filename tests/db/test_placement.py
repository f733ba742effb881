"""Placement and wake-ups: where an evaluation places a job, and which jobs an event marks dirty. Marks are durable."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import StoreError
from rota.ids import JobId
from rota.kernel.edges import DependencyPolicy
from rota.kernel.locks import LockFront, LockMode
from rota.kernel.status import Status
from rota.kernel.verdict import WaitKind
from tests.db.harness import FAILED_RESULT, NOW, StoreHarness

SUCCESS, FINISHED, FAILED = DependencyPolicy.SUCCESS, DependencyPolicy.FINISHED, DependencyPolicy.FAILED


def end_waiting(harness: StoreHarness, job: JobId) -> None:
    with harness.transaction() as session:
        session.jobs.end_waiting(job, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)


def test_evaluation_places_each_job_by_its_gates(harness: StoreHarness) -> None:
    free = harness.add()
    after = harness.add(after=[(free, SUCCESS)])
    late = harness.add(not_before=NOW + timedelta(seconds=1))
    first, second = harness.add(locks=["k"]), harness.add(locks=["k"])
    harness.evaluate()
    assert [harness.status(job) for job in (free, after, late, first, second)] == [
        Status.QUEUED,
        Status.WAITING_ON_DEPS,
        Status.QUEUED,
        Status.QUEUED,
        Status.WAITING_ON_LOCKS,
    ]
    assert harness.ready_jobs() == [free, first]
    assert harness.dirty_jobs() == []
    assert sorted((event.kind, event.job) for event in harness.events) == [
        ("job.waiting_on_deps", after),
        ("job.waiting_on_locks", second),
    ]
    assert harness.reader.jobs.count_active()[1] == {WaitKind.DEPENDENCIES: 1, WaitKind.LOCKS: 1, WaitKind.DELAY: 1}


def test_unchanged_job_emits_no_event(harness: StoreHarness) -> None:
    first, second = harness.add(), harness.add()
    waiting = harness.add(after=[(first, SUCCESS), (second, SUCCESS)])
    harness.evaluate()
    with harness.transaction() as session:
        session.queue.wake(waiting)
    assert harness.dirty_jobs() == [waiting]
    (placement,) = harness.evaluate()
    assert not placement.has_changed
    assert harness.events == []
    assert harness.dirty_jobs() == []


def test_waited_on_records_each_reason_once(harness: StoreHarness) -> None:
    first, holder = harness.add(), harness.add(locks=["k"])
    job = harness.add(after=[(first, SUCCESS)], locks=["k"])
    harness.evaluate()
    harness.claim()
    harness.finish(first)
    harness.evaluate()
    assert harness.status(job) is Status.WAITING_ON_LOCKS
    harness.finish(holder)
    harness.evaluate()
    harness.claim()
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert record.waited_on == (WaitKind.DEPENDENCIES, WaitKind.LOCKS)
    assert record.wait_kind is None


def test_stale_placement_is_refused(harness: StoreHarness) -> None:
    first = harness.add()
    harness.add(after=[(first, SUCCESS)])
    placements = harness.evaluate()
    with pytest.raises(StoreError, match="second scheduler"), harness.transaction() as session:
        session.queue.place(placements, NOW, "tick")


def test_end_wakes_only_jobs_that_it_decides(harness: StoreHarness) -> None:
    first, second = harness.add(), harness.add()
    both = harness.add(after=[(first, SUCCESS), (second, SUCCESS)])
    single = harness.add(after=[(first, SUCCESS)])
    finished = harness.add(after=[(first, FINISHED)])
    inverted = harness.add(after=[(first, FAILED), (second, SUCCESS)])
    harness.evaluate()
    harness.claim()
    harness.finish(first)
    assert harness.dirty_jobs() == [single, finished, inverted]  # `both` still waits for `second`
    harness.finish(second)
    assert both in harness.dirty_jobs()


def test_unmeetable_edge_wakes_at_once_and_gives_the_reason(harness: StoreHarness) -> None:
    slow, failing = harness.add(), harness.add()
    job = harness.add(after=[(slow, SUCCESS), (failing, SUCCESS)])
    harness.evaluate()
    harness.claim()
    harness.finish(failing, FAILED_RESULT)
    (placement,) = harness.evaluate()
    assert (placement.job, placement.new_status) == (job, Status.BLOCKED_BY_DEPENDENCY)
    record = harness.reader.jobs.find(job)
    assert record is not None
    assert record.reason == f"dependency failed for job job-{failing} (FAILED)"
    assert record.finished_at == NOW


def test_two_edges_to_one_chain_are_both_met(harness: StoreHarness) -> None:
    predecessor = harness.add()
    job = harness.add(after=[(predecessor, SUCCESS), (predecessor, FINISHED)])
    harness.evaluate()
    harness.claim()
    harness.finish(predecessor)
    harness.evaluate()
    assert harness.ready_jobs() == [job]


def test_resolving_dependents_twice_changes_nothing(harness: StoreHarness) -> None:
    predecessor = harness.add()
    job = harness.add(after=[(predecessor, SUCCESS)])
    harness.evaluate()
    harness.claim()
    harness.finish(predecessor)
    with harness.transaction() as session:
        session.edges.resolve(predecessor, [SUCCESS, FINISHED])
    assert harness.run_sql(f"SELECT unmet_edges FROM job WHERE id = {job}") == [(0,)]


def test_dirty_mark_is_durable(harness: StoreHarness) -> None:
    predecessor = harness.add()
    job = harness.add(after=[(predecessor, SUCCESS)])
    harness.evaluate()
    harness.claim()
    harness.finish(predecessor)
    assert [candidate.rank.job for candidate in harness.reader.queue.dirty_jobs(10)[0]] == [job]


def test_delayed_job_wakes_exactly_when_due(harness: StoreHarness) -> None:
    due = NOW + timedelta(seconds=5)
    job = harness.add(not_before=due)
    harness.add(not_before=due + timedelta(hours=1))
    harness.evaluate()
    assert harness.session.queue.next_due() == due
    harness.evaluate(due - timedelta(microseconds=1))
    assert harness.ready_jobs() == []
    harness.evaluate(due)
    assert harness.ready_jobs() == [job]
    assert harness.session.queue.next_due() == due + timedelta(hours=1)


def test_next_due_is_none_without_delays(harness: StoreHarness) -> None:
    harness.add()
    assert harness.session.queue.next_due() is None


def test_wake_all_waiting_skips_ready_and_ended_jobs(harness: StoreHarness) -> None:
    ready, done = harness.add(), harness.add()
    after, late, locked = (
        harness.add(after=[(ready, SUCCESS)]),
        harness.add(not_before=NOW + timedelta(seconds=1)),
        harness.add(locks=["k"]),
    )
    end_waiting(harness, done)
    harness.evaluate()
    behind = harness.add(locks=["k"])
    harness.evaluate()
    with harness.transaction() as session:
        session.queue.wake_all()
    assert harness.dirty_jobs() == [after, late, behind]
    assert harness.ready_jobs() == [ready, locked]


@pytest.mark.parametrize(
    ("holder", "queue", "woken"),
    [
        ("k", ["k", "k"], [0]),
        ("k", ["k:shared", "k:shared", "k", "k:shared"], [0, 1, 2]),
        ("k", ["k", "k:shared"], [0]),
        ("k:shared", ["k", "k:shared"], [0]),
        ("k", [], []),
    ],
)
def test_released_lock_wakes_only_the_front_of_its_queue(
    harness: StoreHarness, holder: str, queue: list[str], woken: list[int]
) -> None:
    held = harness.add(locks=[holder])
    harness.evaluate()
    harness.claim()
    waiting = [harness.add(locks=[lock]) for lock in queue]
    harness.evaluate()
    harness.finish(held)
    assert harness.dirty_jobs() == [waiting[n] for n in woken]


def test_cancelled_waiter_wakes_the_jobs_behind_it(harness: StoreHarness) -> None:
    harness.add(locks=["k:shared"])
    harness.evaluate()
    harness.claim()
    exclusive, behind = harness.add(locks=["k"]), harness.add(locks=["k:shared"])
    harness.evaluate()
    assert harness.status(behind) is Status.WAITING_ON_LOCKS
    end_waiting(harness, exclusive)
    assert harness.dirty_jobs() == [behind]
    harness.evaluate()
    assert harness.claim() == [behind]


@pytest.mark.parametrize(("first", "second"), [("k", "k"), ("k:shared", "k"), ("k", "k:shared")])
def test_higher_ranked_job_overtakes_ready_job_in_lock_queue(harness: StoreHarness, first: str, second: str) -> None:
    low = harness.add(locks=[first])
    harness.evaluate()
    assert harness.ready_jobs() == [low]
    high = harness.add(locks=[second], priority=5)
    harness.evaluate()
    assert harness.dirty_jobs() == [low]
    harness.evaluate()
    assert harness.ready_jobs() == [high]
    assert harness.status(low) is Status.WAITING_ON_LOCKS


def test_shared_waiters_do_not_wake_each_other(harness: StoreHarness) -> None:
    low = harness.add(locks=["k:shared"])
    harness.evaluate()
    high = harness.add(locks=["k:shared"], priority=5)
    harness.evaluate()
    assert harness.dirty_jobs() == []
    assert harness.ready_jobs() == [low, high]


def test_lock_fronts_show_mode_and_first_waiters(harness: StoreHarness) -> None:
    holder = harness.add(locks=["a:shared", "b"])
    harness.evaluate()
    harness.claim()
    shared, exclusive = harness.add(locks=["a:shared"]), harness.add(locks=["a", "b"])
    harness.evaluate()
    fronts = harness.session.locks.fronts(["a", "b", "c"])
    ranks = {
        candidate.rank.job: candidate.rank
        for candidate in harness.session.queue.candidates([holder, shared, exclusive])
    }
    assert fronts == {
        "a": LockFront(held=LockMode.SHARED, first=ranks[shared], first_exclusive=ranks[exclusive]),
        "b": LockFront(held=LockMode.EXCLUSIVE, first=ranks[exclusive], first_exclusive=ranks[exclusive]),
        "c": LockFront(),
    }
    owners_by_key = harness.reader.locks.owners(["a", "b", "c"])
    assert {key: [owner for owner, _ in owners] for key, owners in owners_by_key.items()} == {
        "a": [holder],
        "b": [holder],
    }


def test_dirty_jobs_are_in_queue_order(harness: StoreHarness) -> None:
    jobs = [harness.add(locks=["k"], priority=priority) for priority in (0, 5, 0, 9)]
    order = [jobs[3], jobs[1], jobs[0], jobs[2]]
    assert [candidate.rank.job for candidate in harness.session.queue.dirty_jobs(10)[0]] == order
    assert [candidate.rank.job for candidate in harness.session.queue.dirty_jobs(2)[0]] == order[:2]
