"""Locks: examples, and a comparison with the reference rule over long random histories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rota.kernel.locks import Lock, LockBoard, LockFront, LockMode
from rota.kernel.queue import Rank
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Pass, Wait, WaitKind
from tests.kernel.factories import EXCLUSIVE, SHARED, lock, rank


def _board(*contenders: tuple[int, str], held: LockMode | None = None) -> LockBoard:
    board = LockBoard({"repo": LockFront(held=held)})
    for job, text in contenders:
        board.enqueue(rank(job), [lock(text)])
    return board


def _admits(board: LockBoard, job: int, *locks: str) -> bool:
    return isinstance(board.judge(rank(job), [lock(text) for text in locks]), Pass)


@pytest.mark.parametrize(
    ("held", "requested", "is_admitted"),
    [
        (None, "repo", True),
        (None, "repo:shared", True),
        (SHARED, "repo", False),
        (SHARED, "repo:shared", True),
        (EXCLUSIVE, "repo", False),
        (EXCLUSIVE, "repo:shared", False),
    ],
)
def test_holder_admits_only_shared_requests(held: LockMode | None, requested: str, is_admitted: bool) -> None:
    assert _admits(_board((1, requested), held=held), 1, requested) is is_admitted
    assert _admits(_board(held=held), 1, requested) is is_admitted


@pytest.mark.parametrize(
    ("earlier", "later", "is_admitted"),
    [
        ("repo", "repo", False),
        ("repo", "repo:shared", False),
        ("repo:shared", "repo", False),
        ("repo:shared", "repo:shared", True),
        ("repo", "other", True),
        ("repo:shared", "other", True),
    ],
)
def test_inv_004_later_job_passes_earlier_job_only_if_both_share(earlier: str, later: str, is_admitted: bool) -> None:
    for contenders in ([(1, earlier), (2, later)], [(2, later), (1, earlier)]):
        board = _board(*contenders)
        assert _admits(board, 1, earlier)
        assert _admits(board, 2, later) is is_admitted


def test_exclusive_waiter_holds_back_only_later_shared_jobs() -> None:
    board = _board((1, "repo:shared"), (2, "repo:shared"), (3, "repo"), (4, "repo:shared"), held=SHARED)
    assert [_admits(board, job, "repo:shared") for job in (1, 2)] == [True, True]
    assert not _admits(board, 3, "repo")
    assert not _admits(board, 4, "repo:shared")


@pytest.mark.parametrize("order", list(permutations(range(1, 5))))
def test_first_in_queue_order_is_independent_of_join_order(order: Sequence[int]) -> None:
    requests = {1: "repo", 2: "repo:shared", 3: "repo", 4: "repo:shared"}
    board = _board(*((job, requests[job]) for job in order))
    assert [job for job in requests if _admits(board, job, requests[job])] == [1]


def test_stream_of_shared_jobs_does_not_starve_exclusive_waiter() -> None:
    board = _board((1, "repo"), *((job, "repo:shared") for job in range(2, 50)), held=SHARED)
    assert not any(_admits(board, job, "repo:shared") for job in range(2, 50))
    freed = _board((1, "repo"), *((job, "repo:shared") for job in range(2, 50)))
    assert _admits(freed, 1, "repo")


def test_inv_004_priority_orders_the_queue_of_a_key() -> None:
    board = LockBoard({})
    board.enqueue(rank(1), [lock("repo")])
    board.enqueue(rank(2, priority=5), [lock("repo")])
    assert isinstance(board.judge(rank(2, priority=5), [lock("repo")]), Pass)
    assert isinstance(board.judge(rank(1), [lock("repo")]), Wait)


def test_locks_are_all_or_nothing_and_wait_names_unavailable_keys() -> None:
    board = LockBoard({"a": LockFront(held=EXCLUSIVE), "b": LockFront(), "c": LockFront(held=SHARED)})
    locks = [lock("a:shared"), lock("b"), lock("c")]
    board.enqueue(rank(1), locks)
    assert board.judge(rank(1), locks) == Wait(
        status=Status.WAITING_ON_LOCKS, kind=WaitKind.LOCKS, detail="waiting on locks", on=("lock:a", "lock:c")
    )


def test_job_waiting_for_one_key_keeps_its_turn_at_others() -> None:
    board = LockBoard({"a": LockFront(held=EXCLUSIVE)})
    board.enqueue(rank(1), [lock("a"), lock("b")])
    board.enqueue(rank(2), [lock("b")])
    assert not _admits(board, 1, "a", "b")
    assert not _admits(board, 2, "b")


def test_job_without_locks_passes() -> None:
    assert LockBoard({}).judge(rank(1), []) == PASS


def test_enqueue_is_idempotent() -> None:
    board = _board((1, "repo"), (1, "repo"), (2, "repo"))
    assert _admits(board, 1, "repo")
    assert not _admits(board, 2, "repo")


# The model. A job requests some keys and contends after it has passed every gate before locks.

KEYS = ("a", "b", "c")
lock_sets = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(LockMode), max_size=3).map(
    lambda modes: tuple(Lock(key=key, mode=mode) for key, mode in sorted(modes.items()))
)
LockRequests = dict[Rank, tuple[Lock, ...]]


def _conflicts(first: Iterable[Lock], second: Iterable[Lock]) -> bool:
    """Return whether both request the same key and at least one of them exclusively."""
    return any(a.key == b.key and (a.mode is EXCLUSIVE or b.mode is EXCLUSIVE) for a in first for b in second)


def _may_start(job: Rank, contending: LockRequests, holding: LockRequests) -> bool:
    """Apply the rule literally: no holder conflicts with the job, and it passes an earlier contender only if both
    share. Jobs that are held before the locks gate do not contend."""
    locks = contending[job]
    return not any(_conflicts(locks, held) for held in holding.values()) and not any(
        _conflicts(locks, contending[earlier]) for earlier in contending if earlier < job
    )


def _fronts(contending: LockRequests, holding: LockRequests) -> dict[str, LockFront]:
    """Read the fronts as a store does: only the first contenders of each key."""
    fronts = {}
    for key in KEYS:
        modes = {lock.mode for locks in holding.values() for lock in locks if lock.key == key}
        queue = sorted((job, lock.mode) for job, locks in contending.items() for lock in locks if lock.key == key)
        fronts[key] = LockFront(
            held=EXCLUSIVE if EXCLUSIVE in modes else SHARED if modes else None,
            first=next((job for job, _ in queue), None),
            first_exclusive=next((job for job, mode in queue if mode is EXCLUSIVE), None),
        )
    return fronts


queues = st.lists(st.tuples(st.integers(-1, 1), lock_sets, st.booleans()), max_size=12)


@given(queues, st.lists(lock_sets, max_size=4), st.randoms(use_true_random=False))
def test_inv_004_board_matches_reference_rule(
    queue: Sequence[tuple[int, tuple[Lock, ...], bool]], holders: Sequence[tuple[Lock, ...]], random: Random
) -> None:
    """The result is the same for stored and joining contenders, and for any order of the calls."""
    contending = {rank(number, priority): locks for number, (priority, locks, _) in enumerate(queue, 1)}
    stored = {job: contending[job] for job, (_, _, is_stored) in zip(contending, queue, strict=True) if is_stored}
    holding: LockRequests = {}
    for number, locks in enumerate(holders, 100):
        if not any(_conflicts(locks, held) for held in holding.values()):
            holding[rank(number)] = locks
    board = LockBoard(_fronts(stored, holding))
    joining = list(contending)
    random.shuffle(joining)
    for job in joining:
        board.enqueue(job, contending[job])
    for job, locks in contending.items():
        assert isinstance(board.judge(job, locks), Pass) is _may_start(job, contending, holding)


class LockHistories(RuleBasedStateMachine):
    """Histories of jobs that are submitted, pass the gates before locks, start when admitted (or wait for a pool), and
    end."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0
        self.held_before: LockRequests = {}
        self.contending: LockRequests = {}
        self.holding: LockRequests = {}

    def admitted(self) -> list[Rank]:
        board = LockBoard(_fronts(self.contending, self.holding))
        return [job for job, locks in self.contending.items() if isinstance(board.judge(job, locks), Pass)]

    @rule(priority=st.integers(-1, 1), locks=lock_sets, is_held=st.booleans())
    def submit(self, priority: int, locks: tuple[Lock, ...], is_held: bool) -> None:
        self.jobs += 1
        (self.held_before if is_held else self.contending)[rank(self.jobs, priority)] = locks

    @precondition(lambda self: self.held_before)
    @rule(data=st.data())
    def pass_earlier_gates(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.held_before)))
        self.contending[job] = self.held_before.pop(job)

    @precondition(lambda self: self.contending)
    @rule(data=st.data())
    def start_some(self, data: st.DataObject) -> None:
        """Start any subset of the admitted jobs; the others wait for a pool and keep their place."""
        for job in self.admitted():
            if data.draw(st.booleans()):
                overtaken = [
                    earlier
                    for earlier, locks in self.contending.items()
                    if earlier < job and _conflicts(locks, self.contending[job])
                ]
                assert not overtaken, "a job passed an earlier conflicting job"
                self.holding[job] = self.contending.pop(job)

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        del self.holding[data.draw(st.sampled_from(sorted(self.holding)))]

    @invariant()
    def no_two_holders_conflicts(self) -> None:
        assert not any(_conflicts(a, b) for a, b in combinations(self.holding.values(), 2))

    @invariant()
    def admitted_jobs_have_no_conflicts(self) -> None:
        admitted = [self.contending[job] for job in self.admitted()]
        assert not any(_conflicts(a, b) for a, b in combinations(admitted, 2))
        assert not any(_conflicts(locks, held) for locks in admitted for held in self.holding.values())

    @invariant()
    def there_is_no_deadlock(self) -> None:
        """While any job contends, the first contender is admitted or a job holds a lock."""
        assert not self.contending or self.holding or min(self.contending) in self.admitted()


TestHistories = LockHistories.TestCase
