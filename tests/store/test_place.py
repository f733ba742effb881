"""Placing and waking: where a look puts a job, and whom an event marks. Marks are durable."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.core.after import AfterPolicy
from rota.core.lock import Front, LockMode
from rota.core.status import Status
from rota.core.wait import WaitKind
from rota.errors import StoreError
from rota.ids import JobId
from store.desk import BROKEN, NOW, Desk

SUCCESS, FINISHED, FAILED = AfterPolicy.SUCCESS, AfterPolicy.FINISHED, AfterPolicy.FAILED


def end_waiting(desk: Desk, job: JobId) -> None:
    with desk.writing() as session:
        session.end_waiting(job, Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)


def test_each_job_is_put_where_its_gates_say(desk: Desk) -> None:
    free = desk.add()
    after = desk.add(after=[(free, SUCCESS)])
    late = desk.add(not_before=NOW + timedelta(seconds=1))
    first, second = desk.add(locks=["k"]), desk.add(locks=["k"])
    desk.look()
    assert [desk.status(job) for job in (free, after, late, first, second)] == [
        Status.QUEUED,
        Status.WAITING_ON_DEPS,
        Status.QUEUED,
        Status.QUEUED,
        Status.WAITING_ON_LOCKS,
    ]
    assert desk.ready() == [free, first]
    assert desk.stirred() == []
    assert sorted((event.kind, event.job) for event in desk.events) == [
        ("job.waiting_on_deps", after),
        ("job.waiting_on_locks", second),
    ]
    assert desk.reader.active_counts()[1] == {WaitKind.DEPENDENCIES: 1, WaitKind.LOCKS: 1, WaitKind.DELAY: 1}


def test_a_job_that_stands_where_it_stood_is_left_alone(desk: Desk) -> None:
    first, second = desk.add(), desk.add()
    waiting = desk.add(after=[(first, SUCCESS), (second, SUCCESS)])
    desk.look()
    with desk.writing() as session:
        session.stir(waiting)
    assert desk.stirred() == [waiting]
    (placement,) = desk.look()
    assert not placement.has_changed
    assert desk.events == []
    assert desk.stirred() == []


def test_where_a_job_has_waited_is_kept_without_repeats(desk: Desk) -> None:
    first, holder = desk.add(), desk.add(locks=["k"])
    job = desk.add(after=[(first, SUCCESS)], locks=["k"])
    desk.look()
    desk.claim()
    desk.finish(first)
    desk.look()
    assert desk.status(job) is Status.WAITING_ON_LOCKS
    desk.finish(holder)
    desk.look()
    desk.claim()
    found = desk.reader.job(job)
    assert found is not None
    assert found.waited_on == (WaitKind.DEPENDENCIES, WaitKind.LOCKS)
    assert found.wait_kind is None


def test_a_job_that_changed_while_it_was_looked_at_is_an_error(desk: Desk) -> None:
    first = desk.add()
    desk.add(after=[(first, SUCCESS)])
    placements = desk.look()
    with pytest.raises(StoreError, match="second scheduler"), desk.writing() as session:
        session.place(placements, NOW, "tick")


def test_an_end_marks_only_the_jobs_it_decides(desk: Desk) -> None:
    one, two = desk.add(), desk.add()
    both = desk.add(after=[(one, SUCCESS), (two, SUCCESS)])
    only = desk.add(after=[(one, SUCCESS)])
    ended = desk.add(after=[(one, FINISHED)])
    not_needed = desk.add(after=[(one, FAILED), (two, SUCCESS)])
    desk.look()
    desk.claim()
    desk.finish(one)
    assert desk.stirred() == [only, ended, not_needed]  # `both` still waits for the other
    desk.finish(two)
    assert both in desk.stirred()


def test_an_edge_that_cannot_be_met_marks_at_once_and_speaks_first(desk: Desk) -> None:
    slow, bad = desk.add(), desk.add()
    job = desk.add(after=[(slow, SUCCESS), (bad, SUCCESS)])
    desk.look()
    desk.claim()
    desk.finish(bad, BROKEN)
    (placement,) = desk.look()
    assert (placement.job, placement.to) == (job, Status.BLOCKED_BY_DEPENDENCY)
    found = desk.reader.job(job)
    assert found is not None
    assert found.reason == f"dependency failed for job job-{bad} (FAILED)"
    assert found.finished_at == NOW


def test_two_edges_on_one_chain_are_counted_both(desk: Desk) -> None:
    one = desk.add()
    job = desk.add(after=[(one, SUCCESS), (one, FINISHED)])
    desk.look()
    desk.claim()
    desk.finish(one)
    desk.look()
    assert desk.ready() == [job]


def test_settling_twice_changes_nothing_more(desk: Desk) -> None:
    one = desk.add()
    job = desk.add(after=[(one, SUCCESS)])
    desk.look()
    desk.claim()
    desk.finish(one)
    with desk.writing() as session:
        session.settle(one, [SUCCESS, FINISHED])
    assert desk.raw(f"SELECT unmet FROM job WHERE id = {job}") == [(0,)]


def test_a_mark_outlives_the_session_that_set_it(desk: Desk) -> None:
    one = desk.add()
    job = desk.add(after=[(one, SUCCESS)])
    desk.look()
    desk.claim()
    desk.finish(one)
    assert [standing.rank.job for standing in desk.reader.stirred(10)[0]] == [job]


def test_due_jobs_are_marked_at_their_moment_and_not_before(desk: Desk) -> None:
    due = NOW + timedelta(seconds=5)
    job = desk.add(not_before=due)
    desk.add(not_before=due + timedelta(hours=1))
    desk.look()
    assert desk.session.next_due() == due
    desk.look(due - timedelta(microseconds=1))
    assert desk.ready() == []
    desk.look(due)
    assert desk.ready() == [job]
    assert desk.session.next_due() == due + timedelta(hours=1)


def test_nothing_is_due_when_nothing_is_delayed(desk: Desk) -> None:
    desk.add()
    assert desk.session.next_due() is None


def test_all_that_waits_is_marked_at_start_but_not_what_is_ready_or_over(desk: Desk) -> None:
    ready, done = desk.add(), desk.add()
    after, late, locked = (
        desk.add(after=[(ready, SUCCESS)]),
        desk.add(not_before=NOW + timedelta(seconds=1)),
        desk.add(locks=["k"]),
    )
    end_waiting(desk, done)
    desk.look()
    behind = desk.add(locks=["k"])
    desk.look()
    with desk.writing() as session:
        session.stir_all_waiting()
    assert desk.stirred() == [after, late, behind]
    assert desk.ready() == [ready, locked]


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
def test_a_freed_lock_marks_only_the_front_of_its_queue(
    desk: Desk, holder: str, queue: list[str], woken: list[int]
) -> None:
    held = desk.add(locks=[holder])
    desk.look()
    desk.claim()
    waiting = [desk.add(locks=[lock]) for lock in queue]
    desk.look()
    desk.finish(held)
    assert desk.stirred() == [waiting[n] for n in woken]


def test_a_waiter_that_gives_up_lets_those_behind_it_look(desk: Desk) -> None:
    desk.add(locks=["k:shared"])
    desk.look()
    desk.claim()
    exclusive, behind = desk.add(locks=["k"]), desk.add(locks=["k:shared"])
    desk.look()
    assert desk.status(behind) is Status.WAITING_ON_LOCKS
    end_waiting(desk, exclusive)
    assert desk.stirred() == [behind]
    desk.look()
    assert desk.claim() == [behind]


@pytest.mark.parametrize(("first", "second"), [("k", "k"), ("k:shared", "k"), ("k", "k:shared")])
def test_a_later_arrival_with_a_higher_rank_takes_the_turn_of_a_ready_one(desk: Desk, first: str, second: str) -> None:
    low = desk.add(locks=[first])
    desk.look()
    assert desk.ready() == [low]
    high = desk.add(locks=[second], priority=5)
    desk.look()
    assert desk.stirred() == [low]
    desk.look()
    assert desk.ready() == [high]
    assert desk.status(low) is Status.WAITING_ON_LOCKS


def test_shared_arrivals_do_not_disturb_one_another(desk: Desk) -> None:
    low = desk.add(locks=["k:shared"])
    desk.look()
    high = desk.add(locks=["k:shared"], priority=5)
    desk.look()
    assert desk.stirred() == []
    assert desk.ready() == [low, high]


def test_fronts_say_how_a_key_is_held_and_who_stands_first(desk: Desk) -> None:
    one = desk.add(locks=["a:shared", "b"])
    desk.look()
    desk.claim()
    two, three = desk.add(locks=["a:shared"]), desk.add(locks=["a", "b"])
    desk.look()
    fronts = desk.session.fronts(["a", "b", "c"])
    ranks = {standing.rank.job: standing.rank for standing in desk.session.standings([one, two, three])}
    assert fronts == {
        "a": Front(held=LockMode.SHARED, first=ranks[two], first_exclusive=ranks[three]),
        "b": Front(held=LockMode.EXCLUSIVE, first=ranks[three], first_exclusive=ranks[three]),
        "c": Front(),
    }
    held = desk.reader.lock_owners(["a", "b", "c"])
    assert {key: [owner for owner, _ in owners] for key, owners in held.items()} == {"a": [one], "b": [one]}


def test_what_is_marked_comes_in_queue_order(desk: Desk) -> None:
    jobs = [desk.add(locks=["k"], priority=priority) for priority in (0, 5, 0, 9)]
    order = [jobs[3], jobs[1], jobs[0], jobs[2]]
    assert [standing.rank.job for standing in desk.session.stirred(10)[0]] == order
    assert [standing.rank.job for standing in desk.session.stirred(2)[0]] == order[:2]
