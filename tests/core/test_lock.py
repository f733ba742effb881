"""Locks: who may have a key now, by table, and over long random histories against the design's one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.making import EXCLUSIVE, SHARED, lock, rank
from rota.core.lock import Front, Lock, LockBoard, LockMode
from rota.core.queue import Rank
from rota.core.status import Status
from rota.core.verdict import PASS, Pass, Wait
from rota.core.wait import WaitKind


def _board(*contenders: tuple[int, str], held: LockMode | None = None) -> LockBoard:
    board = LockBoard({"repo": Front(held=held)})
    for job, text in contenders:
        board.join(rank(job), [lock(text)])
    return board


def _admits(board: LockBoard, job: int, *locks: str) -> bool:
    return isinstance(board.judge(rank(job), [lock(text) for text in locks]), Pass)


@pytest.mark.parametrize(
    ("held", "wanted", "is_admitted"),
    [
        (None, "repo", True),
        (None, "repo:shared", True),
        (SHARED, "repo", False),
        (SHARED, "repo:shared", True),
        (EXCLUSIVE, "repo", False),
        (EXCLUSIVE, "repo:shared", False),
    ],
)
def test_a_holder_admits_only_those_that_share_with_it(held: LockMode | None, wanted: str, is_admitted: bool) -> None:
    assert _admits(_board((1, wanted), held=held), 1, wanted) is is_admitted
    assert _admits(_board(held=held), 1, wanted) is is_admitted


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
def test_inv_004_a_later_job_passes_an_earlier_one_only_if_both_share(
    earlier: str, later: str, is_admitted: bool
) -> None:
    for contenders in ([(1, earlier), (2, later)], [(2, later), (1, earlier)]):
        board = _board(*contenders)
        assert _admits(board, 1, earlier)
        assert _admits(board, 2, later) is is_admitted


def test_shared_ones_before_an_exclusive_waiter_go_on_and_those_behind_it_wait() -> None:
    board = _board((1, "repo:shared"), (2, "repo:shared"), (3, "repo"), (4, "repo:shared"), held=SHARED)
    assert [_admits(board, job, "repo:shared") for job in (1, 2)] == [True, True]
    assert not _admits(board, 3, "repo")
    assert not _admits(board, 4, "repo:shared")


@pytest.mark.parametrize("order", list(permutations(range(1, 5))))
def test_whoever_joins_when_the_first_stays_the_first(order: Sequence[int]) -> None:
    wanted = {1: "repo", 2: "repo:shared", 3: "repo", 4: "repo:shared"}
    board = _board(*((job, wanted[job]) for job in order))
    assert [job for job in wanted if _admits(board, job, wanted[job])] == [1]


def test_shared_holders_and_a_stream_of_shared_ones_do_not_starve_an_exclusive_waiter() -> None:
    board = _board((1, "repo"), *((job, "repo:shared") for job in range(2, 50)), held=SHARED)
    assert not any(_admits(board, job, "repo:shared") for job in range(2, 50))
    freed = _board((1, "repo"), *((job, "repo:shared") for job in range(2, 50)))
    assert _admits(freed, 1, "repo")


def test_inv_004_priority_decides_the_place_in_a_keys_queue() -> None:
    board = LockBoard({})
    board.join(rank(1), [lock("repo")])
    board.join(rank(2, priority=5), [lock("repo")])
    assert isinstance(board.judge(rank(2, priority=5), [lock("repo")]), Pass)
    assert isinstance(board.judge(rank(1), [lock("repo")]), Wait)


def test_all_or_nothing_and_only_the_keys_in_the_way_are_named() -> None:
    board = LockBoard({"a": Front(held=EXCLUSIVE), "b": Front(), "c": Front(held=SHARED)})
    wanted = [lock("a:shared"), lock("b"), lock("c")]
    board.join(rank(1), wanted)
    assert board.judge(rank(1), wanted) == Wait(
        status=Status.WAITING_ON_LOCKS, kind=WaitKind.LOCKS, detail="waiting on locks", on=("lock:a", "lock:c")
    )


def test_one_that_waits_at_one_key_keeps_its_turn_at_the_others() -> None:
    board = LockBoard({"a": Front(held=EXCLUSIVE)})
    board.join(rank(1), [lock("a"), lock("b")])
    board.join(rank(2), [lock("b")])
    assert not _admits(board, 1, "a", "b")
    assert not _admits(board, 2, "b")


def test_a_job_without_locks_passes() -> None:
    assert LockBoard({}).judge(rank(1), []) == PASS


def test_joining_twice_is_joining_once() -> None:
    board = _board((1, "repo"), (1, "repo"), (2, "repo"))
    assert _admits(board, 1, "repo")
    assert not _admits(board, 2, "repo")


# The model. A job wants some keys; it contends when every gate before locks has let it pass.

KEYS = ("a", "b", "c")
wants = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(LockMode), max_size=3).map(
    lambda modes: tuple(Lock(key=key, mode=mode) for key, mode in sorted(modes.items()))
)
Wants = dict[Rank, tuple[Lock, ...]]


def _conflict(one: Iterable[Lock], other: Iterable[Lock]) -> bool:
    """They want the same key and do not both share it."""
    return any(a.key == b.key and (a.mode is EXCLUSIVE or b.mode is EXCLUSIVE) for a in one for b in other)


def _may_start(job: Rank, contending: Wants, holding: Wants) -> bool:
    """The sentence, word by word: nobody who holds is in its way, and it passes no earlier contender unless both
    share. Those held at a gate before locks are not among the contenders."""
    wanted = contending[job]
    return not any(_conflict(wanted, held) for held in holding.values()) and not any(
        _conflict(wanted, contending[earlier]) for earlier in contending if earlier < job
    )


def _fronts(contending: Wants, holding: Wants) -> dict[str, Front]:
    """As a store reads them: of everything that contends, only who is first."""
    fronts = {}
    for key in KEYS:
        modes = {lock.mode for locks in holding.values() for lock in locks if lock.key == key}
        queue = sorted((job, lock.mode) for job, locks in contending.items() for lock in locks if lock.key == key)
        fronts[key] = Front(
            held=EXCLUSIVE if EXCLUSIVE in modes else SHARED if modes else None,
            first=next((job for job, _ in queue), None),
            first_exclusive=next((job for job, mode in queue if mode is EXCLUSIVE), None),
        )
    return fronts


queues = st.lists(st.tuples(st.integers(-1, 1), wants, st.booleans()), max_size=12)


@given(queues, st.lists(wants, max_size=4), st.randoms(use_true_random=False))
def test_inv_004_the_board_says_what_the_sentence_says(
    queue: Sequence[tuple[int, tuple[Lock, ...], bool]], holders: Sequence[tuple[Lock, ...]], random: Random
) -> None:
    """Whether contenders are read from a store or join in this tick, and in whatever order they are asked."""
    contending = {rank(number, priority): locks for number, (priority, locks, _) in enumerate(queue, 1)}
    stored = {job: contending[job] for job, (_, _, is_stored) in zip(contending, queue, strict=True) if is_stored}
    holding: Wants = {}
    for number, locks in enumerate(holders, 100):
        if not any(_conflict(locks, held) for held in holding.values()):
            holding[rank(number)] = locks
    board = LockBoard(_fronts(stored, holding))
    joining = list(contending)
    random.shuffle(joining)
    for job in joining:
        board.join(job, contending[job])
    for job, locks in contending.items():
        assert isinstance(board.judge(job, locks), Pass) is _may_start(job, contending, holding)


class Histories(RuleBasedStateMachine):
    """Jobs are submitted, pass the gates before locks, start when the board lets them (or wait for a pool), and end."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0
        self.held_before: Wants = {}
        self.contending: Wants = {}
        self.holding: Wants = {}

    def admitted(self) -> list[Rank]:
        board = LockBoard(_fronts(self.contending, self.holding))
        return [job for job, locks in self.contending.items() if isinstance(board.judge(job, locks), Pass)]

    @rule(priority=st.integers(-1, 1), locks=wants, is_held=st.booleans())
    def submit(self, priority: int, locks: tuple[Lock, ...], is_held: bool) -> None:
        self.jobs += 1
        (self.held_before if is_held else self.contending)[rank(self.jobs, priority)] = locks

    @precondition(lambda self: self.held_before)
    @rule(data=st.data())
    def pass_the_gates_before(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.held_before)))
        self.contending[job] = self.held_before.pop(job)

    @precondition(lambda self: self.contending)
    @rule(data=st.data())
    def start_some(self, data: st.DataObject) -> None:
        """All that are admitted may start together; those left out wait for a pool and keep their turn."""
        for job in self.admitted():
            if data.draw(st.booleans()):
                overtaken = [
                    earlier
                    for earlier, locks in self.contending.items()
                    if earlier < job and _conflict(locks, self.contending[job])
                ]
                assert not overtaken, "somebody was passed who may not be passed"
                self.holding[job] = self.contending.pop(job)

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        del self.holding[data.draw(st.sampled_from(sorted(self.holding)))]

    @invariant()
    def no_two_holders_conflict(self) -> None:
        assert not any(_conflict(one, other) for one, other in combinations(self.holding.values(), 2))

    @invariant()
    def the_admitted_conflict_neither_with_holders_nor_with_each_other(self) -> None:
        admitted = [self.contending[job] for job in self.admitted()]
        assert not any(_conflict(one, other) for one, other in combinations(admitted, 2))
        assert not any(_conflict(one, held) for one in admitted for held in self.holding.values())

    @invariant()
    def somebody_can_always_go_on(self) -> None:
        """No deadlock: while anybody contends, somebody is admitted or holds."""
        assert not self.contending or self.holding or min(self.contending) in self.admitted()


TestHistories = Histories.TestCase
