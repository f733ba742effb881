"""Pause, resume, clear and the hold file: what is held, what is ended, and what goes on all the same (§9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.command import control
from rota.command.control import check_scope
from rota.core.status import Status
from rota.engine import control as turns
from rota.engine.clearing import Clearing
from rota.engine.work import Request
from rota.errors import InvalidInput
from rota.ids import JobId
from rota.wire.job import WaitForm

SCOPES: dict[str, dict[str, Any]] = {
    "global": {},
    "type/story": {"type": "story"},
    "flow/plan": {"flow": "plan"},
    "target/web": {"target": "web"},
    "resource/gpu": {"pools": {"resource/gpu": 1}},
}


@pytest.fixture
def wide(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    return make_scheduler(**{"global": -1, "flow__*": -1})


def kinds(scheduler: Scheduler, prefix: str = "scheduler.") -> list[tuple[str, str | None, str, Any]]:
    return [
        (event.kind, event.actor, event.cause, dict(event.data))
        for event in scheduler.events
        if event.kind.startswith(prefix) and event.kind != "scheduler.recovered"
    ]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_pause_holds_what_stands_under_it_and_nothing_else(wide: Scheduler, scope: str) -> None:
    running = wide.submit(**SCOPES[scope])
    wide.start(running)
    wide.pause(scope, by="ann")
    held = wide.submit(**SCOPES[scope])
    assert wide.detail(held) == "paused by ann"
    assert wide.status(running) is Status.RUNNING
    others = [wide.submit(**fields) for name, fields in SCOPES.items() if name != scope]
    assert wide.started() == ([running] if scope == "global" else [running, *others])
    wide.resume(scope)
    assert held in wide.started()
    assert set(others) <= set(wide.started())


class OnlyGlobal:
    """A user's own policy: no job draws from the pools of its flow or target."""

    def draws(self, _job: Any) -> dict[str, int]:
        return {"global": 1}


@pytest.mark.parametrize("scope", ["type/story", "flow/plan", "target/web"])
def test_a_job_stands_under_its_own_type_flow_and_target_whatever_it_draws(wide: Scheduler, scope: str) -> None:
    wide.engine.settings = wide.settings = msgspec.structs.replace(wide.settings, policy=OnlyGlobal())
    wide.pause(scope, by="ann")
    held, locked = wide.submit(**SCOPES[scope]), wide.submit(locks=["repo"], **SCOPES[scope])
    free = wide.submit(locks=["repo"])
    assert [wide.detail(job) for job in (held, locked)] == ["paused by ann"] * 2
    assert wide.started() == [free]
    wide.end(free)
    wide.resume(scope)
    assert wide.started() == [free, held, locked]


@pytest.mark.parametrize("scope", SCOPES)
def test_what_is_paused_gives_up_its_turn_at_its_locks_and_takes_it_again(wide: Scheduler, scope: str) -> None:
    """LESSONS Waiting: somebody who cannot start must not be in the way of who can."""
    holder = wide.submit(locks=["repo"])
    first = wide.submit(locks=["repo"], **SCOPES[scope])
    later = wide.submit(locks=["repo"], type="other")
    assert wide.detail(first) == "waiting on locks"
    wide.pause(scope, by="ann")
    assert (wide.status(first), wide.detail(first)) == (Status.QUEUED, "paused by ann")
    wide.end(holder)
    assert wide.started() == ([holder] if scope == "global" else [holder, later])
    if scope != "global":
        wide.end(later)
    assert first not in wide.started()
    wide.resume(scope)
    assert first in wide.started()


def test_who_paused_first_and_when_stays(scheduler: Scheduler) -> None:
    first = scheduler.pause("flow/plan", by="ann")
    scheduler.clock.advance(minutes=5)
    again = scheduler.pause("flow/plan", by="bob")
    assert (first["result"], again["result"]) == (True, False)
    assert (again["paused_by"], again["paused_at"]) == ("ann", first["paused_at"])
    assert scheduler.resume("flow/plan", by="eve")["paused_by"] == "ann"
    assert kinds(scheduler) == [
        ("scheduler.paused", "ann", "control", {"scope": "flow/plan"}),
        ("scheduler.resumed", "eve", "control", {"scope": "flow/plan"}),
    ]


def test_resuming_what_is_not_paused_changes_nothing(scheduler: Scheduler) -> None:
    scheduler.pause("flow/plan")
    answer = scheduler.resume("flow/other")
    assert answer == {"result": False, "scope": "flow/other", "paused_by": None, "paused_at": None}
    assert [kind for kind, *_ in kinds(scheduler)] == ["scheduler.paused"]


def test_a_name_that_no_job_has_had_is_paused_with_a_warning(scheduler: Scheduler) -> None:
    assert scheduler.pause("flow/reveiw")["warning"] == "no job has stood under flow/reveiw so far; is that its name?"
    held = scheduler.submit(flow="reveiw")
    assert scheduler.detail(held) == "paused by tester"
    scheduler.resume("flow/reveiw")
    assert scheduler.pause("flow/reveiw")["warning"] is None
    assert scheduler.pause("resource/ollama")["warning"] is None  # it has a line in the configuration


def test_one_pause_is_not_undone_by_the_end_of_another(wide: Scheduler) -> None:
    for scope in ("global", "flow/plan", "type/story"):
        wide.pause(scope, by=scope)
    job = wide.submit(flow="plan", type="story", locks=["repo"])
    for scope, then in (("global", "type/story"), ("type/story", "flow/plan")):
        wide.resume(scope)
        assert wide.detail(job) == f"paused by {then}"
    assert wide.started() == []
    wide.resume("flow/plan")
    assert wide.started() == [job]


def test_a_pause_survives_a_crash(wide: Scheduler) -> None:
    held, locked = wide.submit(delay="1s", flow="plan"), wide.submit(delay="1s", flow="plan", locks=["repo"])
    before = wide.pause("flow/plan", by="ann")
    wide.crash()
    wide.clock.advance(seconds=2)
    wide.turn()
    assert wide.started() == []
    assert [wide.detail(job) for job in (held, locked)] == ["paused by ann"] * 2
    assert wide.pause("flow/plan")["paused_at"] == before["paused_at"]
    wide.resume("flow/plan")
    assert wide.started() == [held, locked]


def test_a_paused_lane_is_passed_over_as_a_whole(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait in it, a tick does not look at one of them."""
    wide.pause("flow/plan")
    for _ in range(50):
        wide.submit(flow="plan")
    asked: list[str] = []
    rows = type(wide.session._db).rows

    def counted(self: Any, name: str, **values: Any) -> Any:
        asked.append(name)
        return rows(self, name, **values)

    monkeypatch.setattr(type(wide.session._db), "rows", counted)
    other = wide.submit(type="other")
    assert wide.started() == [other]
    assert asked.count("heads") == 1


@pytest.mark.parametrize("scope", ["flow", "flow/", "flow/*", "reviewing/x", "", "global/x", "type/a b"])
def test_a_scope_that_is_none_is_refused_with_what_there_is(scope: str) -> None:
    with pytest.raises(InvalidInput, match=r"it is global \(everything\), or type/…, flow/…"):
        check_scope(scope)


def test_everything_is_what_nobody_names() -> None:
    assert (check_scope(None), check_scope("global"), check_scope("flow/x")) == ("global", "global", "flow/x")


# The hold file.


def test_a_hold_file_holds_everything_and_lets_it_go(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo"])
    wide.start(holder)
    locked = wide.submit(locks=["repo"])
    wide.hold("until noon")
    plain = wide.submit()
    wide.end(holder)
    assert [wide.show(job).wait for job in (plain, locked)] == [
        WaitForm(kind="paused", detail="held: until noon", on=["hold_file"])
    ] * 2
    assert wide.started() == [holder]
    wide.hold("until one")
    assert wide.detail(plain) == "held: until one"
    wide.hold(None)
    assert wide.started() == [holder, locked, plain]


def test_a_person_speaks_before_a_file_and_both_have_to_let_go(wide: Scheduler) -> None:
    wide.hold("x")
    wide.pause(by="ann")
    job = wide.submit()
    assert wide.detail(job) == "paused by ann"
    wide.resume()
    assert wide.detail(job) == "held: x"
    wide.hold(None)
    assert wide.started() == [job]


def test_a_file_that_goes_in_a_turn_that_fails_lets_go_in_the_next(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide.hold("x")
    job = wide.submit(locks=["repo"])
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.pace.choose", lambda *_, **__: 1 / 0)
        wide.hold(None)
    wide.turn()
    assert wide.started() == [job]


# Clear.


def reasons(scheduler: Scheduler, *jobs: JobId) -> list[tuple[Status, str | None]]:
    return [(scheduler.status(job), scheduler.job(job).reason) for job in jobs]


CLEARED = (Status.CANCELLED, "cleared")


def test_clear_cancels_what_waits_whatever_for_and_leaves_what_runs(scheduler: Scheduler) -> None:
    running = scheduler.submit(locks=["repo"])
    scheduler.start(running)
    waiting = [
        scheduler.submit(),
        scheduler.submit(delay="1h"),
        scheduler.submit(locks=["repo"]),
        scheduler.submit(after=[running]),
        scheduler.submit(pools={"resource/ollama": 5}),
    ]
    assert scheduler.clear() == 5
    assert reasons(scheduler, *waiting) == [CLEARED] * 5
    found = scheduler.job(waiting[0])
    assert (found.exit_code, found.run, found.permanently_failed) == (143, None, False)
    assert scheduler.status(running) is Status.RUNNING
    assert kinds(scheduler) == [("scheduler.cleared", "tester", "control", {"scope": "global", "jobs": 5})]
    told = {(event.actor, event.cause) for event in scheduler.events if event.kind == "job.cancelled"}
    assert told == {("tester", "control")}
    scheduler.end(running)
    assert scheduler.started() == [running]
    after = scheduler.submit(locks=["repo"])
    assert scheduler.started() == [running, after]
    assert scheduler.clear() == 0


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "global"])
def test_clear_of_a_scope_leaves_the_others(make_scheduler: Callable[..., Scheduler], scope: str) -> None:
    scheduler = make_scheduler(**{"global": 0})
    jobs = {name: scheduler.submit(**fields) for name, fields in SCOPES.items()}
    assert scheduler.clear(scope) == 1
    cleared = {name for name, job in jobs.items() if scheduler.status(job) is Status.CANCELLED}
    assert cleared == {scope}


def begin(scheduler: Scheduler, scope: str = "global") -> Clearing:
    """One turn, and no more."""
    answers: list[Any] = []
    scheduler.engine.turn([Request(lambda work: control.clear(work, scope, actor="tester"), answers.append)])
    clearing: Clearing = answers[0]
    return clearing


def test_a_large_clear_takes_turns_in_which_others_are_served(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 3)
    scheduler = make_scheduler(**{"global": 1})
    running = scheduler.submit(flow="a")
    jobs = [scheduler.submit(flow="a", priority=n % 3) for n in range(10)]
    clearing = begin(scheduler, "flow/a")
    assert sum(scheduler.status(job) is Status.CANCELLED for job in jobs) == 3
    answers: list[Any] = []
    scheduler.engine.turn([Request(lambda work: work.session.take("job", 0), answers.append)])
    assert answers
    assert sum(scheduler.status(job) is Status.CANCELLED for job in jobs) == 6
    assert not clearing.ended.done()
    newer = scheduler.submit(flow="a")
    assert clearing.ended.result(timeout=0) == 10
    assert reasons(scheduler, *jobs) == [CLEARED] * 10
    assert scheduler.status(newer) is Status.QUEUED
    scheduler.end(running)
    assert scheduler.started() == [running, newer]


def test_nothing_that_is_to_be_cleared_starts_before_its_turn(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    scheduler = make_scheduler(**{"global": 1})
    running = scheduler.submit(flow="b")
    held = [scheduler.submit(flow="a") for _ in range(5)]
    other = scheduler.submit(flow="b")
    begin(scheduler, "flow/a")
    assert scheduler.detail(held[-1]) == "paused by tester"
    scheduler.end(running)
    assert scheduler.started() == [running, other]
    assert reasons(scheduler, *held) == [CLEARED] * 5


def test_a_job_that_is_moved_to_the_front_meanwhile_is_not_missed(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch, raw: Raw
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 2)
    scheduler = make_scheduler(**{"global": 0})
    jobs = [scheduler.submit(delay="1h") for _ in range(5)]
    clearing = begin(scheduler)
    raw(f"UPDATE job SET precedence = -9 WHERE id = {jobs[-1]}")
    scheduler.turn()
    assert clearing.ended.result(timeout=0) == 5
    assert reasons(scheduler, *jobs) == [CLEARED] * 5


def test_a_newer_job_with_locks_that_came_meanwhile_goes_on_afterwards(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    holder = wide.submit(locks=["repo"])
    for _ in range(3):
        wide.submit(flow="a", locks=["repo"])
    begin(wide, "flow/a")
    newer = wide.submit(flow="a", locks=["other"])
    assert wide.started() == [holder, newer]


@pytest.mark.parametrize("at_once", [1, 2, 200])
def test_what_hangs_on_a_cleared_job_and_is_cleared_itself_is_not_blocked_first(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", at_once)
    scheduler.pause()
    first = scheduler.submit()
    chain = [first]
    for priority in (0, 5, -5, 9):
        chain.append(scheduler.submit(after=[chain[-1]], priority=priority))
    fan = [scheduler.submit(after=[first], priority=n % 4) for n in range(8)]
    assert scheduler.clear() == 13
    assert reasons(scheduler, *chain, *fan) == [CLEARED] * 13
    assert not [event for event in scheduler.events if event.kind == "job.blocked_by_dependency"]


def test_what_stands_outside_the_scope_sees_a_cancelled_predecessor(scheduler: Scheduler) -> None:
    scheduler.pause()
    cleared = scheduler.submit(flow="a")
    blocked = scheduler.submit(after=[cleared])
    further = scheduler.submit(after=[blocked], flow="a")
    going_on = scheduler.submit(after=[f"job-{cleared}:finished"])
    not_needed = scheduler.submit(after=[f"job-{cleared}:failed"])
    assert scheduler.clear("flow/a") == 2
    assert reasons(scheduler, cleared, further) == [CLEARED] * 2
    assert reasons(scheduler, blocked, not_needed) == [
        (Status.BLOCKED_BY_DEPENDENCY, f"dependency failed for job job-{cleared} (CANCELLED)"),
        (Status.SKIPPED, f"not needed: job-{cleared} CANCELLED"),
    ]
    scheduler.resume()
    assert scheduler.started() == [going_on]


def test_a_retry_that_waits_is_cleared_and_its_chain_is_over(scheduler: Scheduler) -> None:
    first = scheduler.submit(retries=3)
    after = scheduler.submit(after=[first])
    scheduler.end(first, code=1)
    assert scheduler.clear() == 2
    last = scheduler.reader.last_of_chain(first)
    assert last is not None
    assert reasons(scheduler, last[0], after) == [CLEARED] * 2


def test_a_clear_that_a_crash_cuts_off_is_carried_to_its_end(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 2)
    scheduler.pause()
    jobs = [scheduler.submit()]
    jobs += [scheduler.submit(after=[jobs[0]]) for _ in range(6)]
    begin(scheduler)
    scheduler.crash()
    assert reasons(scheduler, *jobs) == [CLEARED] * 7
    assert kinds(scheduler)[-1] == ("scheduler.cleared", "tester", "control", {"scope": "global", "jobs": 7})
    later = scheduler.submit()
    scheduler.crash()
    assert scheduler.status(later) is Status.QUEUED


def test_the_same_clear_asked_twice_is_one(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    scheduler.pause()
    for _ in range(4):
        scheduler.submit()
    first = begin(scheduler)
    second = begin(scheduler)
    assert first is second
    scheduler.turn()
    assert first.ended.result(timeout=0) == 4
    assert len([kind for kind, *_ in kinds(scheduler) if kind == "scheduler.cleared"]) == 1


def test_a_turn_that_fails_has_cleared_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler.pause()
    job = scheduler.submit()
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.pace.choose", lambda *_, **__: 1 / 0)
        answers: list[Any] = []
        scheduler.engine.turn([Request(lambda work: control.clear(work, "global", actor="tester"), answers.append)])
    assert isinstance(answers[0], Exception)
    scheduler.turn()
    assert scheduler.status(job) is Status.QUEUED
    assert scheduler.clear() == 1
