"""The breaker over a type or target: what opens it, whom it holds, who tries, what closes it, and that it survives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.command.breaker import reset
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.status import Status
from rota.errors import Conflict, NotFound
from rota.executor.port import Account, Exited, FailedToStart
from rota.ids import JobId
from rota.view.breaker import breakers
from rota.view.status import status
from rota.wire.breaker import BreakerResetForm, StartsResetForm
from rota.wire.job import WaitForm

WINDOW, COOL_DOWN = timedelta(minutes=10), timedelta(minutes=5)
UNTIL = "2026-01-01T00:05:00Z"


@pytest.fixture
def wide(wide: Scheduler) -> Scheduler:
    wide.set_breaker(failures=3, window=WINDOW, cool_down=COOL_DOWN)
    return wide


def states(scheduler: Scheduler) -> dict[str, tuple[str, int, str | None]]:
    shown = breakers(scheduler.reader, scheduler.sight)
    return {form.key: (form.state, form.failures, form.probe) for form in shown}


def fail_runs(scheduler: Scheduler, how_many: int = 3, **fields: Any) -> list[JobId]:
    jobs = [scheduler.submit("flaky", **(fields or {"type": "x"})) for _ in range(how_many)]
    for job in jobs:
        scheduler.end(job, 1)
    return jobs


def wait(scheduler: Scheduler, **duration: float) -> None:
    scheduler.clock.advance(**duration)
    scheduler.turn()


def is_running(scheduler: Scheduler, job: JobId) -> bool:
    return scheduler.show(job).status == "RUNNING"


def test_so_many_failures_open_it_and_hold_its_jobs_and_nobody_else(wide: Scheduler) -> None:
    fail_runs(wide, 2)
    assert is_running(wide, wide.submit(type="x"))
    fail_runs(wide, 1)
    held = wide.submit(type="x")
    others = [
        wide.submit(),
        wide.submit(type="y"),
        wide.submit(target="x"),
        wide.submit(flow="x"),
        wide.submit(type="y", pools={"type/x": 1}),
    ]
    assert wide.show(held).status == "QUEUED"
    detail = f"breaker open for type/x until {UNTIL}"
    assert wide.show(held).wait == WaitForm(kind="paused", detail=detail, on=["breaker:type/x"])
    assert wide.why(held)["text"] == f"job-{held} is QUEUED: {detail}"
    assert all(is_running(wide, job) for job in others)


def test_the_figure_is_20_in_10_minutes_unless_told_otherwise(
    make_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = make_scheduler(**{"global": -1})
    fail_runs(scheduler, 19, type="x")
    assert is_running(scheduler, scheduler.submit(type="x"))
    fail_runs(scheduler, 1, type="x")
    held = scheduler.submit(type="x")
    assert scheduler.detail(held) == "breaker open for type/x until 2026-01-01T00:10:00Z"


@pytest.mark.parametrize("pools", [{}, {"type__x": 9}, {"target__x": 9}])
@pytest.mark.parametrize("kind", ["type", "target"])
def test_with_or_without_a_pool(wide: Scheduler, kind: str, pools: dict[str, int]) -> None:
    wide.set_pools(**pools)
    fail_runs(wide, 3, **{kind: "x"})
    assert wide.detail(wide.submit(**{kind: "x"})) == f"breaker open for {kind}/x until {UNTIL}"


def test_a_run_counts_for_its_type_and_its_target(wide: Scheduler) -> None:
    fail_runs(wide, 2, type="x", target="y")
    fail_runs(wide, 1, target="y")
    assert states(wide) == {"type/x": ("closed", 2, None), "target/y": ("open", 3, None)}
    assert wide.detail(wide.submit(type="x", target="y")) == f"breaker open for target/y until {UNTIL}"
    assert is_running(wide, wide.submit(type="x"))


def test_failures_older_than_the_window_do_not_count(wide: Scheduler) -> None:
    fail_runs(wide, 2)
    wait(wide, minutes=10)
    fail_runs(wide, 2)
    assert states(wide) == {"type/x": ("closed", 2, None)}
    wait(wide, minutes=9, seconds=59)
    fail_runs(wide, 1)
    assert states(wide)["type/x"][0] == "open"


def test_successes_in_between_do_not_matter_but_other_ends_do_not_count(wide: Scheduler) -> None:
    """COMPLETED, SKIPPED and CANCELLED are no failures; neither is an end that nobody saw, or a failed start."""
    ends: list[dict[str, Any]] = [{"code": 0}, {"code": 0, "skipped": "no"}, {"code": None, "watched": False}]
    for fields in ends * 3:
        wide.end(wide.submit(type="x"), **fields)
    for _ in range(3):
        job = wide.submit(type="x")
        wide.start(job)
        wide.cancel(job)
        wide.end(job, None, signal=15, ended_by="stop")
        assert wide.status(job) is Status.CANCELLED
    for _ in range(4):
        broken = wide.submit(type="x")
        for _ in range(3):
            wide.say(FailedToStart(run=wide.run_of(broken), error="no such program"))
            wait(wide, seconds=2)
        assert str(wide.job(broken).reason).startswith("circuit-broken")
    assert states(wide) == {}
    fail_runs(wide)
    assert states(wide)["type/x"][0] == "open"


def test_what_ended_while_the_scheduler_was_away_counts_when_it_ended(wide: Scheduler) -> None:
    jobs = [wide.submit(type="x") for _ in range(3)]
    at = wide.clock.moment.timestamp()
    wide.clock.advance(minutes=11)
    wide.say(*(Exited(run=wide.run_of(job), at=at, code=1) for job in jobs))
    assert states(wide) == {}
    fail_runs(wide, 2)
    assert states(wide)["type/x"] == ("closed", 2, None)


def test_one_that_ended_before_the_window_does_not_fill_it(wide: Scheduler) -> None:
    away = wide.submit(type="x")
    at = wide.clock.moment.timestamp()
    wide.clock.advance(minutes=10)
    fail_runs(wide, 2)
    wide.say(Exited(run=wide.run_of(away), at=at, code=1))
    assert states(wide)["type/x"] == ("closed", 2, None)


def test_jobs_of_one_batch_with_the_same_draws_are_told_apart_by_their_type(wide: Scheduler) -> None:
    fail_runs(wide)
    bodies = [{"command": ["true"], "type": "x"}, {"command": ["true"], "pools": {"type/x": 1}}]
    members = [msgspec.convert(body, Submission) for body in bodies]
    around = Surroundings(cwd="/", variables={})
    told = wide.do(lambda work: submit(work, members, around, actor="tester"))
    assert [is_running(wide, job) for job in told.jobs] == [False, True]


def test_after_cool_down_one_is_let_through_and_the_others_wait_for_its_end(wide: Scheduler) -> None:
    fail_runs(wide)
    jobs = [wide.submit(type="x") for _ in range(3)]
    assert wide.engine.next_due == wide.clock.moment + COOL_DOWN
    wait(wide, minutes=5, microseconds=-1)
    assert not any(is_running(wide, job) for job in jobs)
    wait(wide, microseconds=1)
    assert [is_running(wide, job) for job in jobs] == [True, False, False]
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{jobs[0]}")
    assert wide.detail(jobs[1]) == f"breaker open for type/x until job-{jobs[0]} has ended"
    wait(wide, hours=1)
    assert not is_running(wide, jobs[1])
    assert wide.engine.next_due is None, "an end is waited for, no time"


def test_a_probe_that_completes_closes_it_and_nothing_of_before_counts(wide: Scheduler) -> None:
    fail_runs(wide)
    jobs = [wide.submit(type="x") for _ in range(3)]
    wait(wide, minutes=5)
    wide.end(jobs[0], 0)
    assert all(is_running(wide, job) for job in jobs[1:])
    assert states(wide) == {}
    for job in jobs[1:]:
        wide.end(job, 1)
    assert states(wide) == {"type/x": ("closed", 2, None)}


def test_a_probe_that_fails_opens_it_again(wide: Scheduler) -> None:
    fail_runs(wide)
    jobs = [wide.submit(type="x") for _ in range(3)]
    for n in range(3):
        wait(wide, minutes=5)
        assert [job for job in jobs if is_running(wide, job)] == [jobs[n]]
        wide.end(jobs[n], 1)
        assert states(wide)["type/x"][0] == "open"
    wait(wide, minutes=5)
    assert states(wide)["type/x"] == ("half-open", 1, None)
    assert is_running(wide, wide.submit(type="x")), "whoever comes first tries"


def test_runs_that_were_under_way_decide_nothing(wide: Scheduler) -> None:
    early = [wide.submit(type="x") for _ in range(2)]
    fail_runs(wide)
    wide.end(early[0], 0)
    assert states(wide)["type/x"][0] == "open"
    wait(wide, minutes=5)
    probe, waiting = wide.submit(type="x"), wide.submit(type="x")
    wide.end(early[1], 1)
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{probe}")
    assert not is_running(wide, waiting)


def cancel(scheduler: Scheduler, job: JobId) -> None:
    scheduler.start(job)
    scheduler.cancel(job)
    scheduler.end(job, None, signal=15, ended_by="stop")


def skip(scheduler: Scheduler, job: JobId) -> None:
    scheduler.end(job, 0, skipped="not needed")


def lose(scheduler: Scheduler, job: JobId) -> None:
    scheduler.start(job)
    scheduler.end(job, None, watched=False)


def fail_to_start(scheduler: Scheduler, job: JobId) -> None:
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no"))


def take_back(scheduler: Scheduler, job: JobId) -> None:
    scheduler.cancel(job)
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no"))


@pytest.mark.parametrize("come_to_nothing", [cancel, skip, lose, fail_to_start, take_back])
@pytest.mark.parametrize("locks", [[], ["k:shared"]])
def test_a_probe_that_tells_nothing_frees_its_place(
    wide: Scheduler, come_to_nothing: Callable[[Scheduler, JobId], None], locks: list[str]
) -> None:
    fail_runs(wide)
    jobs = [wide.submit(type="x", locks=locks) for _ in range(3)]
    wait(wide, minutes=5)
    come_to_nothing(wide, jobs[0])
    assert [is_running(wide, job) for job in jobs[1:]] == [True, False]
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{jobs[1]}")


def test_a_probe_whose_record_cannot_be_used_frees_its_place(wide: Scheduler, raw: Raw) -> None:
    fail_runs(wide)
    bad, good = wide.submit(type="x"), wide.submit(type="x", env={"OTHER": "1"})
    raw(f"UPDATE spec SET command = 'not json' WHERE id = {bad}")
    wait(wide, minutes=5)
    assert wide.status(bad) is Status.FAILED
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{good}")


def test_a_person_s_pause_is_never_undone(wide: Scheduler, raw: Raw) -> None:
    fail_runs(wide)
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('type/x', 'ada', 0)")
    job = wide.submit(type="x")
    assert wide.detail(job) == "paused by ada"
    wait(wide, minutes=5)
    assert not is_running(wide, job)
    wide.do(lambda work: reset(work, "type/x", actor="tester"))
    assert wide.detail(job) == "paused by ada"
    assert raw("SELECT scope, paused_by FROM pause") == [("type/x", "ada")]
    raw("DELETE FROM pause")
    wide.turn()
    assert is_running(wide, job)


# Locks: who is held stands in nobody's way.


def test_who_is_held_gives_up_its_turn_for_its_locks_and_takes_it_again(wide: Scheduler, raw: Raw) -> None:
    holder = wide.submit(locks=["k"])
    running = [wide.submit(type="x") for _ in range(3)]
    first = wide.submit(type="x", locks=["k"])
    behind = wide.submit(locks=["k"])
    assert wide.status(first) is Status.WAITING_ON_LOCKS
    for job in running:
        wide.end(job, 1)
    held = wide.show(first).wait
    assert held is not None
    assert (wide.status(first), held.kind) == (Status.QUEUED, "paused")
    assert raw(f"SELECT state FROM lock WHERE job = {first}") == [("idle",)]
    wide.end(holder)
    assert is_running(wide, behind)
    wait(wide, minutes=5)
    assert wide.status(first) is Status.WAITING_ON_LOCKS
    later = wide.submit(locks=["k"])
    wide.end(behind)
    assert is_running(wide, first)
    wide.end(first, 0)
    assert is_running(wide, later)


def test_while_one_tries_the_others_do_not_stand_in_the_queues_of_their_locks(wide: Scheduler) -> None:
    fail_runs(wide)
    holder = wide.submit(locks=["k"])
    probe, waiting = wide.submit(type="x"), wide.submit(type="x", locks=["k"])
    behind = wide.submit(locks=["k"])
    wait(wide, minutes=5)
    assert is_running(wide, probe)
    assert wide.status(waiting) is Status.QUEUED
    wide.end(holder)
    assert is_running(wide, behind), "it passes the one that is held"
    wide.end(probe, 0)
    assert wide.status(waiting) is Status.WAITING_ON_LOCKS
    wide.end(behind)
    assert is_running(wide, waiting)


def test_many_with_locks_are_all_let_go_when_it_closes(wide: Scheduler) -> None:
    fail_runs(wide)
    jobs = [wide.submit(type="x", locks=[f"k{n}"]) for n in range(150)]
    wait(wide, minutes=5)
    assert [job for job in jobs if is_running(wide, job)] == jobs[:1]
    wide.end(jobs[0], 0)
    assert all(is_running(wide, job) for job in jobs[1:])


# Half-open: whoever can try is found, however many stand before it that cannot.


def test_one_who_can_try_is_found_behind_any_number_who_wait_for_their_locks(wide: Scheduler) -> None:
    fail_runs(wide)
    holder = wide.submit(locks=["k"])
    waiting = [wide.submit(type="x", locks=["k"]) for _ in range(230)]
    free = wide.submit(type="x", locks=["free"])
    wait(wide, minutes=5)
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{free}")
    cancel(wide, free)
    assert wide.detail(waiting[-1]) == "waiting on locks"
    for job in waiting[:-1]:
        wide.cancel(job)
    wide.end(holder)
    assert is_running(wide, waiting[-1])


def test_one_who_can_try_is_found_behind_any_number_whom_another_breaker_holds(wide: Scheduler) -> None:
    fail_runs(wide, target="y")
    wait(wide, minutes=1)
    fail_runs(wide)
    wait(wide, minutes=4)
    wide.end(wide.submit(target="y"), 1)
    for n in range(120):
        wide.submit(type="x", target="y", locks=[f"k{n}"])
    free = wide.submit(type="x", locks=["free"])
    wait(wide, minutes=1)
    assert states(wide) == {"type/x": ("half-open", 3, f"job-{free}"), "target/y": ("open", 3, None)}


def test_when_those_leave_who_could_have_tried_the_next_are_looked_at(wide: Scheduler, raw: Raw) -> None:
    """While some are ready and only their pool is full, nobody behind them is looked at: they would go first."""
    wide.set_pools(resource__a=1)
    fail_runs(wide)
    busy = wide.submit(pools={"resource/a": 1})
    jobs = [wide.submit(type="x", pools={"resource/a": 1}, locks=[f"k{n}"]) for n in range(130)]
    wait(wide, minutes=5)
    ready = "SELECT count(*) FROM job WHERE ready = 1"
    assert raw(ready) == [(100,)]
    wide.turn()
    assert raw(ready) == [(100,)]
    for job in jobs[:100]:
        wide.cancel(job)
    assert raw(ready) == [(30,)]
    wide.end(busy)
    assert is_running(wide, jobs[100])


def test_one_who_can_try_is_found_behind_any_number_whose_pool_is_full(wide: Scheduler) -> None:
    wide.set_pools(resource__a=1)
    fail_runs(wide)
    wide.submit(pools={"resource/a": 1})
    for n in range(130):
        wide.submit(type="x", pools={"resource/a": 1}, locks=[f"k{n}"])
    free = wide.submit(type="x", locks=["free"])
    wait(wide, minutes=5)
    assert is_running(wide, free)


def test_those_whom_a_person_held_are_looked_at_when_nobody_has_tried_yet(wide: Scheduler, raw: Raw) -> None:
    fail_runs(wide)
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('type/x', 'ada', 0)")
    jobs = [wide.submit(type="x", locks=[f"k{n}"]) for n in range(3)]
    wait(wide, minutes=5)
    assert wide.detail(jobs[0]) == "paused by ada"
    raw("DELETE FROM pause")
    wide.turn()
    assert [is_running(wide, job) for job in jobs] == [True, False, False]


def test_what_becomes_due_or_free_while_it_is_open_is_held_and_keeps_nobody_awake(wide: Scheduler) -> None:
    fail_runs(wide)
    predecessor = wide.submit()
    jobs = [
        wide.submit(type="x", delay="1s"),
        wide.submit(type="x", delay="1s", locks=["a"]),
        wide.submit(type="x", after=[predecessor]),
        wide.submit(type="x", after=[predecessor], locks=["b"]),
    ]
    wide.end(predecessor)
    wait(wide, seconds=1)
    assert [wide.detail(job) for job in jobs] == [f"breaker open for type/x until {UNTIL}"] * 4
    assert wide.engine.next_due == wide.clock.moment + timedelta(minutes=4, seconds=59)
    wait(wide, minutes=4, seconds=59)
    assert [is_running(wide, job) for job in jobs] == [True, False, False, False]
    wide.end(jobs[0], 0)
    assert all(is_running(wide, job) for job in jobs[1:])


# Restart, reset, configuration.


def test_it_survives_a_restart_open_half_open_and_half_full(wide: Scheduler) -> None:
    fail_runs(wide, 2)
    wide.crash()
    fail_runs(wide, 1)
    held = wide.submit(type="x", locks=["k"])
    free = wide.submit(type="x")
    wide.crash()
    assert states(wide)["type/x"][0] == "open"
    assert wide.detail(held) == wide.detail(free) == f"breaker open for type/x until {UNTIL}"
    assert wide.engine.next_due == wide.clock.moment + COOL_DOWN
    wide.clock.advance(minutes=6)
    wide.crash()
    assert is_running(wide, held)
    run = wide.run_of(held)
    wide.crash([Account(run=run, pid=1, has_ended=False)])
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{held}")
    assert not is_running(wide, free)
    wide.say(Exited(run=run, at=wide.clock.moment.timestamp(), code=0))
    assert is_running(wide, free)
    assert states(wide) == {}


def test_what_a_restart_forgets_makes_room_and_hides_nothing(wide: Scheduler, raw: Raw) -> None:
    """Failures of before the window are forgotten at a restart: those that are kept count on, and new ones join."""
    wide.set_breaker(failures=4, window=WINDOW, cool_down=COOL_DOWN)
    fail_runs(wide, 2)
    wait(wide, minutes=6)
    fail_runs(wide, 1)
    wait(wide, minutes=5)
    wide.crash()
    assert states(wide)["type/x"] == ("closed", 1, None)
    fail_runs(wide, 2)
    assert states(wide)["type/x"] == ("closed", 3, None)
    fail_runs(wide, 1)
    assert states(wide)["type/x"] == ("open", 4, None)
    assert raw("SELECT count(*) FROM breaker_failure") == [(4,)]


def test_figures_changed_over_gaps_hide_nothing(wide: Scheduler, raw: Raw) -> None:
    wide.set_breaker(failures=5, window=WINDOW, cool_down=COOL_DOWN)
    fail_runs(wide, 3)
    wait(wide, minutes=6)
    fail_runs(wide, 1)
    wait(wide, minutes=5)
    wide.crash()
    wide.set_breaker(failures=2, window=timedelta(minutes=1), cool_down=COOL_DOWN)
    for _ in range(6):
        fail_runs(wide, 1)
        wait(wide, minutes=1)
    assert raw("SELECT count(*) FROM breaker_failure") == [(2,)]
    wide.set_breaker(failures=4, window=WINDOW, cool_down=COOL_DOWN)
    fail_runs(wide, 1)
    assert states(wide)["type/x"] == ("closed", 3, None)
    fail_runs(wide, 1)
    assert states(wide)["type/x"] == ("open", 4, None)


def test_a_probe_that_was_lost_with_everything_frees_its_place(wide: Scheduler) -> None:
    fail_runs(wide)
    first, second = wide.submit(type="x"), wide.submit(type="x")
    wait(wide, minutes=5)
    wide.start(first)
    wide.crash()
    assert wide.job(first).reason == "Scheduler crash recovery"
    assert states(wide)["type/x"] == ("half-open", 3, f"job-{second}")


def test_a_probe_that_ends_after_the_breaker_was_reset_is_a_run_like_any_other(wide: Scheduler) -> None:
    fail_runs(wide)
    probe, other = wide.submit(type="x"), wide.submit(type="x")
    wait(wide, minutes=5)
    answer = wide.do(lambda work: reset(work, "type/x", actor="tester"))
    assert answer == BreakerResetForm(key="type/x", state="closed", failures_forgotten=3)
    assert is_running(wide, other)
    wide.end(probe, 1)
    assert states(wide) == {"type/x": ("closed", 1, None)}


def test_lessons_three_strikes_can_be_healed_by_hand(wide: Scheduler) -> None:
    """LESSONS Retry: three strikes and never healed."""
    fail_runs(wide)
    jobs = [wide.submit(type="x"), wide.submit(type="x", locks=["k"])]
    wide.do(lambda work: reset(work, "type/x", actor="ada"))
    assert all(is_running(wide, job) for job in jobs)
    (event,) = [event for event in wide.events if event.kind == "breaker.closed"]
    assert (event.cause, event.actor, event.data) == ("breaker", "ada", {"key": "type/x"})


def test_a_reset_of_what_is_not_there_says_what_is(wide: Scheduler) -> None:
    def attempt(name: str) -> None:
        wide.do(lambda work: reset(work, name, actor="tester"))

    with pytest.raises(NotFound, match="no such breaker: type/x; there are none: nothing has failed lately"):
        attempt("type/x")
    fail_runs(wide, 3, type="x", target="y")
    for name in ("type/z", "global", "x", "type/", ""):
        with pytest.raises(NotFound, match=f"no such breaker: {name}; there are target/y, type/x$"):
            attempt(name)
    with pytest.raises(NotFound, match="no such job: job-99"):
        attempt("job-99")


def test_figures_can_be_changed_while_running(wide: Scheduler) -> None:
    fail_runs(wide, 3)
    held = [wide.submit(type="x"), wide.submit(type="x", locks=["k"])]
    wide.set_breaker(failures=None)
    assert all(is_running(wide, job) for job in held), "switched off, it holds nobody"
    assert states(wide) == {}
    fail_runs(wide, 30)
    assert states(wide) == {}
    wide.set_breaker(failures=2, window=timedelta(seconds=5), cool_down=timedelta(seconds=7))
    fail_runs(wide, 2)
    assert wide.engine.next_due == wide.clock.moment + timedelta(seconds=7)
    wait(wide, seconds=7)
    wide.set_breaker(failures=5, window=timedelta(minutes=1))
    wide.end(wide.submit(type="x"), 0)
    fail_runs(wide, 4)
    assert states(wide)["type/x"] == ("closed", 4, None)
    wide.set_breaker(failures=2)
    fail_runs(wide, 1)
    assert states(wide)["type/x"][0] == "open"


def test_every_change_is_an_event(wide: Scheduler, raw: Raw) -> None:
    *_, last = fail_runs(wide)
    probe = wide.submit(type="x")
    wait(wide, minutes=5)
    wide.end(probe, 0)
    said = [(event.kind, event.cause, dict(event.data)) for event in wide.events if event.kind.startswith("breaker.")]
    until = "2026-01-01T00:05:00+00:00"
    assert said == [
        ("breaker.opened", "executor", {"key": "type/x", "until": until, "job": f"job-{last}"}),
        ("breaker.half_opened", "tick", {"key": "type/x"}),
        ("breaker.probed", "tick", {"key": "type/x", "job": f"job-{probe}"}),
        ("breaker.closed", "executor", {"key": "type/x", "job": f"job-{probe}"}),
    ]
    stored = raw("SELECT kind FROM event WHERE kind LIKE 'breaker.%' ORDER BY seq")
    assert [kind for (kind,) in stored] == [kind for kind, _, _ in said]


def test_status_says_so(wide: Scheduler) -> None:
    fail_runs(wide)
    for locks in ([], ["k"], []):
        wide.submit(type="x", locks=locks)
    shown = status(wide.reader, wide.sight)
    (form,) = shown.breakers
    assert (form.key, form.state, form.until) == ("type/x", "open", wide.clock.moment + COOL_DOWN)
    assert (shown.queued, shown.ready, shown.waiting) == (3, 0, {"paused": 3})
    assert shown.idle_because == f"job-4: breaker open for type/x until {UNTIL}"
    wide.submit()
    assert status(wide.reader, wide.sight).running == 1


def test_a_full_pool_keeps_the_one_that_may_try_in_the_queue(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler()
    scheduler.set_breaker(failures=1, cool_down=COOL_DOWN)
    fail_runs(scheduler, 1)
    busy = scheduler.submit()
    job, other = scheduler.submit(type="x"), scheduler.submit(type="x")
    wait(scheduler, minutes=5)
    assert scheduler.detail(job) == "waiting on pool global (1/1)"
    assert states(scheduler)["type/x"] == ("half-open", 1, None)
    scheduler.end(busy)
    assert is_running(scheduler, job)
    assert scheduler.detail(other) == f"breaker open for type/x until job-{job} has ended"


def test_what_is_shown_before_it_happens_is_what_happens(wide: Scheduler) -> None:
    """Half-open while nothing can be started: the first is shown as free to go, the others as held by it."""
    fail_runs(wide)
    jobs = [wide.submit(type="x") for _ in range(2)]
    wait(wide, minutes=5)
    wide.say(FailedToStart(run=wide.run_of(jobs[0]), error="no", is_machine=True))
    assert wide.detail(jobs[0]) is None
    assert wide.detail(jobs[1]) == f"breaker open for type/x until job-{jobs[0]} has ended"


# Cost.


@contextmanager
def counted(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Statements of the engine's transactions inside."""
    names: list[str] = []
    depth = 0

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def count(name: str, /, *args: Any, **values: Any) -> Any:
            nonlocal depth
            if not depth:  # one verb of the driver may call another
                names.append(name)
            depth += 1
            try:
                return original(name, *args, **values)
            finally:
                depth -= 1

        return count

    database = scheduler.session._db
    with monkeypatch.context() as patch:
        for verb in ("rows", "run", "run_many"):
            patch.setattr(database, verb, counting(getattr(database, verb)))
        yield names


def life(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, code: int, **fields: Any) -> list[str]:
    job = scheduler.submit(**fields)
    scheduler.end(job, code)  # its lane is known from here on
    with counted(scheduler, monkeypatch) as names:
        job = scheduler.submit(**fields)
        scheduler.start(job)
        scheduler.end(job, code)
    return names


def test_what_it_costs(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain job nothing, one with a type and a target one statement when it fails and none when it does not."""
    wide.set_breaker(failures=20)
    kind = {"type": "x", "target": "y"}
    done, failed = life(wide, monkeypatch, 0), life(wide, monkeypatch, 1)
    assert not any("breaker" in name or "failure" in name for name in done + failed)
    assert life(wide, monkeypatch, 0, **kind) == done
    with_kind = life(wide, monkeypatch, 1, **kind)
    assert [name for name in with_kind if name != "add_failure"] == failed
    assert with_kind.count("add_failure") == 1
    wide.set_breaker(failures=None)
    assert life(wide, monkeypatch, 1, **kind) == failed


def test_an_open_breaker_costs_others_nothing(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other = life(wide, monkeypatch, 1), life(wide, monkeypatch, 0, type="z")
    fail_runs(wide)
    for n in range(50):
        wide.submit(type="x", locks=["k"] if n % 2 else [])
    assert life(wide, monkeypatch, 1) == plain
    assert life(wide, monkeypatch, 0, type="z") == other


def test_what_one_that_nobody_has_tried_costs(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement a turn, which finds nobody, however many other breakers hold."""
    plain = life(wide, monkeypatch, 0)
    fail_runs(wide)
    wait(wide, minutes=5)
    fail_runs(wide, type="z")
    for n in range(20):
        wide.submit(type="z", locks=[f"k{n}"])
    with_untried = life(wide, monkeypatch, 0)
    assert [name for name in with_untried if name != "idle_lanes"] == plain
    assert with_untried.count("idle_lanes") == plain.count("lanes")


def test_only_so_many_failures_are_kept(wide: Scheduler, raw: Raw) -> None:
    for _ in range(10):
        fail_runs(wide, 2)
        wait(wide, minutes=10)
    assert raw("SELECT count(*) FROM breaker_failure") == [(3,)]
    wait(wide, minutes=10)
    wide.crash()
    assert raw("SELECT count(*) FROM breaker_failure") == [(0,)]


# Failed starts, forgotten by hand.


def test_a_reset_forgets_failed_starts_and_lets_the_job_go_at_once(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    fail_to_start(scheduler, job)
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    fail_to_start(scheduler, job)
    answer = scheduler.do(lambda work: reset(work, f"job-{job}", actor="ada"))
    assert answer == StartsResetForm(job="job-1", status="QUEUED", failures_forgotten=2, goes_at_once=True)
    assert len(scheduler.started()) == 3
    found = scheduler.job(job)
    assert (found.dispatch_failures, found.last_failure, found.not_before) == (0, "no", None)
    (event,) = [event for event in scheduler.events if event.kind == "job.starts_reset"]
    assert (event.actor, event.job) == ("ada", job)
    for seconds in (1, 2):
        fail_to_start(scheduler, job)
        assert scheduler.status(job) is Status.QUEUED
        scheduler.clock.advance(seconds=seconds)
        scheduler.turn()
    fail_to_start(scheduler, job)
    assert scheduler.status(job) is Status.FAILED


def test_a_reset_of_a_circuit_broken_job_sets_its_count_and_leaves_it_ended(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    for _ in range(3):
        fail_to_start(scheduler, job)
        scheduler.clock.advance(seconds=2)
        scheduler.turn()
    answer = scheduler.do(lambda work: reset(work, "job-1", actor="ada"))
    assert answer == StartsResetForm(job="job-1", status="FAILED", failures_forgotten=3, goes_at_once=False)
    found = scheduler.job(job)
    assert (found.status, found.dispatch_failures, found.permanently_failed) == (Status.FAILED, 0, True)
    with pytest.raises(Conflict, match=r"job-1 has no failed start to forget \(FAILED\); nothing was changed"):
        scheduler.do(lambda work: reset(work, "job-1", actor="ada"))


def test_a_reset_leaves_a_wait_that_somebody_asked_for(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    with pytest.raises(Conflict):
        scheduler.do(lambda work: reset(work, f"job-{job}", actor="ada"))
    assert scheduler.detail(job) == "not before 2026-01-01T01:00:00Z"


def test_a_failed_turn_forgets_nothing(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is in memory; what is due is not."""
    fail_runs(wide)
    job = wide.submit(type="x", locks=["k"])
    wide.clock.advance(minutes=5)
    with monkeypatch.context() as patch:
        patch.setattr(wide.session, "commit", lambda: 1 / 0)
        wide.engine.turn()
        assert wide.engine.trouble is not None
    wide.turn()
    assert is_running(wide, job)


def test_while_the_executor_is_away_a_due_breaker_keeps_nobody_awake(wide: Scheduler) -> None:
    fail_runs(wide)
    job = wide.submit(type="x")
    wide.engine.is_draining = True
    wait(wide, minutes=5)
    assert wide.engine.next_due is None
    wide.engine.is_draining = False
    wide.turn()
    assert is_running(wide, job)
