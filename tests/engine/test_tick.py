"""Manual and periodic ticks: their starts, their dry runs, and the delay between starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rota.control.commands import request_tick
from rota.control.queries import show_status
from rota.db.session import AnyReader
from rota.engine import dispatch
from rota.engine.transaction import TurnRequest
from rota.errors import StorageFull
from rota.executor.port import ConnectionLoss, RunInventory, RunReport, StartFailure
from rota.ids import JobId, format_job_id
from rota.jobs import queries
from rota.jobs.queries import render_stored_jobs
from rota.jobs.schemas import WaitReason
from rota.kernel.facts import BranchHead
from rota.kernel.holds import Holds
from rota.kernel.pools import PoolSizes
from rota.kernel.status import Status
from rota.kernel.tick import StartPlan
from tests.harness import Scheduler, SqlRunner

SCHEMA = files("rota.db.migrations") / "0001_initial.sql"
TABLES = [*re.findall(r"CREATE TABLE (\w+)", SCHEMA.read_text()), "meta"]


def names(jobs: Sequence[JobId]) -> list[str]:
    return [format_job_id(job) for job in jobs]


def table_contents(run_sql: SqlRunner) -> dict[str, list[tuple[Any, ...]]]:
    return {table: sorted(run_sql(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


def submit_many(scheduler: Scheduler, count: int, **fields: Any) -> list[JobId]:
    """Submit jobs that are ready because nothing may start them yet."""
    return [scheduler.submit(**fields) for _ in range(count)]


@pytest.fixture
def manual(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler on which only manual ticks start jobs, without pool limits."""
    scheduler = make_scheduler(**{"global": -1, "flow__*": -1})
    scheduler.configure(dispatch_interval="manual")
    return scheduler


# Manual ticks.


def test_tick_reports_its_starts_and_the_reason_of_its_end(manual: Scheduler) -> None:
    jobs = submit_many(manual, 5)
    assert manual.started_jobs() == []
    assert manual.tick(2) == {
        "dispatched": names(jobs[:2]),
        "would_dispatch": [],
        "skipped": 3,
        "reason": "batch",
        "blocker": None,
    }
    assert manual.tick() == {
        "dispatched": names(jobs[2:3]),
        "would_dispatch": [],
        "skipped": 2,
        "reason": "batch",
        "blocker": None,
    }
    assert manual.tick(9) == {
        "dispatched": names(jobs[3:]),
        "would_dispatch": [],
        "skipped": 0,
        "reason": "ready",
        "blocker": None,
    }
    assert manual.tick() == {"dispatched": [], "would_dispatch": [], "skipped": 0, "reason": "none", "blocker": None}


def test_batch_may_exceed_the_usual_snapshot(manual: Scheduler) -> None:
    """More jobs of a lane, and more lanes, than a snapshot usually holds."""
    jobs = submit_many(manual, 150) + [manual.submit(target=f"t{n}") for n in range(60)]
    assert manual.dry_run_tick(205)["would_dispatch"] == names(jobs[:205])
    assert manual.tick(205)["dispatched"] == names(jobs[:205])
    assert manual.started_jobs() == jobs[:205]


def test_ticks_in_one_turn_are_merged(manual: Scheduler) -> None:
    jobs = submit_many(manual, 5)
    act = partial(request_tick, observation=manual.probe_watched_facts())
    manual.engine.turn([TurnRequest(partial(act, batch_size=n), lambda _: None) for n in (1, 3, 2)])
    assert manual.started_jobs() == jobs[:3]


def test_tick_leaves_nothing_in_event_mode(scheduler: Scheduler) -> None:
    running, waiting = submit_many(scheduler, 2)
    assert scheduler.tick() == {
        "dispatched": [],
        "would_dispatch": [],
        "skipped": 1,
        "reason": "capacity",
        "blocker": None,
    }
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running, waiting]


def test_held_jobs_are_not_counted(manual: Scheduler, run_sql: SqlRunner) -> None:
    submit_many(manual, 2, flow="a")
    free = manual.submit()
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('flow/a', 'ann', 0)")
    assert manual.tick(9) == {
        "dispatched": names([free]),
        "would_dispatch": [],
        "skipped": 0,
        "reason": "ready",
        "blocker": None,
    }


def test_tick_while_draining_reports_capacity(manual: Scheduler) -> None:
    submit_many(manual, 2)
    manual.engine.is_draining = True
    assert manual.tick() == {
        "dispatched": [],
        "would_dispatch": [],
        "skipped": 2,
        "reason": "capacity",
        "blocker": None,
    }


# Dry runs.


def _submit_some(scheduler: Scheduler) -> None:
    scheduler.set_pools(resource__gpu=2)
    first = scheduler.submit(locks=["repo"], priority=1)
    scheduler.submit(locks=["repo"])
    scheduler.submit(after=[first])
    scheduler.submit(pools={"resource/gpu": 2})
    scheduler.submit(pools={"resource/gpu": 1})
    scheduler.submit(delay="1s", priority=9)


def test_dry_run_reports_the_next_tick_and_changes_nothing(manual: Scheduler, run_sql: SqlRunner) -> None:
    """LESSONS Store: dry run drifted from the real submit; dry run cleaned up."""
    _submit_some(manual)
    for batch in (1, 2, 9):
        manual.clock.advance(seconds=1)  # the delayed job is due, and not marked yet
        before, orders, events = table_contents(run_sql), len(manual.executor.orders), len(manual.events)
        expected = manual.dry_run_tick(batch)
        assert manual.dry_run_tick(batch) == expected
        assert (table_contents(run_sql), len(manual.executor.orders), len(manual.events)) == (before, orders, events)
        assert expected["dispatched"] == []
        result = manual.tick(batch)
        assert (result["dispatched"], result["skipped"], result["reason"]) == (
            expected["would_dispatch"],
            expected["skipped"],
            expected["reason"],
        )
    assert [start.job for start in manual.executor.starts] == [6, 1, 4]


def test_dry_run_writes_no_bytes(tmp_path: Path, make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    wal = tmp_path / "rota.db-wal"
    if not wal.exists():
        pytest.skip("the store is not a file")
    scheduler.configure(dispatch_interval="manual")
    _submit_some(scheduler)
    scheduler.clock.advance(seconds=1)
    before = wal.read_bytes()
    assert scheduler.dry_run_tick(9)["would_dispatch"] == ["job-6", "job-1", "job-4"]
    assert wal.read_bytes() == before


def test_dry_run_evaluates_marked_jobs_and_leaves_them_marked(
    manual: Scheduler, run_sql: SqlRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluate to the end: blocked jobs, the jobs that they block, their dependents, and lock turns."""
    first = manual.submit("false")
    second = manual.submit(after=[first], locks=["repo"], priority=1)
    third = manual.submit(after=[f"job-{second}:finished"], locks=["repo"])
    fourth = manual.submit(after=[second])
    manual.tick()
    with monkeypatch.context() as patch:
        patch.setattr(manual.engine, "_evaluate", lambda _: False)  # the turn ends before the evaluation
        manual.end_run(first, 1)
    before = table_contents(run_sql)
    assert run_sql("SELECT id FROM job WHERE dirty = 1") == [(second,)]
    assert manual.dry_run_tick(9) == {
        "dispatched": [],
        "would_dispatch": names([third]),
        "skipped": 0,
        "reason": "ready",
        "blocker": None,
    }
    assert table_contents(run_sql) == before
    assert manual.tick(9)["dispatched"] == names([third])
    assert {manual.status(second), manual.status(fourth)} == {Status.BLOCKED_BY_DEPENDENCY}


def test_dry_run_sees_changed_facts(manual: Scheduler, run_sql: SqlRunner) -> None:
    head = BranchHead("/repo/.git", "main")
    manual.probe.values[head] = "a" * 40
    job = manual.submit(pin="main")
    manual.probe.values[head] = "b" * 40
    manual.record_changed_facts()
    assert manual.status(job) is Status.WAITING_ON_DEPS
    manual.probe.values[head] = "a" * 40
    before, known = table_contents(run_sql), dict(manual.engine.fact_cache.observed)
    assert manual.dry_run_tick()["would_dispatch"] == names([job])
    assert (table_contents(run_sql), manual.engine.fact_cache.observed) == (before, known)
    assert manual.tick()["dispatched"] == names([job])


def test_failed_dry_run_raises_and_the_next_turn_continues(manual: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    job = manual.submit()

    def full(*_: Any) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(manual.session.queue, "dirty_jobs", full)
    with pytest.raises(StorageFull):
        manual.dry_run_tick()
    monkeypatch.undo()
    assert manual.tick()["dispatched"] == names([job])


def test_dry_run_is_not_a_tick(manual: Scheduler, make_scheduler: Callable[..., Scheduler]) -> None:
    """It starts nothing, immediately or later, and does not replace the periodic tick."""
    submit_many(manual, 2)
    manual.dry_run_tick(2)
    manual.run_turns()
    assert manual.started_jobs() == []
    manual.configure(dispatch_interval=timedelta(minutes=3))
    assert len(manual.started_jobs()) == 1
    due = manual.engine.next_due
    manual.clock.advance(minutes=4)
    manual.dry_run_tick()
    manual.run_turns()
    assert (len(manual.started_jobs()), due) == (2, datetime(2026, 1, 1, 0, 3, tzinfo=UTC))


def test_dry_run_probes_no_breaker(manual: Scheduler, run_sql: SqlRunner) -> None:
    jobs = submit_many(manual, 3, type="x")
    run_sql("INSERT INTO breaker (key, state, until, opened_at) VALUES ('type/x', 'half_open', 0, 0)")
    before = table_contents(run_sql)
    assert manual.dry_run_tick(9) == {
        "dispatched": [],
        "would_dispatch": names(jobs[:1]),
        "skipped": 0,
        "reason": "ready",
        "blocker": None,
    }
    assert table_contents(run_sql) == before
    assert manual.tick(9) == {
        "dispatched": names(jobs[:1]),
        "would_dispatch": [],
        "skipped": 0,
        "reason": "ready",
        "blocker": None,
    }


# Spawn delay.


def after(**duration: float) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(**duration)).isoformat().replace("+00:00", "Z")


def test_starts_are_separated_by_the_spawn_delay(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.configure(spawn_delay=timedelta(seconds=10))
    first, second, third = submit_many(unlimited_scheduler, 3)
    assert unlimited_scheduler.started_jobs() == [first]
    assert unlimited_scheduler.show_job(second).wait == WaitReason(
        kind="delay", detail=f"not before {after(seconds=10)}", topics=[]
    )
    assert unlimited_scheduler.explain_wait(second)["text"] == f"job-2 is QUEUED: not before {after(seconds=10)}"
    unlimited_scheduler.end_run(first)
    assert unlimited_scheduler.started_jobs() == [first], "an end does not shorten the delay"
    assert unlimited_scheduler.engine.next_due == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [first, second]
    unlimited_scheduler.clock.advance(seconds=9)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [first, second]
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [first, second, third]


def test_job_held_by_something_else_has_that_wait_detail(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 1})
    scheduler.configure(spawn_delay=timedelta(seconds=10))
    submit_many(scheduler, 2)
    assert scheduler.wait_detail(JobId(2)) == "waiting on pool global (1/1)"


def test_submit_shows_the_spawn_delay(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.configure(spawn_delay=timedelta(seconds=10))
    unlimited_scheduler.submit()
    job = unlimited_scheduler.submit()
    result = unlimited_scheduler.run_request(
        lambda _: None, lambda tx, _result: [render_stored_jobs(tx, [job], {}, unlimited_scheduler.view_context)[job]]
    )
    assert result.wait.detail == f"not before {after(seconds=10)}"


def test_last_start_is_remembered_over_a_restart(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.configure(spawn_delay=timedelta(seconds=10))
    first, second = submit_many(unlimited_scheduler, 2)
    unlimited_scheduler.end_run(first)
    unlimited_scheduler.clock.advance(seconds=4)
    unlimited_scheduler.crash()
    assert unlimited_scheduler.started_jobs() == []
    assert unlimited_scheduler.wait_detail(second) == f"not before {after(seconds=10)}"
    unlimited_scheduler.clock.advance(seconds=6)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [second]


def test_clock_set_back_delays_no_start_longer_than_the_spawn_delay(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.configure(spawn_delay=timedelta(seconds=10))
    _first, second = submit_many(unlimited_scheduler, 2)
    unlimited_scheduler.clock.advance(hours=-5)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs()[-1] == second


@pytest.mark.both_databases
def test_start_of_failed_turn_does_not_count(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited_scheduler.configure(spawn_delay=timedelta(seconds=10))

    def full() -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(unlimited_scheduler.session, "commit", full)
        with pytest.raises(StorageFull):
            unlimited_scheduler.submit()
    job = unlimited_scheduler.submit()
    assert unlimited_scheduler.started_jobs() == [job]


def test_tick_spreads_its_batch_over_the_spawn_delay(manual: Scheduler) -> None:
    manual.configure(spawn_delay=timedelta(seconds=1))
    jobs = submit_many(manual, 5)
    assert manual.dry_run_tick(3)["would_dispatch"] == names(jobs[:3])
    expected = manual.tick(3)
    assert expected == {
        "dispatched": names(jobs[:1]),
        "would_dispatch": names(jobs[1:3]),
        "skipped": 2,
        "reason": "batch",
        "blocker": None,
    }
    assert manual.explain_wait(jobs[1])["text"] == f"job-2 is QUEUED: not before {after(seconds=1)}"
    assert manual.explain_wait(jobs[2])["text"] == f"job-3 is QUEUED: not before {after(seconds=2)}"
    for n in (2, 3, 3, 3):
        manual.clock.advance(seconds=1)
        manual.run_turns()
        assert manual.started_jobs() == jobs[:n]
    assert manual.engine.next_due is None


# Dispatch interval.


def test_between_ticks_ends_are_recorded_and_nothing_starts(manual: Scheduler) -> None:
    first = manual.submit()
    second = manual.submit(after=[first])
    assert manual.explain_wait(first)["text"] == "job-1 is QUEUED: starts with the next `rota tick`"
    assert show_status(manual.reader, manual.view_context).idle_reason == "job-1: starts with the next `rota tick`"
    manual.tick()
    manual.end_run(first)
    assert (manual.status(first), manual.status(second)) == (Status.COMPLETED, Status.QUEUED)
    manual.submit(priority=9)
    manual.set_pools(**{"global": 7})
    assert manual.started_jobs() == [first]


def test_tick_starts_one_job_by_default(manual: Scheduler) -> None:
    jobs = submit_many(manual, 6)
    manual.tick()
    assert manual.started_jobs() == jobs[:1]
    text = manual.explain_wait(jobs[2])["text"]
    assert text == "job-3 is QUEUED: other jobs come first; it starts with a later `rota tick`"
    manual.configure(batch_size=2)
    assert manual.started_jobs() == jobs[:1]
    manual.tick()
    assert manual.started_jobs() == jobs[:3]
    manual.tick(1)
    assert manual.started_jobs() == jobs[:4]


def test_unused_batch_is_not_kept_after_the_tick(make_scheduler: Callable[..., Scheduler]) -> None:
    """A job without capacity at the tick waits for the next tick, although the batch was not used up."""
    scheduler = make_scheduler(**{"global": 1})
    scheduler.configure(dispatch_interval="manual", batch_size=3)
    first, second = submit_many(scheduler, 2)
    assert scheduler.tick()["reason"] == "capacity"
    scheduler.end_run(first)
    assert scheduler.started_jobs() == [first]
    scheduler.tick()
    assert scheduler.started_jobs() == [first, second]


def test_failed_start_waits_for_the_next_tick(manual: Scheduler) -> None:
    job = manual.submit()
    manual.tick()
    manual.receive(StartFailure(run=manual.find_run(job), error="no"))
    manual.clock.advance(seconds=5)
    manual.run_turns()
    assert len(manual.started_jobs()) == 1
    manual.tick()
    assert len(manual.started_jobs()) == 2


def test_scheduler_ticks_periodically(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(dispatch_interval=timedelta(minutes=3))
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    jobs = submit_many(scheduler, 3)
    assert scheduler.started_jobs() == []
    assert scheduler.engine.next_due == datetime(2026, 1, 1, 0, 3, tzinfo=UTC)
    text = f"starts with the next tick, not before {after(minutes=3)}"
    assert scheduler.wait_detail(jobs[0]) == text
    assert scheduler.wait_detail(jobs[1]) == "other jobs come first; it starts with a later tick"
    assert scheduler.explain_wait(jobs[0])["text"] == f"job-1 is QUEUED: {text}"
    assert scheduler.explain_wait(jobs[1])["text"].endswith(": other jobs come first; it starts with a later tick")
    assert show_status(scheduler.reader, scheduler.view_context).idle_reason == f"job-1: {text}"
    for minutes, started in ((1, 0), (1, 1), (2, 1), (1, 2), (3, 3), (3, 3)):
        scheduler.clock.advance(minutes=minutes)
        scheduler.run_turns()
        assert scheduler.started_jobs() == jobs[:started]


def test_tick_times_survive_a_restart(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(dispatch_interval=timedelta(minutes=3), batch_size=1)
    scheduler.clock.advance(minutes=3)
    jobs = submit_many(scheduler, 2)
    assert scheduler.started_jobs() == jobs[:1], "a tick that was due comes with the next turn"
    scheduler.clock.advance(minutes=2)
    scheduler.crash([RunReport(run=scheduler.find_run(jobs[0]), pid=1, has_ended=False)])
    assert scheduler.started_jobs() == []
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    assert scheduler.started_jobs() == jobs[1:]


def test_periodic_tick_starts_job_whose_pin_is_checked_first(make_scheduler: Callable[..., Scheduler]) -> None:
    """The job was chosen; checking its pinned head again takes another turn."""
    scheduler = make_scheduler(**{"global": -1})
    scheduler.probe.values[BranchHead("/repo/.git", "main")] = "a" * 40
    scheduler.configure(dispatch_interval=timedelta(minutes=3))
    job = scheduler.submit(pin="main")
    other = scheduler.submit()
    scheduler.clock.advance(minutes=3)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job]
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job], f"{other} waits for the next tick"


def test_periodic_tick_waits_for_the_evaluation_of_marked_jobs(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(dispatch_interval=timedelta(minutes=3), batch_size=2)
    late = [scheduler.submit(delay="2m", priority=1) for _ in range(4)]
    scheduler.submit()
    monkeypatch.setattr(dispatch, "EVALUATE_BATCH_SIZE", 1)
    monkeypatch.setattr(dispatch, "MAX_EVALUATE_BATCHES", 1)
    scheduler.clock.advance(minutes=3)
    scheduler.run_turns()
    assert scheduler.started_jobs() == late[:2]


def test_manual_tick_evaluates_all_jobs_first(manual: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    manual.configure(batch_size=2)
    late = [manual.submit(delay="2m", priority=1) for _ in range(4)]
    manual.submit()
    monkeypatch.setattr(dispatch, "EVALUATE_BATCH_SIZE", 1)
    monkeypatch.setattr(dispatch, "MAX_EVALUATE_BATCHES", 1)
    manual.clock.advance(minutes=3)
    assert manual.dry_run_tick()["would_dispatch"] == names(late[:2])
    assert manual.tick()["dispatched"] == names(late[:2])


def test_disabled_dispatch_interval_starts_all_jobs(manual: Scheduler) -> None:
    jobs = submit_many(manual, 3)
    manual.configure(dispatch_interval=None)
    assert manual.started_jobs() == jobs


def test_missed_tick_does_not_spin_and_is_made_up_for(make_scheduler: Callable[..., Scheduler]) -> None:
    """A timer in the past would make the engine spin."""
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(dispatch_interval=timedelta(minutes=3))
    job = scheduler.submit()
    scheduler.receive(ConnectionLoss(reason="away"))
    scheduler.clock.advance(minutes=5)
    scheduler.run_turns()
    assert (scheduler.started_jobs(), scheduler.engine.next_due) == ([], None)
    scheduler.receive(RunInventory(runs=[]))
    assert scheduler.started_jobs() == [job]
    assert scheduler.engine.next_due == datetime(2026, 1, 1, 0, 8, tzinfo=UTC)


def test_idle_dispatch_interval_writes_nothing(make_scheduler: Callable[..., Scheduler], run_sql: SqlRunner) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(dispatch_interval=timedelta(minutes=3))
    before = table_contents(run_sql)
    for _ in range(3):
        scheduler.clock.advance(minutes=3)
        scheduler.run_turns()
    assert table_contents(run_sql) == before


def test_view_plans_only_as_many_starts_as_it_shows(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(spawn_delay=timedelta(seconds=10))
    jobs = submit_many(scheduler, 41)[1:]
    planned: list[int | None] = []

    def choose_all(
        store: AnyReader, limits: PoolSizes, batch: int | None, *, holds: Holds, has_dirty_jobs: bool
    ) -> StartPlan:
        planned.append(batch)
        return dispatch.plan_tick(store, limits, batch, holds=holds, has_dirty_jobs=has_dirty_jobs)

    monkeypatch.setattr(queries, "plan_tick", choose_all)
    details = [scheduler.wait_detail(job) for job in (jobs[0], jobs[31])]
    assert planned == [32, 32]
    details += [scheduler.wait_detail(job) for job in (jobs[32], jobs[39])]
    assert planned == [32, 32, 32, 256, 32, 256]
    assert details == [f"not before {after(seconds=10 * n)}" for n in (1, 32, 33, 40)]


def test_why_reads_as_many_lanes_as_a_tick(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """`why` predicts the next tick, however many kinds of jobs wait."""
    monkeypatch.setattr(dispatch, "MAX_LANES", 1)
    scheduler.set_pools(**{"global": -1})
    scheduler.configure(dispatch_interval="manual", batch_size=2)
    first, second = scheduler.submit(type="x"), scheduler.submit(type="y")
    assert scheduler.dry_run_tick()["would_dispatch"] == [format_job_id(first), format_job_id(second)]
    assert scheduler.explain_wait(second)["text"] == "job-2 is QUEUED: starts with the next `rota tick`"
