"""List of locks: the holders of each key and the queue for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from rota.control.queries import list_locks, show_lock
from rota.control.schemas import LockStatus
from tests.harness import Scheduler, SqlRunner


def summarize(lock: LockStatus) -> tuple[Any, ...]:
    names = [[f"{owner.id} {owner.mode}" for owner in owners] for owners in (lock.holders, lock.waiters)]
    return lock.key, lock.mode, *names, lock.waiting


def test_locks_list_holders_and_waiters_in_order(make_scheduler: Callable[..., Scheduler], run_sql: SqlRunner) -> None:
    scheduler = make_scheduler(**{"global": -1})
    for locks in (["b:shared"], ["b:shared", "z"], ["b"], ["b:shared", "a"]):
        scheduler.submit(locks=locks)
    scheduler.submit(locks=["b"], priority=4)
    scheduler.submit(locks=["idle"], delay="1h")
    # A negative owner is a reservation: -7 is reservation-7.
    run_sql(
        "INSERT INTO lock (job, key, mode, state, precedence, position, created_at)"
        " VALUES (-7, 'a', 'shared', 'held', -99, 1, 1), (-8, 'b', 'exclusive', 'contending', -99, 1, 1)"
    )
    listed, cursor = list_locks(scheduler.reader, after="", limit=10)
    assert [summarize(lock) for lock in listed] == [
        ("a", "shared", ["reservation-7 shared"], ["job-4 exclusive"], 1),
        (
            "b",
            "shared",
            ["job-1 shared", "job-2 shared"],
            ["reservation-8 exclusive", "job-5 exclusive", "job-3 exclusive", "job-4 shared"],
            4,
        ),
        ("z", "exclusive", ["job-2 exclusive"], [], 0),
    ]
    assert cursor is None
    run_sql("DELETE FROM lock WHERE job < 0")
    assert summarize(show_lock(scheduler.reader, "idle")) == ("idle", None, [], [], 0)


def test_long_queue_is_counted_and_keys_are_paged(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    for n in range(25):
        scheduler.submit(locks=["long", f"k{n:02}"])
    lock = show_lock(scheduler.reader, "long")
    assert ([owner.id for owner in lock.waiters], lock.waiting) == ([f"job-{n}" for n in range(1, 21)], 25)
    pages, after = [], ""
    while True:
        page, cursor = list_locks(scheduler.reader, after=after, limit=10)
        pages.append([listed.key for listed in page])
        if cursor is None:
            break
        after = cursor
    assert pages == [
        [f"k{n:02}" for n in range(10)],
        [f"k{n:02}" for n in range(10, 20)],
        [*(f"k{n:02}" for n in range(20, 25)), "long"],
    ]
    assert set(asdict(lock)) == {"key", "mode", "holders", "waiters", "waiting"}
