"""Pause, resume, clear and the hold file: held jobs, cleared jobs, and jobs that continue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from rota.control import commands
from rota.control.commands import check_scope
from rota.engine import control as engine_control
from rota.engine.clear_operation import ClearOperation
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import InvalidInput, NotFound
from rota.ids import JobId
from rota.jobs.cancel import plan_clear
from rota.jobs.schemas import WaitReason
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner

SCOPES: dict[str, dict[str, Any]] = {
    "global": {},
    "type/story": {"type": "story"},
    "flow/plan": {"flow": "plan"},
    "target/web": {"target": "web"},
    "resource/gpu": {"pools": {"resource/gpu": 1}},
}


@pytest.fixture
def unlimited_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    return make_scheduler(**{"global": -1, "flow__*": -1})


def control_events(scheduler: Scheduler, prefix: str = "scheduler.") -> list[tuple[str, str | None, str, Any]]:
    return [
        (event.kind, event.actor, event.cause, dict(event.data))
        for event in scheduler.events
        if event.kind.startswith(prefix) and event.kind != "scheduler.recovered"
    ]


def test_clear_up_to_a_job_leaves_later_ones(scheduler: Scheduler) -> None:
    first, second = scheduler.submit(delay="1h"), scheduler.submit(delay="1h")
    plan = plan_clear(scheduler.reader, "global", limit=1)
    assert ([job.id for job in plan.jobs], plan.total, plan.up_to) == ([f"job-{first}"], 2, f"job-{second}")
    later = scheduler.submit(delay="1h")
    clearing = scheduler.run_request(lambda tx: commands.clear(tx, "global", actor="tester", max_job=second))
    assert clearing.completion.result(timeout=0) == 2
    assert [scheduler.status(job) for job in (first, second, later)] == [
        Status.CANCELLED,
        Status.CANCELLED,
        Status.QUEUED,
    ]
    plan = plan_clear(scheduler.reader, "global")
    assert (plan.total, plan.up_to) == (1, f"job-{later}")


@pytest.mark.parametrize("scope", SCOPES)
def test_pause_holds_only_jobs_in_its_scope(unlimited_scheduler: Scheduler, scope: str) -> None:
    running = unlimited_scheduler.submit(**SCOPES[scope])
    unlimited_scheduler.confirm_start(running)
    unlimited_scheduler.pause(scope, by="ann")
    held = unlimited_scheduler.submit(**SCOPES[scope])
    assert unlimited_scheduler.wait_detail(held) == "paused by ann"
    assert unlimited_scheduler.status(running) is Status.RUNNING
    others = [unlimited_scheduler.submit(**fields) for name, fields in SCOPES.items() if name != scope]
    assert unlimited_scheduler.started_jobs() == ([running] if scope == "global" else [running, *others])
    unlimited_scheduler.resume(scope)
    assert held in unlimited_scheduler.started_jobs()
    assert set(others) <= set(unlimited_scheduler.started_jobs())


class OnlyGlobal:
    """Policy of a user in which no job uses the pools of its flow or target."""

    def pool_demand(self, _job: Any) -> dict[str, int]:
        return {"global": 1}


@pytest.mark.parametrize("scope", ["type/story", "flow/plan", "target/web"])
def test_scope_of_job_does_not_depend_on_its_demand(unlimited_scheduler: Scheduler, scope: str) -> None:
    unlimited_scheduler.engine.settings = unlimited_scheduler.settings = msgspec.structs.replace(
        unlimited_scheduler.settings, policy=OnlyGlobal()
    )
    unlimited_scheduler.pause(scope, by="ann")
    held, locked = (
        unlimited_scheduler.submit(**SCOPES[scope]),
        unlimited_scheduler.submit(locks=["repo"], **SCOPES[scope]),
    )
    free = unlimited_scheduler.submit(locks=["repo"])
    assert [unlimited_scheduler.wait_detail(job) for job in (held, locked)] == ["paused by ann"] * 2
    assert unlimited_scheduler.started_jobs() == [free]
    unlimited_scheduler.end_run(free)
    unlimited_scheduler.resume(scope)
    assert unlimited_scheduler.started_jobs() == [free, held, locked]


@pytest.mark.parametrize("scope", SCOPES)
def test_paused_job_yields_its_locks_and_contends_again_later(unlimited_scheduler: Scheduler, scope: str) -> None:
    """LESSONS Waiting: a job that cannot start must not block one that can."""
    holder = unlimited_scheduler.submit(locks=["repo"])
    first = unlimited_scheduler.submit(locks=["repo"], **SCOPES[scope])
    later = unlimited_scheduler.submit(locks=["repo"], type="other")
    assert unlimited_scheduler.wait_detail(first) == "waiting on locks"
    unlimited_scheduler.pause(scope, by="ann")
    assert (unlimited_scheduler.status(first), unlimited_scheduler.wait_detail(first)) == (
        Status.QUEUED,
        "paused by ann",
    )
    unlimited_scheduler.end_run(holder)
    assert unlimited_scheduler.started_jobs() == ([holder] if scope == "global" else [holder, later])
    if scope != "global":
        unlimited_scheduler.end_run(later)
    assert first not in unlimited_scheduler.started_jobs()
    unlimited_scheduler.resume(scope)
    assert first in unlimited_scheduler.started_jobs()


def test_first_pause_and_its_time_are_kept(scheduler: Scheduler) -> None:
    first = scheduler.pause("flow/plan", by="ann")
    scheduler.clock.advance(minutes=5)
    again = scheduler.pause("flow/plan", by="bob")
    assert (first["has_changed"], again["has_changed"]) == (True, False)
    assert (again["paused_by"], again["paused_at"]) == ("ann", first["paused_at"])
    assert scheduler.resume("flow/plan", by="eve")["paused_by"] == "ann"
    assert control_events(scheduler) == [
        ("scheduler.paused", "ann", "control", {"scope": "flow/plan"}),
        ("scheduler.resumed", "eve", "control", {"scope": "flow/plan"}),
    ]


def test_resume_of_scope_that_is_not_paused_changes_nothing(scheduler: Scheduler) -> None:
    scheduler.submit(flow="other")
    scheduler.pause("flow/plan")
    response = scheduler.resume("flow/other")
    assert response == {"has_changed": False, "scope": "flow/other", "paused_by": None, "paused_at": None}
    assert "scheduler.resumed" not in [kind for kind, *_ in control_events(scheduler)]


def test_pause_of_unused_name_warns(scheduler: Scheduler) -> None:
    assert scheduler.pause("flow/reveiw")["warning"] == "no job has used flow/reveiw so far; check the name"
    held = scheduler.submit(flow="reveiw")
    assert scheduler.wait_detail(held) == "paused by tester"
    scheduler.resume("flow/reveiw")
    assert scheduler.pause("flow/reveiw")["warning"] is None
    assert scheduler.pause("resource/ollama")["warning"] is None  # it is in the configuration


def test_clear_and_resume_of_unused_name_are_refused(scheduler: Scheduler) -> None:
    waiting = scheduler.submit(flow="review", delay="1h")
    refuse = partial(commands.refuse_unknown_scope, scheduler.reader, scheduler.settings.pool_sizes)
    for act in (scheduler.clear, scheduler.resume, refuse):
        with pytest.raises(NotFound, match="no such scope: flow/reveiw; no job has used it, and"):
            act("flow/reveiw")
        act("resource/ollama")  # it is in the configuration
    assert scheduler.clear("flow/review") == 1
    assert scheduler.status(waiting) == "CANCELLED"
    assert scheduler.clear("flow/review") == 0


def test_resume_of_one_pause_leaves_the_others(unlimited_scheduler: Scheduler) -> None:
    for scope in ("global", "flow/plan", "type/story"):
        unlimited_scheduler.pause(scope, by=scope)
    job = unlimited_scheduler.submit(flow="plan", type="story", locks=["repo"])
    for scope, then in (("global", "type/story"), ("type/story", "flow/plan")):
        unlimited_scheduler.resume(scope)
        assert unlimited_scheduler.wait_detail(job) == f"paused by {then}"
    assert unlimited_scheduler.started_jobs() == []
    unlimited_scheduler.resume("flow/plan")
    assert unlimited_scheduler.started_jobs() == [job]


@pytest.mark.both_databases
def test_pause_survives_crash(unlimited_scheduler: Scheduler) -> None:
    held, locked = (
        unlimited_scheduler.submit(delay="1s", flow="plan"),
        unlimited_scheduler.submit(delay="1s", flow="plan", locks=["repo"]),
    )
    before = unlimited_scheduler.pause("flow/plan", by="ann")
    unlimited_scheduler.crash()
    unlimited_scheduler.clock.advance(seconds=2)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == []
    assert [unlimited_scheduler.wait_detail(job) for job in (held, locked)] == ["paused by ann"] * 2
    assert unlimited_scheduler.pause("flow/plan")["paused_at"] == before["paused_at"]
    unlimited_scheduler.resume("flow/plan")
    assert unlimited_scheduler.started_jobs() == [held, locked]


def test_paused_lane_is_skipped_as_a_whole(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick reads none of its jobs, however many wait in it."""
    unlimited_scheduler.pause("flow/plan")
    for _ in range(50):
        unlimited_scheduler.submit(flow="plan")
    statements: list[str] = []
    rows = type(unlimited_scheduler.session._db).rows

    def counted(self: Any, name: str, **values: Any) -> Any:
        statements.append(name)
        return rows(self, name, **values)

    monkeypatch.setattr(type(unlimited_scheduler.session._db), "rows", counted)
    other = unlimited_scheduler.submit(type="other")
    assert unlimited_scheduler.started_jobs() == [other]
    assert statements.count("heads") == 1


@pytest.mark.parametrize("scope", ["flow", "flow/", "flow/*", "reviewing/x", "", "global/x", "type/a b"])
def test_invalid_scope_is_refused_with_valid_forms(scope: str) -> None:
    with pytest.raises(InvalidInput, match="use global, type/NAME, flow/NAME, target/NAME or resource/NAME"):
        check_scope(scope)


def test_scope_defaults_to_global() -> None:
    assert (check_scope(None), check_scope("global"), check_scope("flow/x")) == ("global", "global", "flow/x")


# The hold file.


def test_hold_file_holds_all_jobs_until_removed(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo"])
    unlimited_scheduler.confirm_start(holder)
    locked = unlimited_scheduler.submit(locks=["repo"])
    unlimited_scheduler.set_hold_text("until noon")
    plain = unlimited_scheduler.submit()
    unlimited_scheduler.end_run(holder)
    assert [unlimited_scheduler.show_job(job).wait for job in (plain, locked)] == [
        WaitReason(kind="paused", detail="held: until noon", topics=["hold_file"])
    ] * 2
    assert unlimited_scheduler.started_jobs() == [holder]
    unlimited_scheduler.set_hold_text("until one")
    assert unlimited_scheduler.wait_detail(plain) == "held: until one"
    unlimited_scheduler.set_hold_text(None)
    assert unlimited_scheduler.started_jobs() == [holder, locked, plain]


def test_pause_is_reported_before_hold_file_and_both_hold(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_hold_text("x")
    unlimited_scheduler.pause(by="ann")
    job = unlimited_scheduler.submit()
    assert unlimited_scheduler.wait_detail(job) == "paused by ann"
    unlimited_scheduler.resume()
    assert unlimited_scheduler.wait_detail(job) == "held: x"
    unlimited_scheduler.set_hold_text(None)
    assert unlimited_scheduler.started_jobs() == [job]


def test_hold_file_removed_in_failed_turn_releases_jobs_in_the_next(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited_scheduler.set_hold_text("x")
    job = unlimited_scheduler.submit(locks=["repo"])
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.claim.plan_starts", lambda *_, **__: 1 / 0)
        unlimited_scheduler.set_hold_text(None)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [job]


# Clear.


def reasons(scheduler: Scheduler, *jobs: JobId) -> list[tuple[Status, str | None]]:
    return [(scheduler.status(job), scheduler.job(job).reason) for job in jobs]


CLEARED = (Status.CANCELLED, "cleared")


def test_clear_cancels_waiting_jobs_and_leaves_running_ones(scheduler: Scheduler) -> None:
    running = scheduler.submit(locks=["repo"])
    scheduler.confirm_start(running)
    waiting = [
        scheduler.submit(),
        scheduler.submit(delay="1h"),
        scheduler.submit(locks=["repo"]),
        scheduler.submit(after=[running]),
        scheduler.submit(pools={"resource/ollama": 1}),
    ]
    assert scheduler.clear() == 5
    assert reasons(scheduler, *waiting) == [CLEARED] * 5
    cleared = scheduler.job(waiting[0])
    assert (cleared.exit_code, cleared.run, cleared.permanently_failed) == (143, None, False)
    assert scheduler.status(running) is Status.RUNNING
    assert control_events(scheduler) == [("scheduler.cleared", "tester", "control", {"scope": "global", "jobs": 5})]
    result = {(event.actor, event.cause) for event in scheduler.events if event.kind == "job.cancelled"}
    assert result == {("tester", "control")}
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running]
    after = scheduler.submit(locks=["repo"])
    assert scheduler.started_jobs() == [running, after]
    assert scheduler.clear() == 0


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "global"])
def test_clear_of_a_scope_leaves_the_others(make_scheduler: Callable[..., Scheduler], scope: str) -> None:
    scheduler = make_scheduler(**{"global": 0})
    jobs = {name: scheduler.submit(**fields) for name, fields in SCOPES.items()}
    assert scheduler.clear(scope) == 1
    cleared = {name for name, job in jobs.items() if scheduler.status(job) is Status.CANCELLED}
    assert cleared == {scope}


def begin_clear(scheduler: Scheduler, scope: str = "global") -> ClearOperation:
    """Start a clear and run one turn only."""
    responses: list[Any] = []
    scheduler.engine.turn([TurnRequest(lambda tx: commands.clear(tx, scope, actor="tester"), responses.append)])
    clearing: ClearOperation = responses[0]
    return clearing


def test_large_clear_takes_several_turns_and_serves_requests(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", 3)
    scheduler = make_scheduler(**{"global": 1})
    running = scheduler.submit(flow="a")
    jobs = [scheduler.submit(flow="a", priority=n % 3) for n in range(10)]
    clearing = begin_clear(scheduler, "flow/a")
    assert sum(scheduler.status(job) is Status.CANCELLED for job in jobs) == 3
    responses: list[Any] = []
    scheduler.engine.turn([TurnRequest(lambda tx: tx.ids.allocate("job", 0), responses.append)])
    assert responses
    assert sum(scheduler.status(job) is Status.CANCELLED for job in jobs) == 6
    assert not clearing.completion.done()
    newer = scheduler.submit(flow="a")
    assert clearing.completion.result(timeout=0) == 10
    assert reasons(scheduler, *jobs) == [CLEARED] * 10
    assert scheduler.status(newer) is Status.QUEUED
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running, newer]


def test_job_to_be_cleared_does_not_start(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", 1)
    scheduler = make_scheduler(**{"global": 1})
    running = scheduler.submit(flow="b")
    held = [scheduler.submit(flow="a") for _ in range(5)]
    other = scheduler.submit(flow="b")
    begin_clear(scheduler, "flow/a")
    assert scheduler.wait_detail(held[-1]) == "paused by tester"
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running, other]
    assert reasons(scheduler, *held) == [CLEARED] * 5


def test_job_moved_to_the_front_during_clear_is_cleared(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch, run_sql: SqlRunner
) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", 2)
    scheduler = make_scheduler(**{"global": 0})
    jobs = [scheduler.submit(delay="1h") for _ in range(5)]
    clearing = begin_clear(scheduler)
    run_sql(f"UPDATE job SET precedence = -9 WHERE id = {jobs[-1]}")
    scheduler.run_turns()
    assert clearing.completion.result(timeout=0) == 5
    assert reasons(scheduler, *jobs) == [CLEARED] * 5


def test_newer_job_with_locks_starts_during_clear(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", 1)
    holder = unlimited_scheduler.submit(locks=["repo"])
    for _ in range(3):
        unlimited_scheduler.submit(flow="a", locks=["repo"])
    begin_clear(unlimited_scheduler, "flow/a")
    newer = unlimited_scheduler.submit(flow="a", locks=["other"])
    assert unlimited_scheduler.started_jobs() == [holder, newer]


@pytest.mark.parametrize("batch", [1, 2, 200])
def test_dependents_in_scope_are_cleared_and_not_blocked(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", batch)
    scheduler.pause()
    first = scheduler.submit()
    sequence = [first]
    for priority in (0, 5, -5, 9):
        sequence.append(scheduler.submit(after=[sequence[-1]], priority=priority))
    fan = [scheduler.submit(after=[first], priority=n % 4) for n in range(8)]
    assert scheduler.clear() == 13
    assert reasons(scheduler, *sequence, *fan) == [CLEARED] * 13
    assert not [event for event in scheduler.events if event.kind == "job.blocked_by_dependency"]


def test_dependents_outside_scope_see_cancelled_predecessor(scheduler: Scheduler) -> None:
    scheduler.pause()
    cleared = scheduler.submit(flow="a")
    blocked = scheduler.submit(after=[cleared])
    further = scheduler.submit(after=[blocked], flow="a")
    continuing = scheduler.submit(after=[f"job-{cleared}:finished"])
    not_needed = scheduler.submit(after=[f"job-{cleared}:failed"])
    assert scheduler.clear("flow/a") == 2
    assert reasons(scheduler, cleared, further) == [CLEARED] * 2
    assert reasons(scheduler, blocked, not_needed) == [
        (Status.BLOCKED_BY_DEPENDENCY, f"dependency failed for job job-{cleared} (CANCELLED)"),
        (Status.SKIPPED, f"not needed: job-{cleared} CANCELLED"),
    ]
    scheduler.resume()
    assert scheduler.started_jobs() == [continuing]


def test_waiting_retry_is_cleared_and_its_chain_ends(scheduler: Scheduler) -> None:
    first = scheduler.submit(retries=3)
    after = scheduler.submit(after=[first])
    scheduler.end_run(first, code=1)
    assert scheduler.clear() == 2
    last = scheduler.reader.chains.last_job(first)
    assert last is not None
    assert reasons(scheduler, last[0], after) == [CLEARED] * 2


@pytest.mark.both_databases
def test_clear_continues_after_crash(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", 2)
    scheduler.pause()
    jobs = [scheduler.submit()]
    jobs += [scheduler.submit(after=[jobs[0]]) for _ in range(6)]
    begin_clear(scheduler)
    scheduler.crash()
    assert reasons(scheduler, *jobs) == [CLEARED] * 7
    assert control_events(scheduler)[-1] == ("scheduler.cleared", "tester", "control", {"scope": "global", "jobs": 7})
    later = scheduler.submit()
    scheduler.crash()
    assert scheduler.status(later) is Status.QUEUED


def test_repeated_clear_is_one_operation(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_control, "MAX_CLEARED_PER_TURN", 1)
    scheduler.pause()
    for _ in range(4):
        scheduler.submit()
    first = begin_clear(scheduler)
    second = begin_clear(scheduler)
    assert first is second
    scheduler.run_turns()
    assert first.completion.result(timeout=0) == 4
    assert len([kind for kind, *_ in control_events(scheduler) if kind == "scheduler.cleared"]) == 1


def test_failed_turn_clears_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler.pause()
    job = scheduler.submit()
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.claim.plan_starts", lambda *_, **__: 1 / 0)
        responses: list[Any] = []
        scheduler.engine.turn([TurnRequest(lambda tx: commands.clear(tx, "global", actor="tester"), responses.append)])
    assert isinstance(responses[0], Exception)
    scheduler.run_turns()
    assert scheduler.status(job) is Status.QUEUED
    assert scheduler.clear() == 1


def test_refused_clear_clears_nothing(scheduler: Scheduler) -> None:
    """The request is refused after it has begun the clear operation, as when the database refuses its changes."""
    scheduler.pause()
    job = scheduler.submit()

    def refused(tx: Transaction) -> None:
        commands.clear(tx, "global", actor="tester")
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        scheduler.run_request(refused)
    assert scheduler.status(job) is Status.QUEUED
    assert scheduler.clear() == 1
