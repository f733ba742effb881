"""Locks as they are listed: who holds a key and who stands in line, in the order in which they get it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from harness import Raw, Scheduler
from rota.view.lock import lock, locks
from rota.wire.lock import LockKeyForm


def seen(form: LockKeyForm) -> tuple[Any, ...]:
    names = [[f"{each.id} {each.mode}" for each in each_side] for each_side in (form.holders, form.waiters)]
    return form.key, form.mode, *names, form.waiting


def test_holders_and_waiters_in_order(make_scheduler: Callable[..., Scheduler], raw: Raw) -> None:
    scheduler = make_scheduler(**{"global": -1})
    for wanted in (["b:shared"], ["b:shared", "z"], ["b"], ["b:shared", "a"]):
        scheduler.submit(locks=wanted)
    scheduler.submit(locks=["b"], priority=4)
    scheduler.submit(locks=["idle"], delay="1h")
    raw("INSERT INTO lock (job, key, mode, state, precedence, position, created_at)"
        " VALUES (-7, 'a', 'shared', 'held', -99, 1, 1), (-8, 'b', 'exclusive', 'contending', -99, 1, 1)")  # fmt: skip
    found, following = locks(scheduler.reader, after="", limit=10)
    assert [seen(form) for form in found] == [
        ("a", "shared", ["slot-7 shared"], ["job-4 exclusive"], 1),
        ("b", "shared", ["job-1 shared", "job-2 shared"],
         ["slot-8 exclusive", "job-5 exclusive", "job-3 exclusive", "job-4 shared"], 4),
        ("z", "exclusive", ["job-2 exclusive"], [], 0),
    ]  # fmt: skip
    assert following is None
    raw("DELETE FROM lock WHERE job < 0")
    assert seen(lock(scheduler.reader, "idle")) == ("idle", None, [], [], 0)


def test_a_long_line_is_counted_and_not_listed_and_many_keys_come_in_pages(
    make_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = make_scheduler(**{"global": 0})
    for n in range(25):
        scheduler.submit(locks=["long", f"k{n:02}"])
    form = lock(scheduler.reader, "long")
    assert ([each.id for each in form.waiters], form.waiting) == ([f"job-{n}" for n in range(1, 21)], 25)
    pages, after = [], ""
    while True:
        page, following = locks(scheduler.reader, after=after, limit=10)
        pages.append([each.key for each in page])
        if following is None:
            break
        after = following
    assert pages == [[f"k{n:02}" for n in range(10)], [f"k{n:02}" for n in range(10, 20)], [
        *(f"k{n:02}" for n in range(20, 25)), "long"]]  # fmt: skip
    assert set(asdict(form)) == {"key", "mode", "holders", "waiters", "waiting"}
