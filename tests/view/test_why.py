"""`why` and `show`: the true reason, in the words of DESIGN §3, down to what holds up what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness import FakeExecutor, Raw, Scheduler
from rota.core.status import Status
from rota.errors import NotFound
from rota.executor.port import Lost
from rota.ids import JobId
from rota.wire.job import WaitForm


def test_a_running_job_says_since_when_and_as_what(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.clock.advance(seconds=12.5)
    ordered = "job-1 is RUNNING: its start was ordered 12s ago, and the supervisor has not confirmed it"
    assert scheduler.why(job)["text"] == ordered
    scheduler.start(job, pid=77)
    assert scheduler.why(job) == {
        "job": "job-1",
        "status": "RUNNING",
        "wait": None,
        "text": "job-1 is RUNNING: it runs as pid 77 since 2026-01-01 00:00:00 UTC",
        "warnings": [],
    }


def test_capacity_names_the_pool_and_who_uses_it(scheduler: Scheduler) -> None:
    scheduler.submit()
    job = scheduler.submit()
    why = scheduler.why(job)
    assert why["text"] == "job-2 is QUEUED: waiting on pool global (1/1), used by job-1"
    assert why["wait"] == {"kind": "capacity", "detail": "waiting on pool global (1/1)", "on": ["pool:global"]}


def test_of_several_full_pools_the_first_in_order_speaks(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 9, "type__t": 1, "target__w": 1, "resource__r": 1})
    fields: dict[str, Any] = {"type": "t", "flow": "f", "target": "w", "pools": {"resource/r": 1}}
    scheduler.submit(**fields)
    for name, size in (("global", 1), ("type/t", 1), ("flow/f", 1), ("target/w", 1), ("resource/r", 1)):
        job = scheduler.submit(**fields)
        scheduler.set_pools(**{"global": 1 if name == "global" else 9})
        assert scheduler.detail(job) == f"waiting on pool {name} (1/{size})"
        scheduler.set_pools(**{name.replace("/", "__"): -1})
        scheduler.cancel(job) if scheduler.status(job) is Status.QUEUED else None


def test_many_users_are_counted_and_not_all_named(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 8})
    for _ in range(8):
        scheduler.submit()
    text = scheduler.why(scheduler.submit())["text"]
    assert text.endswith("used by job-1, job-2, job-3, job-4, job-5 and 3 more")


def test_locks_name_the_keys_their_holders_and_those_before(wide: Scheduler) -> None:
    wide.submit(locks=["a"])
    wide.submit(locks=["a", "b"])
    job = wide.submit(locks=["b"])
    assert wide.why(JobId(2))["text"] == "job-2 is WAITING_ON_LOCKS: waiting on locks: a (held by job-1)"
    why = wide.why(job)
    assert why["text"] == "job-3 is WAITING_ON_LOCKS: waiting on locks: b (others are before it)"
    assert why["wait"] == {"kind": "locks", "detail": "waiting on locks", "on": ["lock:b"]}


def test_dependencies_are_told_down_to_their_cause(scheduler: Scheduler) -> None:
    scheduler.submit()
    scheduler.submit(locks=["k"])
    scheduler.submit(after=[JobId(2)])
    job = scheduler.submit(after=[JobId(3)])
    assert scheduler.why(job)["text"].split("\n") == [
        "job-4 is WAITING_ON_DEPS: waiting on job job-3",
        "  job-3 is WAITING_ON_DEPS: waiting on job job-2",
        "    job-2 is QUEUED: waiting on pool global (1/1), used by job-1",
    ]
    assert scheduler.why(job)["wait"] == {"kind": "dependencies", "detail": "waiting on job job-3", "on": ["job:3"]}


def test_a_long_chain_of_reasons_is_cut(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit()]
    for _ in range(20):
        jobs.append(scheduler.submit(after=[jobs[-1]]))
    assert len(scheduler.why(jobs[-1])["text"].split("\n")) == 5


def test_a_delay_says_until_when(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1.5s")
    assert scheduler.why(job)["text"] == "job-1 is QUEUED: not before 2026-01-01T00:00:01.500000Z"
    assert scheduler.show(job).wait == WaitForm(kind="delay", detail="not before 2026-01-01T00:00:01.500000Z", on=[])


def test_what_has_ended_says_how(scheduler: Scheduler) -> None:
    done, bad = scheduler.submit(), scheduler.submit()
    blocked = scheduler.submit(after=[bad])
    scheduler.end(done)
    scheduler.end(bad, 3)
    assert [scheduler.why(job)["text"] for job in (done, bad, blocked)] == [
        "job-1 is COMPLETED: it has ended",
        "job-2 is FAILED: exit code 3",
        "job-3 is BLOCKED_BY_DEPENDENCY: dependency failed for job job-2 (FAILED)",
    ]
    assert scheduler.show(done).wait is None


def test_warnings_are_repeated_while_they_matter(wide: Scheduler) -> None:
    wide.set_pools(resource__gpu=1)
    job = wide.submit(pools={"resource/gpu": 2})
    assert wide.why(job)["warnings"] == [
        "pool resource/gpu has size 1, the job draws 2: it cannot start until the pool grows"
    ]
    wide.cancel(job)
    assert wide.why(job)["warnings"] == []


def test_a_job_that_only_the_supervisor_is_missing_for_says_so(scheduler: Scheduler) -> None:
    """While the supervisor is away nothing starts; that is no reason of the job, and no pool is full."""
    scheduler.say(Lost(reason="killed"))
    job = scheduler.submit()
    assert scheduler.show(job).wait is None
    assert scheduler.why(job)["text"] == "job-1 is QUEUED: there is no supervisor; it is being started"


def test_the_second_of_two_that_nothing_holds_waits_for_the_first(scheduler: Scheduler) -> None:
    scheduler.say(Lost(reason="killed"))
    first, second = scheduler.submit(), scheduler.submit()
    assert scheduler.detail(first) is None
    assert scheduler.detail(second) == "waiting on pool global (1/1)"


def test_a_paused_scheduler_says_by_whom(scheduler: Scheduler, raw: Raw) -> None:
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('global', 'ada', 0)")
    job = scheduler.submit()
    assert scheduler.started() == []
    assert scheduler.show(job).wait == WaitForm(kind="paused", detail="paused by ada", on=["pause"])
    raw("DELETE FROM pause")
    scheduler.turn()
    assert scheduler.started() == [job]


def test_a_paused_pool_holds_only_its_own(make_scheduler: Callable[..., Scheduler], raw: Raw) -> None:
    scheduler = make_scheduler(**{"global": -1})
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('flow/a', 'ada', 0)")
    held, free = scheduler.submit(flow="a"), scheduler.submit(flow="b")
    assert scheduler.started() == [free]
    assert scheduler.detail(held) == "paused by ada"


def test_the_gates_speak_in_their_order(scheduler: Scheduler, raw: Raw) -> None:
    """after → delay → paused → locks → pools: a job held by all of them names the first, then the next."""
    running = scheduler.submit(locks=["k"])
    slow = scheduler.submit(priority=5)
    job = scheduler.submit(after=[slow], delay="1h", locks=["k"])
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('global', 'ada', 0)")
    assert scheduler.detail(job) == f"waiting on job job-{slow}"
    scheduler.cancel(slow)
    job = scheduler.submit(delay="1h", locks=["k"])
    assert scheduler.detail(job) == "not before 2026-01-01T01:00:00Z"
    scheduler.clock.advance(hours=1)
    scheduler.turn()
    assert scheduler.detail(job) == "paused by ada"
    raw("DELETE FROM pause")
    assert scheduler.detail(job) == "waiting on locks"
    scheduler.cancel(running)
    behind = scheduler.submit()
    assert scheduler.detail(behind) == "waiting on pool global (1/1)"


@pytest.mark.parametrize("verb", ["show", "why"])
def test_what_is_not_there_is_not_found(scheduler: Scheduler, verb: str) -> None:
    with pytest.raises(NotFound, match="no such job: job-99; `rota list --all` shows what there is"):
        getattr(scheduler, verb)(JobId(99))


def test_looking_changes_nothing(scheduler: Scheduler, raw: Raw) -> None:
    many: tuple[dict[str, Any], ...] = ({}, {}, {"delay": "1h"}, {"locks": ["k"]})
    for fields in many:
        scheduler.submit(**fields)
    before = [raw(f"SELECT * FROM {table}") for table in ("job", "run", "lock", "lane", "event")]
    for job in range(1, 5):
        scheduler.show(JobId(job))
        scheduler.why(JobId(job))
    assert [raw(f"SELECT * FROM {table}") for table in ("job", "run", "lock", "lane", "event")] == before
    assert isinstance(scheduler.executor, FakeExecutor)
