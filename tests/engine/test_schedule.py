"""Schedules: what fires, when, and what becomes of what does not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from engine.clockwork import AROUND, Clockwork, at
from harness import Raw, Scheduler, SchemaRefused
from rota.api import alarm
from rota.command import fire
from rota.command import template as templates
from rota.command.schedule import disable, enable, remove
from rota.core.backpressure import QueueLimit
from rota.core.schedule import FireState
from rota.core.status import Status
from rota.core.template import TemplateBody
from rota.errors import Conflict, InvalidInput, NotFound, StorageFull, Unavailable
from rota.ids import JobId
from rota.store.postgres.store import PostgresStore
from rota.view.schedule import listing, summary


@pytest.fixture
def works(make_scheduler: Callable[..., Scheduler]) -> Clockwork:
    """On New Year's Day 2026 at midnight, with room for one job."""
    return Clockwork(make_scheduler())


@pytest.fixture
def idle(make_scheduler: Callable[..., Scheduler]) -> Clockwork:
    """The same, and nothing starts."""
    return Clockwork(make_scheduler(**{"global": 0}))


def test_a_due_time_makes_a_job_of_what_was_asked_for(works: Clockwork) -> None:
    job = {"command": ["echo", "x"], "params": {"a": 1}, "priority": 7, "type": "night", "timeout": "5m"}
    schedule = works.add("30 1 * * *", tz="Europe/Berlin", job=job)
    assert schedule.next_at == at("2026-01-01T00:30")
    works.go("2026-01-01T00:29")
    assert works.fires() == []
    works.go("2026-01-01T00:31")
    (fired,) = works.fires()
    assert (fired.state, fired.at, fired.job) == (FireState.FIRED, at("2026-01-01T00:30"), 1)
    form = works.scheduler.show(JobId(1))
    assert (list(form.command), form.params, form.priority, form.type) == (["echo", "x"], {"a": 1}, 7, "night")
    assert form.schedule == "schedule-1"
    assert works.schedule().next_at == at("2026-01-02T00:30")
    assert works.kinds == ["schedule.created", "schedule.fired"]


def test_its_jobs_are_tried_again_three_times(works: Clockwork) -> None:
    works.add("* * * * *")
    works.add("* * * * *", name="once", job={"retries": 0})
    works.go("2026-01-01T00:01")
    first, second = (works.scheduler.job(JobId(number)).spec.retry for number in (1, 2))
    assert first is not None
    assert first.max_retries == 3
    assert second is None or second.max_retries == 0


def test_lessons_a_new_schedule_never_fires_a_time_older_than_itself(works: Clockwork) -> None:
    """LESSONS: a new schedule fired a slot older than itself. Nor one that was enabled, or given other times."""
    works.clock.set("2026-01-01T12:00:30")
    works.add("0 * * * *", catch_up="all")
    works.ring()
    assert works.schedule().next_at == at("2026-01-01T13:00")
    works.do(disable)
    works.go("2026-01-01T18:30")
    works.do(enable)
    works.ring()
    assert works.schedule().next_at == at("2026-01-01T19:00")
    works.change(cron="15 * * * *")
    works.ring()
    assert works.schedule().next_at == at("2026-01-01T19:15")
    assert works.fires() == []
    works.clock.set("2026-01-01T19:15:00")
    works.add("15 * * * *", name="now")
    works.ring()
    assert works.fires("now") == []


@pytest.mark.parametrize("seconds", [0, 0.000001, 1, 30, 59])
def test_lessons_a_time_is_not_missed_because_nobody_woke_in_that_minute(works: Clockwork, seconds: float) -> None:
    """LESSONS: exact-minute match missed slots for days. The next fire is stored, and due until it is booked."""
    works.add("0 12 * * *", catch_up="none")
    works.clock.moment = at("2026-01-01T12:00") + timedelta(seconds=seconds)
    works.ring()
    assert works.said() == ["fired 12:00"]


def test_lessons_two_that_see_the_same_time_fire_it_once(works: Clockwork, raw: Raw) -> None:
    """LESSONS: double fires under several web workers. Even past all that asks before, the schema says no."""
    works.add("0 12 * * *")
    now = works.clock.moment = at("2026-01-01T12:00")
    reader = works.scheduler.reader
    seen = [fire.due(reader, now=now, noticed=now, limit=10)[0] for _ in range(2)]
    told = [works.scheduler.do(partial(fire.fire, due=each, around=AROUND)) for each in seen]
    assert told[0].jobs == [1]
    assert told[1] is None
    assert works.said() == ["fired 12:00"]
    with pytest.raises(SchemaRefused):
        raw("INSERT INTO fire (schedule, at, state, booked_at) SELECT schedule, at, state, booked_at FROM fire")


DOWN = [
    # down from 10:10 until the second time, `0 * * * *`
    ("latest", "13:20:00", ["missed 12:00 x2", "fired 13:00"]),
    ("none", "13:20:00", ["missed 13:00 x3"]),
    ("all", "13:20:00", ["fired 11:00", "fired 12:00", "fired 13:00"]),
    ("latest", "13:00:30", ["missed 12:00 x2", "fired 13:00"]),
    ("none", "13:00:30", ["missed 12:00 x2", "fired 13:00"]),
    ("all", "13:00:30", ["fired 11:00", "fired 12:00", "fired 13:00"]),
    ("latest", "11:00:59", ["fired 11:00"]),
    ("none", "11:00:59", ["fired 11:00"]),
    ("none", "11:01:00", ["missed 11:00"]),
    ("latest", "11:05:00", ["fired 11:00"]),
    ("none", "10:59:59", []),
]


@pytest.mark.parametrize(("catch_up", "back", "expected"), DOWN)
def test_times_that_nobody_was_there_for(works: Clockwork, catch_up: str, back: str, expected: list[str]) -> None:
    works.clock.set("2026-01-01T10:10:00")
    works.add("0 * * * *", catch_up=catch_up)
    works.away(f"2026-01-01T{back}")
    assert works.said() == expected
    following = works.schedule().next_at
    assert following is not None
    assert works.clock.moment < following <= works.clock.moment + timedelta(hours=1)
    works.ring()
    works.restart()
    works.ring()
    assert works.said() == expected


def test_all_is_bounded_and_says_what_was_dropped(idle: Clockwork) -> None:
    idle.add("* * * * *", catch_up="all")
    idle.away("2026-01-01T04:00:30")
    said = idle.said()
    assert said[0] == "missed 02:20 x140"
    assert said[1:] == [f"fired {2 + (21 + n) // 60:02d}:{(21 + n) % 60:02d}" for n in range(100)]
    (missed,) = (event for event in idle.scheduler.events if event.kind == "schedule.missed")
    assert missed.data["count"] == 140
    assert missed.data["first"] == "2026-01-01T00:01:00+00:00"
    assert missed.data["late"] == 6030


@pytest.mark.parametrize("catch_up", ["latest", "none", "all"])
def test_a_year_of_every_minute_is_one_row_and_no_wait(idle: Clockwork, catch_up: str) -> None:
    idle.add("* * * * *", catch_up=catch_up, tz="Europe/Berlin")
    begun = time.process_time()
    idle.away("2027-01-01T00:01:30")
    assert time.process_time() - begun < 10
    fires = idle.fires()
    fired = {"latest": 1, "none": 1, "all": 100}[catch_up]
    assert [each.count for each in fires] == [365 * 1440 + 1 - fired] + [1] * fired
    assert fires[0].state is FireState.MISSED


OVERLAPS = [
    # what the job of the first time does, and what becomes of the second and third
    ("allow", "runs", ["fired", "fired", "fired"]),
    ("skip", "runs", ["fired", "skipped", "skipped"]),
    ("skip", "waits", ["fired", "skipped", "skipped"]),
    ("skip", "ends", ["fired", "fired", "skipped"]),
    ("skip", "backs off", ["fired", "skipped", "skipped"]),
    ("queue_one", "runs", ["fired", "fired", "skipped"]),
    ("queue_one", "waits", ["fired", "skipped", "skipped"]),
    ("queue_one", "ends", ["fired", "fired", "fired"]),
]


@pytest.mark.parametrize(("overlap", "first", "expected"), OVERLAPS)
def test_overlap(make_scheduler: Callable[..., Scheduler], overlap: str, first: str, expected: list[str]) -> None:
    works = Clockwork(make_scheduler(**{"global": 0 if first == "waits" else 5}))
    works.add("0 * * * *", overlap=overlap)
    works.go("2026-01-01T01:00")
    if first == "ends":
        works.scheduler.end(JobId(1))
    elif first == "backs off":
        works.scheduler.end(JobId(1), 1)
    works.go("2026-01-01T03:00")
    assert [each.state.value for each in works.fires()] == expected
    assert all(each.reason for each in works.fires() if each.state is FireState.SKIPPED)


def test_the_jobs_of_one_that_queues_never_run_at_once(make_scheduler: Callable[..., Scheduler]) -> None:
    works = Clockwork(make_scheduler(**{"global": 5}))
    works.add("0 * * * *", overlap="queue_one", job={"retries": 1})
    works.go("2026-01-01T02:00")
    assert works.scheduler.started() == [1]
    assert works.scheduler.detail(JobId(2)) == "waiting on locks"
    works.scheduler.end(JobId(1), 1)
    assert works.scheduler.started() == [1, 2]  # while the first waits to be tried again
    works.clock.advance(minutes=1)
    works.scheduler.turn()
    assert works.scheduler.started() == [1, 2]
    works.scheduler.end(JobId(2))
    assert works.scheduler.started() == [1, 2, 3]


def test_what_was_queued_behind_another_is_not_tied_to_it(make_scheduler: Callable[..., Scheduler]) -> None:
    works = Clockwork(make_scheduler(**{"global": 5}))
    works.add("0 * * * *", overlap="queue_one")
    works.go("2026-01-01T02:00")
    for job in (JobId(1), JobId(2)):
        works.scheduler.end(job)
    assert works.scheduler.job(JobId(2)).after == ()
    works.scheduler.rewind(JobId(1))
    assert [works.scheduler.status(JobId(n)) for n in (1, 2)] == [Status.DISPATCHED, Status.COMPLETED]


def test_a_job_that_is_rewound_counts_as_active_again(make_scheduler: Callable[..., Scheduler]) -> None:
    works = Clockwork(make_scheduler())
    works.add("0 * * * *", overlap="skip")
    works.go("2026-01-01T01:00")
    works.scheduler.end(JobId(1))
    works.scheduler.rewind(JobId(1))
    works.go("2026-01-01T02:00")
    assert works.said() == ["fired 01:00", "skipped 02:00"]


def test_a_unique_key_that_is_taken_skips_the_time(works: Clockwork) -> None:
    works.add("0 * * * *", job={"unique": "k"})
    works.scheduler.submit(unique="k")
    works.go("2026-01-01T01:00")
    (fired,) = works.fires()
    assert (fired.state, fired.reason) == (FireState.SKIPPED, "job-1 has its unique key k")
    works.scheduler.end(JobId(1))
    works.go("2026-01-01T02:00")
    assert works.said() == ["skipped 01:00", "fired 02:00"]


def test_a_full_queue_refuses_no_fire(idle: Clockwork) -> None:
    idle.scheduler.set_queue(QueueLimit(soft=1, hard=1))
    idle.add("0 * * * *")
    idle.scheduler.submit()
    idle.go("2026-01-01T03:00")
    assert idle.said() == ["fired 01:00", "fired 02:00", "fired 03:00"]
    assert [each.job for each in idle.fires()] == [2, 3, 4]


def test_a_paused_and_held_scheduler_fires(works: Clockwork) -> None:
    works.scheduler.pause()
    works.scheduler.hold("maintenance")
    works.add("0 * * * *")
    works.go("2026-01-01T02:00")
    assert works.said() == ["fired 01:00", "fired 02:00"]
    assert works.scheduler.started() == []


def test_a_fire_that_cannot_be_carried_out_is_booked_and_the_schedule_goes_on(works: Clockwork, raw: Raw) -> None:
    works.add("0 * * * *")
    body = msgspec.json.encode({"command": ["true"], "template": "gone"}).decode()
    raw(f"UPDATE schedule SET body = '{body}'")
    works.go("2026-01-01T01:00")
    raw("""UPDATE schedule SET body = '{"command": ["true"], "retry": "gone"}'""")
    works.go("2026-01-01T02:00")
    raw("UPDATE schedule SET body = 'damaged'")
    works.go("2026-01-01T03:00")
    raw("""UPDATE schedule SET body = '{"command": ["true"]}'""")
    works.outside_trouble = Unavailable("the file system does not answer")
    works.go("2026-01-01T04:00")
    works.outside_trouble = None
    works.go("2026-01-01T05:00")
    assert works.said() == ["failed 01:00", "failed 02:00", "failed 03:00", "failed 04:00", "fired 05:00"]
    reasons = [each.reason or "" for each in works.fires()]
    assert reasons[0].startswith("no such template: gone; ")
    assert "retry policy" in reasons[1]
    assert reasons[2].startswith("scheduler data error: ")
    assert reasons[3] == "the file system does not answer"
    assert works.kinds.count("schedule.failed") == 4
    assert summary(works.scheduler.reader, works.clock.moment).failed == 4
    assert summary(works.scheduler.reader, works.clock.moment + timedelta(days=2)).failed == 0


def test_a_record_that_cannot_be_used_fails_alone_and_once(works: Clockwork, raw: Raw) -> None:
    works.add("0 * * * *")
    works.add("0 * * * *", name="other")
    raw("UPDATE schedule SET cron = 'damaged' WHERE name = 's'")
    works.go("2026-01-01T03:00")
    assert works.said() == ["failed 01:00"]
    assert works.schedule().next_at is None
    assert len(works.fires("other")) == 3


def test_a_store_that_is_full_loses_no_fire(works: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    works.add("0 * * * *")
    works.clock.set("2026-01-01T01:00:10")
    session = works.scheduler.session
    commit = session.commit

    def full() -> Any:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(session, "commit", full)
    with pytest.raises(StorageFull):
        works.ring()
    assert works.fires() == []
    monkeypatch.setattr(session, "commit", commit)
    works.clock.advance(seconds=20)
    works.ring()
    assert works.said() == ["fired 01:00"]


def test_trouble_is_tried_again_by_itself(works: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    works.add("0 * * * *")
    works.clock.set("2026-01-01T01:00:10")
    monkeypatch.setattr(alarm, "AGAIN", 0.001)
    perform, failures = works.perform, [StorageFull("full"), RuntimeError("a defect"), Unavailable("away")]

    async def troubled(act: Any) -> Any:
        if failures:
            raise failures.pop()
        return await perform(act)

    monkeypatch.setattr(works, "perform", troubled)
    asyncio.run(run_until(works, lambda: bool(works.fires())))
    assert works.said() == ["fired 01:00"]


async def run_until(works: Clockwork, is_enough: Callable[[], bool]) -> None:
    """The alarm as it runs in the scheduler, until it has come so far."""
    works.schedules_changed = asyncio.Event()
    task = asyncio.create_task(works.alarm.run())
    async with asyncio.timeout(20):
        while not is_enough():  # noqa: ASYNC110 - what it waits for stands in the store
            await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_without_a_schedule_nothing_is_looked_at_until_there_is_one(works: Clockwork) -> None:
    async def watch() -> list[int]:
        works.schedules_changed = asyncio.Event()
        task = asyncio.create_task(works.alarm.run())
        for _ in range(100):
            await asyncio.sleep(0)
        seen = [works.looks]
        works.add("* * * * *")
        works.clock.advance(minutes=1)
        for _ in range(100):
            await asyncio.sleep(0)
        seen.append(works.looks)
        works.schedules_changed.set()
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()
        return seen

    before, unasked = asyncio.run(watch())
    assert before == unasked
    assert works.said() == ["fired 00:01"]


def test_it_sleeps_until_the_next_time_and_no_longer_than_a_minute(works: Clockwork) -> None:
    assert asyncio.run(works.alarm.round()) is None
    works.add("30 0 * * *")
    assert asyncio.run(works.alarm.round()) == 60
    works.clock.set("2026-01-01T00:29:50")
    assert asyncio.run(works.alarm.round()) == 10


def test_what_was_changed_since_it_was_looked_at_wins(works: Clockwork, raw: Raw) -> None:
    works.add("0 12 * * *")
    now = works.clock.moment = at("2026-01-01T12:00")
    (seen,) = fire.due(works.scheduler.reader, now=now, noticed=now, limit=10)
    works.change(set_params={"new": 1})
    assert works.scheduler.do(partial(fire.fire, due=seen, around=AROUND)) is None
    assert raw("SELECT count(*) FROM job") == [(0,)]
    works.ring()
    assert works.scheduler.show(JobId(1)).params == {"new": 1}


def test_a_clock_that_is_set_back_fires_nothing_twice_and_holds_up_nothing(works: Clockwork, raw: Raw) -> None:
    works.add("0 * * * *")
    works.go("2026-01-01T03:30")
    works.clock.set("2026-01-01T01:30:00")
    works.ring()
    assert works.schedule().next_at == at("2026-01-01T02:00")
    works.go("2026-01-01T06:10")
    assert works.said() == [f"fired {hour:02d}:00" for hour in range(1, 7)]
    assert raw("SELECT count(*) FROM job") == [(6,)]


def test_a_clock_that_was_years_ahead_holds_up_nothing(works: Clockwork) -> None:
    """Nor if it was set right while nobody was there."""
    works.add("0 * * * *")
    works.clock.set("2031-01-01T00:00:30")
    works.ring()
    assert works.schedule().next_at == at("2031-01-01T01:00")
    works.clock.set("2026-01-01T00:10:00")
    works.ring()
    assert works.schedule().next_at == at("2026-01-01T01:00")
    works.clock.set("2031-01-01T02:30:00")
    works.ring()
    works.away("2026-01-01T02:00:01")
    assert works.schedule().next_at == at("2026-01-01T03:00")
    works.go("2026-01-01T03:00")
    assert works.said()[-1] != "fired 03:00"  # by its time it stands before those of 2031
    assert "fired 03:00" in works.said()


def test_a_clock_that_is_set_forward_is_as_if_nobody_had_been_there(works: Clockwork) -> None:
    works.add("0 * * * *")
    works.go("2026-01-01T01:30")
    works.clock.set("2026-01-01T05:10:00")
    works.ring()
    assert works.said() == ["fired 01:00", "missed 04:00 x3", "fired 05:00"]


def test_trigger_makes_the_job_now_and_leaves_the_times(works: Clockwork) -> None:
    works.add("0 * * * *", overlap="skip", job={"params": {"a": 1, "b": 2}})
    works.clock.set("2026-01-01T00:20:00")
    assert works.trigger(b=3) == 1
    assert works.scheduler.show(JobId(1)).params == {"a": 1, "b": 3}
    assert works.scheduler.show(JobId(1)).schedule == "schedule-1"
    assert works.trigger() == 2  # overlap is no business of who asks for it
    works.do(disable)
    assert works.trigger() == 3
    works.do(enable)
    assert works.schedule().next_at == at("2026-01-01T01:00")
    assert [each.is_trigger for each in works.fires()] == [True, True, True]
    works.go("2026-01-01T01:00")
    assert works.said()[-1] == "skipped 01:00"


def test_trigger_refused_leaves_no_trace(works: Clockwork) -> None:
    works.add("0 * * * *", job={"unique": "k"})
    assert works.trigger() == 1
    assert works.trigger() == 1
    assert len(works.fires()) == 1
    with pytest.raises(NotFound):
        works.trigger("other")


def test_enable_and_disable_again_change_nothing(works: Clockwork) -> None:
    first = works.add("0 * * * *")
    works.clock.advance(minutes=5)
    assert works.do(enable) == first
    off = works.do(disable)
    works.clock.advance(minutes=5)
    assert works.do(disable) == off
    assert off.next_at is None
    works.go("2026-01-01T05:00")
    assert works.fires() == []
    assert works.kinds == ["schedule.created", "schedule.disabled"]


def test_inv_005_a_change_touches_no_job_that_exists(works: Clockwork, raw: Raw) -> None:
    """Cron, zone, params, priority, command, being disabled and removed: what was made stays to the last byte."""
    works.add("0 * * * *", job={"command": ["echo", "old"], "params": {"v": 1}, "priority": 3})
    works.go("2026-01-01T02:00")
    before = raw("SELECT * FROM spec ORDER BY id"), [works.scheduler.show(JobId(job)) for job in (1, 2)]
    fields = works.change(
        cron="30 * * * *", tz="Asia/Kathmandu", job={"command": ["echo", "new"], "priority": 9}, set_params={"v": 2}
    )
    assert set(fields) == {"cron", "tz", "job"}
    assert (raw("SELECT * FROM spec ORDER BY id"), [works.scheduler.show(JobId(job)) for job in (1, 2)]) == before
    works.go("2026-01-01T03:00")
    new = works.scheduler.show(JobId(3))
    assert (list(new.command), new.params, new.priority) == (["echo", "new"], {"v": 2}, 9)
    assert works.said()[-1] == "fired 02:45"  # half past, in Kathmandu
    works.do(disable)
    works.do(remove)
    assert works.scheduler.show(JobId(1)).schedule == "schedule-1"
    assert raw("SELECT * FROM spec ORDER BY id")[:2] == before[0]


def test_a_change_that_changes_nothing_says_so_and_one_of_params_leaves_the_times(works: Clockwork) -> None:
    works.add("0 * * * *", job={"params": {"a": 1, "b": 2}})
    works.clock.set("2026-01-01T00:59:59")
    assert works.change(cron="0 * * * *") == []
    assert works.change(set_params={"c": 3}, unset_params=["a"]) == ["job"]
    assert works.schedule().since == at("2026-01-01T00:00")
    works.go("2026-01-01T01:00")
    assert works.scheduler.show(JobId(1)).params == {"b": 2, "c": 3}
    works.change(job={"priority": 4})
    works.change(job={"priority": None}, overlap="skip", catch_up="none")
    assert '"priority"' not in works.schedule().body


def test_removed_its_number_is_not_used_again(works: Clockwork) -> None:
    works.add("0 * * * *")
    works.do(remove)
    assert works.add("0 * * * *").id == 2
    with pytest.raises(NotFound):
        works.do(remove, "schedule-1")
    assert works.do(remove, "schedule-2").name == "s"


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"cron": "61 * * * *"}, InvalidInput, "minute 61 is out of range 0-59"),
        ({"tz": "Mars/Olympus"}, InvalidInput, "unknown time zone"),
        ({"name": "taken"}, Conflict, "there is a schedule taken already"),
        ({"name": "schedule-7"}, InvalidInput, "not a usable name of a schedule"),
        ({"name": "a/b"}, InvalidInput, "not a usable name of a schedule"),
        ({"job": {"command": []}}, InvalidInput, "the command is empty"),
        ({"job": {"after": [{"job": "job-1"}]}}, InvalidInput, "after is not for a job of a schedule"),
        ({"job": {"group": "group-1"}}, InvalidInput, "group is not for a job of a schedule"),
        ({"job": {"template": "gone"}}, NotFound, "no such template: gone"),
        ({"job": {"retry": "gone"}}, InvalidInput, "retry policy"),
        ({"job": {"timeout": "soon"}}, InvalidInput, "soon"),
        ({"job": {"cwd": "here"}}, InvalidInput, "cwd must be an absolute path"),
        ({"job": {"unique": ""}}, InvalidInput, "not a usable unique key"),
        ({"job": {"needs": ["bogus"]}}, InvalidInput, "unknown artifact type in 'bogus'"),
        ({"job": {"produces": ["file:"]}}, InvalidInput, "malformed artifact"),
        ({"job": {"pin": "main@x"}}, InvalidInput, "malformed pin"),
    ],
)
def test_what_cannot_be_used_is_refused_and_leaves_nothing(
    works: Clockwork, raw: Raw, fields: dict[str, Any], error: type[Exception], said: str
) -> None:
    works.add("0 * * * *", name="taken")
    before = raw("SELECT * FROM schedule"), raw("SELECT count(*) FROM event")
    given = {"cron": "0 * * * *", **fields}
    with pytest.raises(error, match=said):
        works.add(**given)
    changes = {name: value for name, value in fields.items() if name != "name"}
    if changes:
        with pytest.raises(error, match=said):
            works.change("taken", **changes)
    assert (raw("SELECT * FROM schedule"), raw("SELECT count(*) FROM event")) == before


def template(works: Clockwork, name: str, **fields: Any) -> None:
    body = TemplateBody(command=("echo", "{a}"), default_params={"a": "1"}, **fields)
    works.scheduler.do(lambda work: templates.add(work, name, body, actor="tester"))


def archive(works: Clockwork, name: str) -> None:
    works.scheduler.do(lambda work: templates.archive(work, name, actor="tester"))


@pytest.mark.parametrize(
    ("changes", "fields", "is_warned"),
    [
        ({"cron": "0 3 * * *"}, ["cron", "next_at"], False),
        ({"tz": "Europe/Berlin"}, ["tz"], False),
        ({"overlap": "skip"}, ["overlap"], False),
        ({"rename": "other"}, ["name"], False),
        ({"job": {"priority": 3}}, ["job"], True),
        ({"set_params": {"a": "2"}}, ["job"], True),
        ({"job": {"template": "new"}}, ["job"], False),
        ({"job": {"command": ["true"]}}, ["job"], True),
    ],
)
def test_one_whose_template_is_archived_can_be_changed(
    works: Clockwork, changes: dict[str, Any], fields: list[str], is_warned: bool
) -> None:
    """Only what is asked for now is checked; what was so before is said at most."""
    template(works, "old")
    template(works, "new")
    works.add("0 * * * *", job={"template": "old", "command": []})
    archive(works, "old")
    assert set(works.change(**changes)) <= set(fields)
    assert bool(works.warnings) == is_warned
    number = works.schedule(changes.get("rename", "s")).id
    with pytest.raises(InvalidInput, match="soon"):
        works.change(f"schedule-{number}", job={"timeout": "soon"})
    works.do(disable, f"schedule-{number}")
    works.do(remove, f"schedule-{number}")


def test_a_template_that_cannot_be_used_is_refused_when_it_is_asked_for(works: Clockwork) -> None:
    template(works, "old")
    template(works, "gone")
    works.add("0 * * * *", job={"template": "old", "command": []})
    archive(works, "old")
    archive(works, "gone")
    with pytest.raises(Conflict, match="template gone is archived"):
        works.change(job={"template": "gone"})


def test_a_template_takes_the_place_of_a_command_and_the_other_way_round(works: Clockwork) -> None:
    template(works, "say")
    works.add("0 * * * *", job={"command": ["echo", "by hand"]})
    works.change(job={"template": "say"})
    assert works.warnings == ["template say takes the place of the command echo 'by hand'"]
    assert works.scheduler.job(works.trigger()).spec.command == ("echo", "1")
    works.change(job={"command": ["true"]})
    assert works.warnings == ["the command takes the place of template say; params stay"]
    assert works.scheduler.job(works.trigger()).spec.command == ("true",)
    with pytest.raises(InvalidInput, match="brings its own command"):
        works.change(job={"command": ["true"], "template": "say"})


def test_a_pool_that_can_never_be_had_is_warned_of(works: Clockwork) -> None:
    works.add("0 * * * *", job={"pools": {"global": 7}})
    assert any("global" in each for each in works.warnings)
    works.add("0 * * * *", name="other")
    assert works.warnings == []
    works.change("other", job={"pools": {"global": 7}})
    assert any("global" in each for each in works.warnings)


@pytest.mark.parametrize(("called", "expected"), [("s", "new"), ("mine", "mine"), (None, None)])
def test_its_jobs_are_called_as_it_is_unless_it_was_said_how(
    works: Clockwork, called: str | None, expected: str | None
) -> None:
    works.add("0 * * * *", job={"name": called})
    works.change(rename="new")
    assert works.scheduler.job(works.trigger("new")).spec.name == expected


@pytest.mark.parametrize("way", ["enabled", "restarted"])
def test_one_whose_zone_could_not_be_read_fires_again(works: Clockwork, raw: Raw, way: str) -> None:
    works.add("0 * * * *")
    raw("UPDATE schedule SET zone = 'Europe/Nowhere'")
    works.go("2026-01-01T02:30")
    raw("UPDATE schedule SET zone = 'UTC'")
    if way == "enabled":
        works.do(enable)
    else:
        works.restart()
        works.ring()
    works.go("2026-01-01T04:00")
    assert works.said() == ["failed 01:00", "fired 03:00", "fired 04:00"]


def test_the_environment_of_who_made_it_is_stored_once_kept_and_shown_to_nobody(works: Clockwork, raw: Raw) -> None:
    env = {"PATH": "/bin", "WHO": "me"}
    works.add("0 * * * *", job={"env": env, "inherit_env": False})
    works.add("0 * * * *", name="other", job={"env": env, "inherit_env": False})
    works.add("0 0 * * *", name="daily", job={"env": {"TOKEN": "s3cret"}})
    assert raw("SELECT count(*) FROM surroundings") == [(1,)]
    shown = msgspec.json.encode(listing(works.scheduler.reader, after=0, limit=9))
    assert b"WHO" not in shown
    assert b"s3cret" not in shown, "what was asked for by name is shown to nobody either"
    assert "WHO" not in works.schedule().body
    works.go("2026-01-01T01:00")
    stored = works.scheduler.job(JobId(1)).spec.surroundings
    assert works.scheduler.reader.variables(stored) == env


def test_many_that_are_due_at_once_fire_in_bounded_parts(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them counts as late because others came first."""
    idle = Clockwork(make_scheduler(**{"global": 0}))
    monkeypatch.setattr(alarm, "PAGE", 20)
    for number in range(70):
        idle.add("0 0 * * *", name=f"n{number}", catch_up="none")
    idle.looks = 0
    idle.clock.moment = at("2026-01-02T00:00")
    perform = idle.perform

    async def slow(act: Any) -> Any:
        idle.clock.advance(seconds=5)
        return await perform(act)

    monkeypatch.setattr(idle, "perform", slow)
    idle.ring()
    assert [each.state for n in range(70) for each in idle.fires(f"n{n}")] == [FireState.FIRED] * 70
    assert idle.looks < 15


class Killed(BaseException):
    """The process is gone."""


class Doomed:
    """A database under a process that is killed at its n-th word to it."""

    def __init__(self, database: Any, words: int) -> None:
        self._database = database
        self._left = words

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._database, name)
        if name not in ("rows", "run", "run_many", "begin", "commit"):
            return found

        def word(*args: Any, **values: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                raise Killed
            answer = found(*args, **values)
            if name == "commit" and self._left == 1:
                self._left = 0
                raise Killed
            return answer

        return word


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_killed_at_every_point_of_a_fire_it_fires_exactly_once(works: Clockwork, raw: Raw, catch_up: str) -> None:
    """At each statement, right before the commit and right after it."""
    works.add("0 * * * *", catch_up=catch_up)
    works.go("2026-01-01T01:00")
    hour, words, deaths = 1, 0, 0
    while deaths == words:
        words += 1
        hour += 1
        works.clock.moment = at("2026-01-01T00:00") + timedelta(hours=hour, seconds=5)
        works.scheduler.session._db = Doomed(works.scheduler.session._db, words)
        try:
            works.ring()
        except Killed:
            deaths += 1
        works.restart()
        works.ring()
    assert deaths > 15
    fires = works.fires()
    assert [each.at for each in fires] == [at("2026-01-01T00:00") + timedelta(hours=n) for n in range(1, hour + 1)]
    assert {each.state for each in fires} == {FireState.FIRED}
    made = raw("SELECT count(*), count(DISTINCT chain) FROM job WHERE retry_of IS NULL")
    assert made == [(hour, hour)]
    assert sorted(each.job or 0 for each in fires) == [row[0] for row in raw("SELECT id FROM job ORDER BY id")]
    assert works.kinds.count("schedule.fired") <= hour
    assert raw("SELECT count(*) FROM event WHERE kind = 'schedule.fired'") == [(hour,)]


def test_three_years_exactly_once_each_with_a_crash_now_and_then(
    make_scheduler: Callable[..., Scheduler], raw: Raw
) -> None:
    """Noon in a zone with changed clocks, and an hour of the small ones; a crash every fifty fires."""
    idle = Clockwork(make_scheduler(**{"global": 0}))
    years = 1 if isinstance(idle.scheduler.store, PostgresStore) else 3
    end = at(f"{2026 + years}-01-01T00:00")
    idle.add("30 2 * * *", tz="Europe/Berlin", job={"unique": "one"}, name="night")
    idle.add("0 12 * * 1-5", tz="America/New_York", overlap="skip", name="noon")
    rounds = 0
    while True:
        first = idle.scheduler.reader.first_due_schedule()
        assert first is not None
        if first[2] > end:
            break
        idle.clock.moment = first[2] + timedelta(seconds=rounds % 50)
        idle.ring()
        rounds += 1
        if rounds % 50 == 0:
            idle.restart()
    days = (end - at("2026-01-01T00:00")).days
    assert len(idle.fires("night")) == days
    assert len({each.at.date() for each in idle.fires("night")}) == days
    assert {each.at.isoweekday() for each in idle.fires("noon")} == {1, 2, 3, 4, 5}
    assert raw("SELECT count(*) FROM fire WHERE state = 'missed' OR state = 'failed'") == [(0,)]
    assert raw("SELECT count(*) FROM job") == [(2,)]


def test_what_a_fire_that_is_over_leaves_is_seen_by_its_chain(works: Clockwork) -> None:
    works.add("0 * * * *", job={"retries": 1})
    works.go("2026-01-01T01:00")
    works.scheduler.end(JobId(1), 1)
    assert works.scheduler.status(JobId(1)) is Status.FAILED
    assert works.scheduler.reader.ends_of([JobId(1)]) == {1: "QUEUED"}
    assert [each.job for each in works.scheduler.session.active_of_schedule(works.schedule().id)] == [2]
