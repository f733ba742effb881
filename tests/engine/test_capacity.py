"""Capacity as seed 004 has it: modes, the number that a tick starts and why, batches, and what counts as in use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from core.test_plan import BOUNDS
from harness import Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Answer, submit
from rota.core.pool import Drawing, Draws, NamedPolicy
from rota.core.status import Status
from rota.engine.work import Work
from rota.errors import InvalidInput
from rota.executor.port import Account
from rota.ids import JobId, show_job
from rota.view.status import status
from rota.wire.scheduler import PoolForm


def names(jobs: list[JobId]) -> list[str]:
    return [show_job(job) for job in jobs]


@pytest.mark.parametrize(("capacity", "batch", "ready", "n", "skipped", "reason"), BOUNDS)
def test_dispatch_count(
    make_scheduler: Callable[..., Scheduler],
    capacity: int,
    batch: int,
    ready: int,
    n: int,
    skipped: int,
    reason: str,
) -> None:
    """As many places as the capacity are free; where it is less than nought, more runs than the limit allows."""
    running = 3
    scheduler = make_scheduler(**{"global": running})
    for _ in range(running):
        scheduler.submit()
    scheduler.configure(heartbeat="manual")
    scheduler.set_pools(**{"global": running + capacity})
    jobs = [scheduler.submit() for _ in range(ready)]
    said = {"skipped": skipped, "reason": reason}
    assert scheduler.dry_run(batch) == {"dispatched": [], "would_dispatch": names(jobs[:n]), **said}
    assert scheduler.tick(batch) == {"dispatched": names(jobs[:n]), "would_dispatch": [], **said}
    assert len(scheduler.started()) == running + n


@pytest.mark.parametrize(
    ("size", "mode", "started"), [(-1, "direct", 3), (0, "deferred", 0), (1, "deferred", 1), (5, "deferred", 3)]
)
def test_dispatch_modes(make_scheduler: Callable[..., Scheduler], size: int, mode: str, started: int) -> None:
    """One command for all of them: the limit decides. Nought is no second word for "no limit" (DESIGN §13)."""
    scheduler = make_scheduler(**{"global": size})
    jobs = [scheduler.submit() for _ in range(3)]
    assert scheduler.started() == jobs[:started]
    assert status(scheduler.reader, scheduler.sight).mode == mode


def test_direct_mode_starts_in_the_turn_that_stores(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    told = scheduler.do(partial(_submit, scheduler), lambda work, _: [[claim.job for claim in work.plan.claims]])
    assert told == scheduler.started() == [1], "the same call"


def test_the_heartbeat_of_three_minutes_with_its_batch_of_one(make_scheduler: Callable[..., Scheduler]) -> None:
    """`max_polecats = 5`, and nothing else is configured."""
    scheduler = make_scheduler(**{"global": 5})
    scheduler.configure(heartbeat=timedelta(minutes=3))
    jobs = [scheduler.submit() for _ in range(8)]
    seen = []
    for _ in range(7):
        scheduler.clock.advance(minutes=3)
        scheduler.turn()
        seen.append(len(scheduler.started()))
    assert seen == [1, 2, 3, 4, 5, 5, 5]
    scheduler.end(jobs[0])
    assert len(scheduler.started()) == 5
    scheduler.clock.advance(minutes=3)
    scheduler.turn()
    assert scheduler.started() == jobs[:6]


def test_batch_size_and_spawn_delay_as_in_the_seed(make_scheduler: Callable[..., Scheduler]) -> None:
    """`batch_size 2`, `spawn_delay 3s`: two a tick, three seconds apart, and nobody sleeps."""
    scheduler = make_scheduler(**{"global": 5})
    scheduler.configure(heartbeat=timedelta(minutes=3), batch_size=2, spawn_delay=timedelta(seconds=3))
    jobs = [scheduler.submit() for _ in range(5)]
    starts: dict[int, int] = {}
    for second in range(0, 600, 3):
        for job in scheduler.started():
            starts.setdefault(job, second)
        scheduler.clock.advance(seconds=3)
        scheduler.turn()
    first = starts[jobs[0]]
    assert [starts[job] - first for job in jobs] == [0, 3, 180, 183, 360]


def test_everything_that_runs_counts_however_it_was_started(make_scheduler: Callable[..., Scheduler]) -> None:
    """Started in direct mode, by a tick, or adopted: shared resources do not ask."""
    scheduler = make_scheduler(**{"global": -1})
    direct = [scheduler.submit() for _ in range(2)]
    scheduler.set_pools(**{"global": 3})
    by_event = scheduler.submit()
    waiting = scheduler.submit()
    assert scheduler.started() == [*direct, by_event]
    assert scheduler.detail(waiting) == "waiting on pool global (3/3)"
    assert status(scheduler.reader, scheduler.sight).pools["global"] == PoolForm(size=3, used=3)


def test_capacity_below_nought_is_said_and_nothing_starts(make_scheduler: Callable[..., Scheduler]) -> None:
    """LESSONS Dispatch: nothing ran for 12 h (capacity 5−7=−2) and nothing was logged."""
    scheduler = make_scheduler(**{"global": 7})
    running = [scheduler.submit() for _ in range(7)]
    scheduler.set_pools(**{"global": 5})
    waiting = scheduler.submit()
    assert scheduler.tick() == {"dispatched": [], "would_dispatch": [], "skipped": 1, "reason": "capacity"}
    assert scheduler.detail(waiting) == "waiting on pool global (7/5)"
    for job in running[:2]:
        scheduler.end(job)
    assert scheduler.status(waiting) is Status.QUEUED
    scheduler.end(running[2])
    assert scheduler.started()[-1] == waiting
    assert scheduler.executor.stops == []


def test_blocked_work_is_not_ready(make_scheduler: Callable[..., Scheduler]) -> None:
    """Work is joined with what is ready: what waits for something else counts for nothing."""
    scheduler = make_scheduler(**{"global": 1})
    scheduler.configure(heartbeat="manual")
    first = scheduler.submit()
    scheduler.submit(after=[first])
    scheduler.submit(delay="1h")
    assert scheduler.dry_run(9) == {
        "dispatched": [], "would_dispatch": names([first]), "skipped": 0, "reason": "capacity",
    }  # fmt: skip
    scheduler.set_pools(**{"global": 2})
    assert scheduler.tick(9)["reason"] == "ready"


def _submit(scheduler: Scheduler, work: Work) -> Answer:
    around = Surroundings(cwd="/", variables={})
    return submit(work, [Submission(command=["true"])], around, actor="tester")


# Seed 001 §6: three answers to OQ-001, each of them a configuration.


def _running(scheduler: Scheduler, jobs: dict[str, JobId]) -> list[str]:
    return [name for name, job in jobs.items() if scheduler.status(job) is Status.DISPATCHED]


def test_option_a_a_global_limit(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler()
    jobs = {name: scheduler.submit() for name in ("Job1", "Job2", "Job3")}
    for name, job in jobs.items():
        assert _running(scheduler, jobs) == [name]
        scheduler.end(job)


def test_option_b_a_limit_for_each_type(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "type__story": 1, "type__research": 1})
    kinds = {"S": "story", "R": "research"}
    jobs = {name: scheduler.submit(type=kinds[name[0]]) for name in ("S1", "S2", "R1", "R2", "S3")}
    assert _running(scheduler, jobs) == ["S1", "R1"]
    scheduler.end(jobs["R1"])
    assert _running(scheduler, jobs) == ["S1", "R2"]
    scheduler.end(jobs["S1"])
    assert _running(scheduler, jobs) == ["S2", "R2"]
    scheduler.end(jobs["R2"])
    assert _running(scheduler, jobs) == ["S2"]
    scheduler.end(jobs["S2"])
    assert _running(scheduler, jobs) == ["S3"]


def test_option_c_a_limit_for_each_resource(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "resource__ollama": 1, "resource__remote": 2})
    wanted = {"J1": "ollama", "J2": "remote", "J3": "ollama", "J4": "remote", "J5": "remote"}
    jobs = {name: scheduler.submit(pools={f"resource/{resource}": 1}) for name, resource in wanted.items()}
    assert _running(scheduler, jobs) == ["J1", "J2", "J4"]
    scheduler.end(jobs["J2"])
    assert _running(scheduler, jobs) == ["J1", "J4", "J5"]
    scheduler.end(jobs["J1"])
    assert _running(scheduler, jobs) == ["J3", "J4", "J5"]


def test_a_policy_that_leaves_the_program_is_refused_and_harms_nobody(make_scheduler: Callable[..., Scheduler]) -> None:
    class Leaving:
        def draws(self, job: Drawing) -> Draws:
            raise SystemExit(3)

    scheduler = make_scheduler()
    scheduler.configure(policy=NamedPolicy("night", Leaving()))
    with pytest.raises(InvalidInput, match="the concurrency policy night failed: SystemExit"):
        scheduler.submit()


def test_what_a_tick_still_owes_outlives_the_scheduler(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(heartbeat="manual", batch_size=3, spawn_delay=timedelta(seconds=2))
    jobs = [scheduler.submit() for _ in range(4)]
    assert scheduler.tick(3)["would_dispatch"] == names(jobs[1:3])
    scheduler.crash([Account(run=scheduler.run_of(jobs[0]), pid=1)])
    for _ in range(3):
        scheduler.clock.advance(seconds=2)
        scheduler.turn()
    assert scheduler.started() == jobs[1:3]


def test_why_names_who_is_in_the_way(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 4, "resource__gpu": 1})
    first = scheduler.submit(pools={"resource/gpu": 1})
    second = scheduler.submit(pools={"resource/gpu": 1})
    third, heavy, light = scheduler.submit(), scheduler.submit(pools={"global": 4}), scheduler.submit()
    assert scheduler.started() == [first, third]
    assert scheduler.detail(second) == "waiting on pool resource/gpu (1/1)", "who comes later closed nothing to it"
    text = scheduler.why(light)["text"]
    assert "waiting on pool global (2/4), used by job-1, job-3; job-4 is before it and needs more room" in text
    shared = [scheduler.submit(locks=[lock], pools={"global": 1}) for lock in ("k:shared", "k", "k:shared")]
    scheduler.set_pools(**{"global": -1})
    assert "k (held by" in scheduler.why(shared[1])["text"]
    assert "k (others are before it)" in scheduler.why(shared[2])["text"]
    assert heavy in scheduler.started()
