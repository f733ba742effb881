"""Schedules: fires, missed times, overlap, changes and failures."""

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

from rota.db.decoding import to_micros
from rota.db.postgres.store import PostgresStore
from rota.db.session import Session
from rota.errors import Conflict, InvalidInput, NotFound, ServiceUnavailable, StorageFull
from rota.ids import JobId
from rota.kernel.backpressure import QueueLimit
from rota.kernel.status import Status
from rota.schedules import fire as schedule_fire
from rota.schedules import timer
from rota.schedules.commands import disable, enable, remove
from rota.schedules.model import FireState
from rota.schedules.queries import list_schedules, summarize_schedules
from rota.templates import commands
from rota.templates.model import TemplateBody
from tests.engine.schedule_harness import ScheduleDriver, parse_utc
from tests.harness import DEFAULT_ENVIRONMENT, Damage, Scheduler, SchemaRefused, SqlRunner


@pytest.fixture
def driver(make_scheduler: Callable[..., Scheduler]) -> ScheduleDriver:
    """Schedule driver on 2026-01-01 at midnight, with capacity for one job."""
    return ScheduleDriver(make_scheduler())


@pytest.fixture
def idle_driver(make_scheduler: Callable[..., Scheduler]) -> ScheduleDriver:
    """Schedule driver on a scheduler that starts no jobs."""
    return ScheduleDriver(make_scheduler(**{"global": 0}))


def test_due_time_creates_a_job_from_the_schedule(driver: ScheduleDriver) -> None:
    job = {"command": ["echo", "x"], "params": {"a": 1}, "priority": 7, "type": "night", "timeout": "5m"}
    schedule = driver.add_schedule("30 1 * * *", tz="Europe/Berlin", job=job)
    assert schedule.next_at == parse_utc("2026-01-01T00:30")
    driver.advance_to("2026-01-01T00:29")
    assert driver.list_fires() == []
    driver.advance_to("2026-01-01T00:31")
    (fired,) = driver.list_fires()
    assert (fired.state, fired.at, fired.job) == (FireState.FIRED, parse_utc("2026-01-01T00:30"), 1)
    shown = driver.scheduler.show_job(JobId(1))
    assert (list(shown.command), shown.params, shown.priority, shown.type) == (["echo", "x"], {"a": 1}, 7, "night")
    assert shown.schedule == "schedule-1"
    assert driver.find_schedule().next_at == parse_utc("2026-01-02T00:30")
    assert driver.event_kinds == ["schedule.created", "schedule.fired"]


def test_scheduled_jobs_are_retried_three_times_by_default(driver: ScheduleDriver) -> None:
    driver.add_schedule("* * * * *")
    driver.add_schedule("* * * * *", name="once", job={"retries": 0})
    driver.advance_to("2026-01-01T00:01")
    first, second = (driver.scheduler.job(JobId(number)).spec.retry for number in (1, 2))
    assert first is not None
    assert first.max_retries == 3
    assert second is None or second.max_retries == 0


def test_lessons_new_schedule_never_fires_a_time_older_than_itself(driver: ScheduleDriver) -> None:
    """LESSONS: a new schedule fired for a time before its creation. So do enable and a change of times."""
    driver.clock.set_time("2026-01-01T12:00:30")
    driver.add_schedule("0 * * * *", catch_up="all")
    driver.fire_due()
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T13:00")
    driver.run_command(disable)
    driver.advance_to("2026-01-01T18:30")
    driver.run_command(enable)
    driver.fire_due()
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T19:00")
    driver.change_schedule(cron="15 * * * *")
    driver.fire_due()
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T19:15")
    assert driver.list_fires() == []
    driver.clock.set_time("2026-01-01T19:15:00")
    driver.add_schedule("15 * * * *", name="now")
    driver.fire_due()
    assert driver.list_fires("now") == []


@pytest.mark.parametrize("seconds", [0, 0.000001, 1, 30, 59])
def test_lessons_time_is_not_missed_without_a_wake_up_in_that_minute(driver: ScheduleDriver, seconds: float) -> None:
    """LESSONS: exact-minute match missed fire times for days. The next fire is stored, and due until it is recorded."""
    driver.add_schedule("0 12 * * *", catch_up="none")
    driver.clock.moment = parse_utc("2026-01-01T12:00") + timedelta(seconds=seconds)
    driver.fire_due()
    assert driver.format_fires() == ["fired 12:00"]


def test_lessons_concurrent_fires_of_one_time_fire_once(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    """LESSONS: double fires under several web workers. If every earlier check fails, the schema refuses."""
    driver.add_schedule("0 12 * * *")
    now = driver.clock.moment = parse_utc("2026-01-01T12:00")
    reader = driver.scheduler.reader
    due = [schedule_fire.find_due_schedules(reader, now=now, noticed_at=now, limit=10)[0] for _ in range(2)]
    result = [
        driver.scheduler.run_request(
            partial(schedule_fire.fire, due_schedule=schedule, default_environment=DEFAULT_ENVIRONMENT)
        )
        for schedule in due
    ]
    assert result[0].jobs == [1]
    assert result[1] is None
    assert driver.format_fires() == ["fired 12:00"]
    with pytest.raises(SchemaRefused):
        run_sql(
            "INSERT INTO fire (schedule, epoch, at, state, recorded_at) SELECT schedule, epoch, at, state, 0 FROM fire"
        )


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
def test_times_during_downtime_follow_the_catch_up_policy(
    driver: ScheduleDriver, catch_up: str, back: str, expected: list[str]
) -> None:
    driver.clock.set_time("2026-01-01T10:10:00")
    driver.add_schedule("0 * * * *", catch_up=catch_up)
    driver.restart_at(f"2026-01-01T{back}")
    assert driver.format_fires() == expected
    following = driver.find_schedule().next_at
    assert following is not None
    assert driver.clock.moment < following <= driver.clock.moment + timedelta(hours=1)
    driver.fire_due()
    driver.restart()
    driver.fire_due()
    assert driver.format_fires() == expected


def test_catch_up_all_is_limited_and_reports_dropped_times(idle_driver: ScheduleDriver) -> None:
    idle_driver.add_schedule("* * * * *", catch_up="all")
    idle_driver.restart_at("2026-01-01T04:00:30")
    fires = idle_driver.format_fires()
    assert fires[0] == "missed 02:20 x140"
    assert fires[1:] == [f"fired {2 + (21 + n) // 60:02d}:{(21 + n) % 60:02d}" for n in range(100)]
    (missed,) = (event for event in idle_driver.scheduler.events if event.kind == "schedule.missed")
    assert missed.data["count"] == 140
    assert missed.data["first"] == "2026-01-01T00:01:00+00:00"
    assert missed.data["delay_seconds"] == 6030


@pytest.mark.parametrize("catch_up", ["latest", "none", "all"])
def test_year_of_missed_minutes_is_one_row(idle_driver: ScheduleDriver, catch_up: str) -> None:
    idle_driver.add_schedule("* * * * *", catch_up=catch_up, tz="Europe/Berlin")
    started = time.process_time()
    idle_driver.restart_at("2027-01-01T00:01:30")
    assert time.process_time() - started < 10
    fires = idle_driver.list_fires()
    fired = {"latest": 1, "none": 1, "all": 100}[catch_up]
    assert [fire.count for fire in fires] == [365 * 1440 + 1 - fired] + [1] * fired
    assert fires[0].state is FireState.MISSED


OVERLAPS = [
    # state of the job of the first time, and the states of all three fires
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
def test_overlap_policy_decides_later_fires(
    make_scheduler: Callable[..., Scheduler], overlap: str, first: str, expected: list[str]
) -> None:
    driver = ScheduleDriver(make_scheduler(**{"global": 0 if first == "waits" else 5}))
    driver.add_schedule("0 * * * *", overlap=overlap)
    driver.advance_to("2026-01-01T01:00")
    if first == "ends":
        driver.scheduler.end_run(JobId(1))
    elif first == "backs off":
        driver.scheduler.end_run(JobId(1), 1)
    driver.advance_to("2026-01-01T03:00")
    assert [fire.state.value for fire in driver.list_fires()] == expected
    assert all(fire.reason for fire in driver.list_fires() if fire.state is FireState.SKIPPED)


def test_queued_jobs_of_one_schedule_never_run_together(make_scheduler: Callable[..., Scheduler]) -> None:
    driver = ScheduleDriver(make_scheduler(**{"global": 5}))
    driver.add_schedule("0 * * * *", overlap="queue_one", job={"retries": 1})
    driver.advance_to("2026-01-01T02:00")
    assert driver.scheduler.started_jobs() == [1]
    assert driver.scheduler.wait_detail(JobId(2)) == "waiting on locks"
    driver.scheduler.end_run(JobId(1), 1)
    assert driver.scheduler.started_jobs() == [1, 2]  # while the first waits for its retry
    driver.clock.advance(minutes=1)
    driver.scheduler.run_turns()
    assert driver.scheduler.started_jobs() == [1, 2]
    driver.scheduler.end_run(JobId(2))
    assert driver.scheduler.started_jobs() == [1, 2, 3]


def test_queued_fire_does_not_depend_on_the_one_before(make_scheduler: Callable[..., Scheduler]) -> None:
    driver = ScheduleDriver(make_scheduler(**{"global": 5}))
    driver.add_schedule("0 * * * *", overlap="queue_one")
    driver.advance_to("2026-01-01T02:00")
    for job in (JobId(1), JobId(2)):
        driver.scheduler.end_run(job)
    assert driver.scheduler.job(JobId(2)).after == ()
    driver.scheduler.rewind(JobId(1))
    assert [driver.scheduler.status(JobId(n)) for n in (1, 2)] == [Status.DISPATCHED, Status.COMPLETED]


def test_rewound_job_counts_as_active(make_scheduler: Callable[..., Scheduler]) -> None:
    driver = ScheduleDriver(make_scheduler())
    driver.add_schedule("0 * * * *", overlap="skip")
    driver.advance_to("2026-01-01T01:00")
    driver.scheduler.end_run(JobId(1))
    driver.scheduler.rewind(JobId(1))
    driver.advance_to("2026-01-01T02:00")
    assert driver.format_fires() == ["fired 01:00", "skipped 02:00"]


def test_unique_key_in_use_skips_the_time(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *", job={"unique": "k"})
    driver.scheduler.submit(unique="k")
    driver.advance_to("2026-01-01T01:00")
    (fired,) = driver.list_fires()
    assert (fired.state, fired.reason) == (FireState.SKIPPED, "job-1 has its unique key k")
    driver.scheduler.end_run(JobId(1))
    driver.advance_to("2026-01-01T02:00")
    assert driver.format_fires() == ["skipped 01:00", "fired 02:00"]


def test_full_queue_refuses_no_fire(idle_driver: ScheduleDriver) -> None:
    idle_driver.scheduler.set_queue_limits(QueueLimit(soft=1, hard=1))
    idle_driver.add_schedule("0 * * * *")
    idle_driver.scheduler.submit()
    idle_driver.advance_to("2026-01-01T03:00")
    assert idle_driver.format_fires() == ["fired 01:00", "fired 02:00", "fired 03:00"]
    assert [fire.job for fire in idle_driver.list_fires()] == [2, 3, 4]


def test_paused_and_held_scheduler_fires(driver: ScheduleDriver) -> None:
    driver.scheduler.pause()
    driver.scheduler.set_hold_text("maintenance")
    driver.add_schedule("0 * * * *")
    driver.advance_to("2026-01-01T02:00")
    assert driver.format_fires() == ["fired 01:00", "fired 02:00"]
    assert driver.scheduler.started_jobs() == []


def test_failed_fire_is_recorded_and_schedule_continues(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    driver.add_schedule("0 * * * *")
    body = msgspec.json.encode({"command": ["true"], "template": "gone"}).decode()
    run_sql(f"UPDATE schedule SET body = '{body}'")
    driver.advance_to("2026-01-01T01:00")
    run_sql("""UPDATE schedule SET body = '{"command": ["true"], "retry": "gone"}'""")
    driver.advance_to("2026-01-01T02:00")
    run_sql("UPDATE schedule SET body = 'damaged'")
    driver.advance_to("2026-01-01T03:00")
    run_sql("""UPDATE schedule SET body = '{"command": ["true"]}'""")
    driver.preflight_error = ServiceUnavailable("the file system does not answer")
    driver.advance_to("2026-01-01T04:00")
    driver.preflight_error = None
    driver.advance_to("2026-01-01T05:00")
    assert driver.format_fires() == ["failed 01:00", "failed 02:00", "failed 03:00", "failed 04:00", "fired 05:00"]
    reasons = [fire.reason or "" for fire in driver.list_fires()]
    assert reasons[0].startswith("no such template: gone; ")
    assert "retry policy" in reasons[1]
    assert reasons[2].startswith("scheduler data error: ")
    assert reasons[3] == "the file system does not answer"
    assert driver.event_kinds.count("schedule.failed") == 4
    assert summarize_schedules(driver.scheduler.reader, driver.clock.moment).failed == 4
    assert summarize_schedules(driver.scheduler.reader, driver.clock.moment + timedelta(days=2)).failed == 0


def test_unusable_record_fails_its_own_schedule_once(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    driver.add_schedule("0 * * * *")
    driver.add_schedule("0 * * * *", name="other")
    run_sql("UPDATE schedule SET cron = 'damaged' WHERE name = 's'")
    driver.advance_to("2026-01-01T03:00")
    assert driver.format_fires() == ["failed 01:00"]
    assert driver.find_schedule().next_at is None
    assert len(driver.list_fires("other")) == 3


@pytest.mark.parametrize(
    ("sql", "output"),
    [
        ("catch_up = 'someday'", "its catch_up 'someday' is unknown"),
        ("overlap = 'odd'", "its overlap 'odd' is unknown"),
        ("zone = 'Europe/Nowhere'", 'unknown time zone "Europe/Nowhere"'),
        ("body = '{bad'", "its job cannot be read"),
        ("body = '{\"webhooks\": 5}'", "its job cannot be read"),
    ],
)
def test_unreadable_schedule_stops_no_other_and_can_be_removed(
    driver: ScheduleDriver, damage: Damage, sql: str, output: str
) -> None:
    driver.add_schedule("0 * * * *")
    driver.add_schedule("0 * * * *", name="good")
    damage(f"UPDATE schedule SET {sql} WHERE name = 's'")
    driver.advance_to("2026-01-01T02:00")
    driver.restart()
    driver.fire_due()
    assert [fire.state for fire in driver.list_fires("good")] == [FireState.FIRED] * 2
    assert driver.format_fires()[0] == "failed 01:00"
    bad, good = list_schedules(driver.scheduler.reader, after=0, limit=9).schedules
    assert output in str(bad.unreadable)
    assert good.unreadable is None
    with pytest.raises((Conflict, InvalidInput)):
        driver.change_schedule(cron="5 * * * *")
    driver.run_command(remove)
    assert [schedule.name for schedule in list_schedules(driver.scheduler.reader, after=0, limit=9).schedules] == [
        "good"
    ]


def test_fire_of_unknown_state_is_counted_and_shown_as_failed(driver: ScheduleDriver, damage: Damage) -> None:
    driver.add_schedule("0 * * * *")
    driver.advance_to("2026-01-01T01:00")
    damage("UPDATE fire SET state = 'odd'")
    assert summarize_schedules(driver.scheduler.reader, driver.clock.moment).failed == 1
    (shown,) = list_schedules(driver.scheduler.reader, after=0, limit=9).schedules
    assert shown.last_fire is not None
    assert (shown.last_fire.state, shown.last_fire.reason) == (FireState.FAILED, "its state 'odd' is unknown")


def test_full_store_loses_no_fire(driver: ScheduleDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.add_schedule("0 * * * *")
    driver.clock.set_time("2026-01-01T01:00:10")
    session = driver.scheduler.session
    commit = session.commit

    def full() -> Any:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(session, "commit", full)
    with pytest.raises(StorageFull):
        driver.fire_due()
    assert driver.list_fires() == []
    monkeypatch.setattr(session, "commit", commit)
    driver.clock.advance(seconds=20)
    driver.fire_due()
    assert driver.format_fires() == ["fired 01:00"]


def test_timer_retries_after_errors(driver: ScheduleDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.add_schedule("0 * * * *")
    driver.clock.set_time("2026-01-01T01:00:10")
    monkeypatch.setattr(timer, "RETRY_DELAY", 0.001)
    perform, failures = driver.run_in_turn, [StorageFull("full"), RuntimeError("a defect"), ServiceUnavailable("away")]

    async def failing(act: Any) -> Any:
        if failures:
            raise failures.pop()
        return await perform(act)

    monkeypatch.setattr(driver, "run_in_turn", failing)
    asyncio.run(run_until(driver, lambda: bool(driver.list_fires())))
    assert driver.format_fires() == ["fired 01:00"]


async def run_until(driver: ScheduleDriver, condition: Callable[[], bool]) -> None:
    """Run the timer as in the scheduler, until this condition holds."""
    task = asyncio.create_task(driver.timer.run())
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the condition is read from the store
            await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_timer_without_schedules_reads_nothing_until_notified(driver: ScheduleDriver) -> None:
    async def watch() -> list[int]:
        task = asyncio.create_task(driver.timer.run())
        for _ in range(100):
            await asyncio.sleep(0)
        counts = [driver.read_count]
        driver.add_schedule("* * * * *")
        driver.clock.advance(minutes=1)
        for _ in range(100):
            await asyncio.sleep(0)
        counts.append(driver.read_count)
        driver.schedules_changed.set()
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()
        return counts

    before, after = asyncio.run(watch())
    assert before == after
    assert driver.format_fires() == ["fired 00:01"]


def test_timer_sleeps_until_the_next_time_at_most_a_minute(driver: ScheduleDriver) -> None:
    assert asyncio.run(driver.timer.fire_due()) is None
    driver.add_schedule("30 0 * * *")
    assert asyncio.run(driver.timer.fire_due()) == 60
    driver.clock.set_time("2026-01-01T00:29:50")
    assert asyncio.run(driver.timer.fire_due()) == 10


def test_change_after_the_read_wins(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    driver.add_schedule("0 12 * * *")
    now = driver.clock.moment = parse_utc("2026-01-01T12:00")
    (due,) = schedule_fire.find_due_schedules(driver.scheduler.reader, now=now, noticed_at=now, limit=10)
    driver.change_schedule(set_params={"new": 1})
    assert (
        driver.scheduler.run_request(
            partial(schedule_fire.fire, due_schedule=due, default_environment=DEFAULT_ENVIRONMENT)
        )
        is None
    )
    assert run_sql("SELECT count(*) FROM job") == [(0,)]
    driver.fire_due()
    assert driver.scheduler.show_job(JobId(1)).params == {"new": 1}


def test_clock_set_back_fires_nothing_twice_and_delays_nothing(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    driver.add_schedule("0 * * * *")
    driver.advance_to("2026-01-01T03:30")
    driver.clock.set_time("2026-01-01T01:30:00")
    driver.fire_due()
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T02:00")
    driver.advance_to("2026-01-01T06:10")
    assert driver.format_fires() == [f"fired {hour:02d}:00" for hour in range(1, 7)]
    assert run_sql("SELECT count(*) FROM job") == [(6,)]


def test_clock_that_was_years_ahead_delays_nothing(driver: ScheduleDriver) -> None:
    """This also holds if it was corrected while the scheduler was down."""
    driver.add_schedule("0 * * * *")
    driver.clock.set_time("2031-01-01T00:00:30")
    driver.fire_due()
    assert driver.find_schedule().next_at == parse_utc("2031-01-01T01:00")
    driver.clock.set_time("2026-01-01T00:10:00")
    driver.fire_due()
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T01:00")
    driver.clock.set_time("2031-01-01T02:30:00")
    driver.fire_due()
    driver.restart_at("2026-01-01T02:00:01")
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T03:00")
    driver.advance_to("2026-01-01T03:00")
    assert driver.format_fires()[-2:] == ["fired 02:00", "fired 03:00"]


@pytest.mark.parametrize("is_running", [True, False])
def test_times_fire_again_after_a_wrong_clock(driver: ScheduleDriver, run_sql: SqlRunner, is_running: bool) -> None:
    """The history of the wrong clock is kept, including that of the same times."""
    driver.add_schedule("*/30 * * * *")
    driver.advance_to("2026-01-01T04:10")
    if not is_running:
        driver.restart_at("2026-01-01T00:10")
    driver.clock.set_time("2026-01-01T00:10")
    driver.fire_due()
    driver.advance_to("2026-01-01T01:10")
    assert driver.format_fires()[-2:] == ["fired 00:30", "fired 01:00"]
    assert run_sql("SELECT at, count(*) FROM fire GROUP BY at HAVING count(*) > 1 ORDER BY at") == [
        (to_micros(parse_utc(f"2026-01-01T{time}")), 2) for time in ("00:30", "01:00")
    ]
    assert run_sql("SELECT count(*) FROM job") == [(10,)]
    assert len(driver.list_fires()) == 10


def test_clock_set_back_by_hours_repeats_near_times(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 12 * * *")
    driver.advance_to("2026-01-01T15:59")
    driver.clock.set_time("2026-01-01T10:59")
    driver.fire_due()
    driver.advance_to("2026-01-01T12:30")
    assert driver.format_fires() == ["fired 12:00", "fired 12:00"]


def test_schedule_enabled_after_the_clock_was_corrected_fires(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *")
    driver.advance_to("2026-01-01T09:10")
    driver.run_command(disable)
    driver.clock.set_time("2026-01-01T02:10")
    driver.fire_due()
    driver.run_command(enable)
    driver.advance_to("2026-01-01T03:10")
    assert driver.format_fires()[-1] == "fired 03:00"


def test_clock_set_forward_counts_as_downtime(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *")
    driver.advance_to("2026-01-01T01:30")
    driver.clock.set_time("2026-01-01T05:10:00")
    driver.fire_due()
    assert driver.format_fires() == ["fired 01:00", "missed 04:00 x3", "fired 05:00"]


def test_trigger_creates_a_job_and_keeps_the_times(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *", overlap="skip", job={"params": {"a": 1, "b": 2}})
    driver.clock.set_time("2026-01-01T00:20:00")
    assert driver.trigger(b=3) == 1
    assert driver.scheduler.show_job(JobId(1)).params == {"a": 1, "b": 3}
    assert driver.scheduler.show_job(JobId(1)).schedule == "schedule-1"
    assert driver.trigger() == 2  # overlap does not apply to a trigger
    driver.run_command(disable)
    assert driver.trigger() == 3
    driver.run_command(enable)
    assert driver.find_schedule().next_at == parse_utc("2026-01-01T01:00")
    assert [fire.is_manual for fire in driver.list_fires()] == [True, True, True]
    driver.advance_to("2026-01-01T01:00")
    assert driver.format_fires()[-1] == "skipped 01:00"


def test_refused_trigger_leaves_no_trace(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *", job={"unique": "k"})
    assert driver.trigger() == 1
    assert driver.trigger() == 1
    assert len(driver.list_fires()) == 1
    with pytest.raises(NotFound):
        driver.trigger("other")


def test_repeated_enable_and_disable_change_nothing(driver: ScheduleDriver) -> None:
    first = driver.add_schedule("0 * * * *")
    driver.clock.advance(minutes=5)
    assert driver.run_command(enable) == first
    off = driver.run_command(disable)
    driver.clock.advance(minutes=5)
    assert driver.run_command(disable) == off
    assert off.next_at is None
    driver.advance_to("2026-01-01T05:00")
    assert driver.list_fires() == []
    assert driver.event_kinds == ["schedule.created", "schedule.disabled"]


def test_inv_005_change_affects_no_existing_job(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    """Cron, zone, params, priority, command, disable and remove: existing jobs stay equal to the last byte."""
    driver.add_schedule("0 * * * *", job={"command": ["echo", "old"], "params": {"v": 1}, "priority": 3})
    driver.advance_to("2026-01-01T02:00")
    before = run_sql("SELECT * FROM spec ORDER BY id"), [driver.scheduler.show_job(JobId(job)) for job in (1, 2)]
    fields = driver.change_schedule(
        cron="30 * * * *", tz="Asia/Kathmandu", job={"command": ["echo", "new"], "priority": 9}, set_params={"v": 2}
    )
    assert set(fields) == {"cron", "tz", "job"}
    assert (
        run_sql("SELECT * FROM spec ORDER BY id"),
        [driver.scheduler.show_job(JobId(job)) for job in (1, 2)],
    ) == before
    driver.advance_to("2026-01-01T03:00")
    new = driver.scheduler.show_job(JobId(3))
    assert (list(new.command), new.params, new.priority) == (["echo", "new"], {"v": 2}, 9)
    assert driver.format_fires()[-1] == "fired 02:45"  # half past, in Kathmandu
    driver.run_command(disable)
    driver.run_command(remove)
    assert driver.scheduler.show_job(JobId(1)).schedule == "schedule-1"
    assert run_sql("SELECT * FROM spec ORDER BY id")[:2] == before[0]


def test_change_without_effect_is_reported_and_params_keep_the_times(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *", job={"params": {"a": 1, "b": 2}})
    driver.clock.set_time("2026-01-01T00:59:59")
    assert driver.change_schedule(cron="0 * * * *") == []
    assert driver.change_schedule(set_params={"c": 3}, unset_params=["a"]) == ["job"]
    assert driver.find_schedule().effective_from == parse_utc("2026-01-01T00:00")
    driver.advance_to("2026-01-01T01:00")
    assert driver.scheduler.show_job(JobId(1)).params == {"b": 2, "c": 3}
    driver.change_schedule(job={"priority": 4})
    driver.change_schedule(job={"priority": None}, overlap="skip", catch_up="none")
    assert '"priority"' not in driver.find_schedule().body


def test_number_of_removed_schedule_is_not_reused(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *")
    driver.run_command(remove)
    assert driver.add_schedule("0 * * * *").id == 2
    with pytest.raises(NotFound):
        driver.run_command(remove, "schedule-1")
    assert driver.run_command(remove, "schedule-2").name == "s"


@pytest.mark.parametrize(
    ("fields", "error", "output"),
    [
        ({"cron": "61 * * * *"}, InvalidInput, "minute 61 is out of range 0-59"),
        ({"tz": "Mars/Olympus"}, InvalidInput, "unknown time zone"),
        ({"name": "taken"}, Conflict, "schedule taken already exists"),
        ({"name": "schedule-7"}, InvalidInput, "not a usable name of a schedule"),
        ({"name": "a/b"}, InvalidInput, "not a usable name of a schedule"),
        ({"name": "a\nb"}, InvalidInput, r"not a usable name of a schedule: 'a\\nb', which has a line break; use"),
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
def test_invalid_schedule_is_refused_and_leaves_no_trace(
    driver: ScheduleDriver, run_sql: SqlRunner, fields: dict[str, Any], error: type[Exception], output: str
) -> None:
    driver.add_schedule("0 * * * *", name="taken")
    before = run_sql("SELECT * FROM schedule"), run_sql("SELECT count(*) FROM event")
    all_fields = {"cron": "0 * * * *", **fields}
    with pytest.raises(error, match=output):
        driver.add_schedule(**all_fields)
    changes = {name: value for name, value in fields.items() if name != "name"}
    if changes:
        with pytest.raises(error, match=output):
            driver.change_schedule("taken", **changes)
    assert (run_sql("SELECT * FROM schedule"), run_sql("SELECT count(*) FROM event")) == before


def template(driver: ScheduleDriver, name: str, **fields: Any) -> None:
    body = TemplateBody(command=("echo", "{a}"), default_params={"a": "1"}, **fields)
    driver.scheduler.run_request(lambda tx: commands.add_template(tx, name, body, actor="tester"))


def archive(driver: ScheduleDriver, name: str) -> None:
    driver.scheduler.run_request(lambda tx: commands.archive_template(tx, name, actor="tester"))


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
def test_schedule_with_archived_template_can_be_changed(
    driver: ScheduleDriver, changes: dict[str, Any], fields: list[str], is_warned: bool
) -> None:
    """Only the requested changes are checked; older problems are warnings."""
    template(driver, "old")
    template(driver, "new")
    driver.add_schedule("0 * * * *", job={"template": "old", "command": []})
    archive(driver, "old")
    assert set(driver.change_schedule(**changes)) <= set(fields)
    assert bool(driver.warnings) == is_warned
    number = driver.find_schedule(changes.get("rename", "s")).id
    with pytest.raises(InvalidInput, match="soon"):
        driver.change_schedule(f"schedule-{number}", job={"timeout": "soon"})
    driver.run_command(disable, f"schedule-{number}")
    driver.run_command(remove, f"schedule-{number}")


def test_archived_template_is_refused_in_a_change(driver: ScheduleDriver) -> None:
    template(driver, "old")
    template(driver, "gone")
    driver.add_schedule("0 * * * *", job={"template": "old", "command": []})
    archive(driver, "old")
    archive(driver, "gone")
    with pytest.raises(Conflict, match="template gone is archived"):
        driver.change_schedule(job={"template": "gone"})


def test_template_replaces_a_command_and_the_reverse(driver: ScheduleDriver) -> None:
    template(driver, "say")
    driver.add_schedule("0 * * * *", job={"command": ["echo", "by hand"]})
    driver.change_schedule(job={"template": "say"})
    assert driver.warnings == ["template say replaces the command echo 'by hand'"]
    assert driver.scheduler.job(driver.trigger()).spec.command == ("echo", "1")
    driver.change_schedule(job={"command": ["true"]})
    assert driver.warnings == ["the command replaces template say; params stay"]
    assert driver.scheduler.job(driver.trigger()).spec.command == ("true",)
    with pytest.raises(InvalidInput, match="has its own command"):
        driver.change_schedule(job={"command": ["true"], "template": "say"})


def test_pool_weight_that_never_fits_is_warned_of(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *", job={"pools": {"global": 7}})
    assert any("global" in warning for warning in driver.warnings)
    driver.add_schedule("0 * * * *", name="other")
    assert driver.warnings == []
    driver.change_schedule("other", job={"pools": {"global": 7}})
    assert any("global" in warning for warning in driver.warnings)


@pytest.mark.parametrize(("called", "expected"), [("s", "new"), ("mine", "mine"), (None, None)])
def test_jobs_have_the_name_of_the_schedule_by_default(
    driver: ScheduleDriver, called: str | None, expected: str | None
) -> None:
    driver.add_schedule("0 * * * *", job={"name": called})
    driver.change_schedule(rename="new")
    assert driver.scheduler.job(driver.trigger("new")).spec.name == expected


@pytest.mark.parametrize("action", ["enabled", "restarted"])
def test_schedule_with_repaired_zone_fires_again(driver: ScheduleDriver, run_sql: SqlRunner, action: str) -> None:
    driver.add_schedule("0 * * * *")
    run_sql("UPDATE schedule SET zone = 'Europe/Nowhere'")
    driver.advance_to("2026-01-01T02:30")
    run_sql("UPDATE schedule SET zone = 'UTC'")
    if action == "enabled":
        driver.run_command(enable)
    else:
        driver.restart()
        driver.fire_due()
    driver.advance_to("2026-01-01T04:00")
    assert driver.format_fires() == ["failed 01:00", "fired 03:00", "fired 04:00"]


def test_environment_is_stored_once_and_never_shown(driver: ScheduleDriver, run_sql: SqlRunner) -> None:
    env = {"PATH": "/bin", "WHO": "me"}
    driver.add_schedule("0 * * * *", job={"env": env, "inherit_env": False})
    driver.add_schedule("0 * * * *", name="other", job={"env": env, "inherit_env": False})
    driver.add_schedule("0 0 * * *", name="daily", job={"env": {"TOKEN": "s3cret"}})
    assert run_sql("SELECT count(*) FROM environment") == [(1,)]
    shown = msgspec.json.encode(list_schedules(driver.scheduler.reader, after=0, limit=9))
    assert b"WHO" not in shown
    assert b"s3cret" not in shown, "explicit variables are not shown either"
    assert "WHO" not in driver.find_schedule().body
    driver.advance_to("2026-01-01T01:00")
    stored = driver.scheduler.job(JobId(1)).spec.environment
    assert driver.scheduler.reader.jobs.environment_variables(stored) == env


def test_many_due_schedules_fire_in_bounded_batches(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them counts as late because others came first."""
    idle_driver = ScheduleDriver(make_scheduler(**{"global": 0}))
    monkeypatch.setattr(timer, "PAGE_SIZE", 20)
    for number in range(70):
        idle_driver.add_schedule("0 0 * * *", name=f"n{number}", catch_up="none")
    idle_driver.read_count = 0
    idle_driver.clock.moment = parse_utc("2026-01-02T00:00")
    perform = idle_driver.run_in_turn

    async def slow(act: Any) -> Any:
        idle_driver.clock.advance(seconds=5)
        return await perform(act)

    monkeypatch.setattr(idle_driver, "run_in_turn", slow)
    idle_driver.fire_due()
    assert [fire.state for n in range(70) for fire in idle_driver.list_fires(f"n{n}")] == [FireState.FIRED] * 70
    assert idle_driver.read_count < 15


class KilledError(BaseException):
    """Stand-in for the end of the process."""


class KillingDatabase:
    """Database of a process that is killed at its n-th call."""

    def __init__(self, database: Any, calls: int) -> None:
        self._database = database
        self._remaining = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._database, name)
        if name not in ("rows", "run", "run_many", "begin", "commit"):
            return method

        def call(*args: Any, **values: Any) -> Any:
            self._remaining -= 1
            if self._remaining == 0:
                raise KilledError
            response = method(*args, **values)
            if name == "commit" and self._remaining == 1:
                self._remaining = 0
                raise KilledError
            return response

        return call


@pytest.mark.both_databases
@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_kill_at_any_call_fires_exactly_once(driver: ScheduleDriver, run_sql: SqlRunner, catch_up: str) -> None:
    """Kill at each statement, directly before the commit and directly after it."""
    driver.add_schedule("0 * * * *", catch_up=catch_up)
    driver.advance_to("2026-01-01T01:00")
    hour, calls, kills = 1, 0, 0
    while kills == calls:
        calls += 1
        hour += 1
        driver.clock.moment = parse_utc("2026-01-01T00:00") + timedelta(hours=hour, seconds=5)
        database: Any = KillingDatabase(driver.scheduler.session._db, calls)
        driver.scheduler.session = driver.scheduler.engine._session = Session(database)
        try:
            driver.fire_due()
        except KilledError:
            kills += 1
        driver.restart()
        driver.fire_due()
    assert kills > 15
    fires = driver.list_fires()
    assert [fire.at for fire in fires] == [
        parse_utc("2026-01-01T00:00") + timedelta(hours=n) for n in range(1, hour + 1)
    ]
    assert {fire.state for fire in fires} == {FireState.FIRED}
    counts = run_sql("SELECT count(*), count(DISTINCT chain) FROM job WHERE retry_of IS NULL")
    assert counts == [(hour, hour)]
    assert sorted(fire.job or 0 for fire in fires) == [row[0] for row in run_sql("SELECT id FROM job ORDER BY id")]
    assert driver.event_kinds.count("schedule.fired") <= hour
    assert run_sql("SELECT count(*) FROM event WHERE kind = 'schedule.fired'") == [(hour,)]


def test_three_years_with_crashes_fire_every_time_once(
    make_scheduler: Callable[..., Scheduler], run_sql: SqlRunner
) -> None:
    """Noon in a zone with changing clocks, and an early hour; a crash every fifty fires."""
    idle_driver = ScheduleDriver(make_scheduler(**{"global": 0}))
    years = 1 if isinstance(idle_driver.scheduler.store, PostgresStore) else 3
    end = parse_utc(f"{2026 + years}-01-01T00:00")
    idle_driver.add_schedule("30 2 * * *", tz="Europe/Berlin", job={"unique": "one"}, name="night")
    idle_driver.add_schedule("0 12 * * 1-5", tz="America/New_York", overlap="skip", name="noon")
    rounds = 0
    while True:
        first = idle_driver.scheduler.reader.schedules.first_due()
        assert first is not None
        if first[2] > end:
            break
        idle_driver.clock.moment = first[2] + timedelta(seconds=rounds % 50)
        idle_driver.fire_due()
        rounds += 1
        if rounds % 50 == 0:
            idle_driver.restart()
    days = (end - parse_utc("2026-01-01T00:00")).days
    assert len(idle_driver.list_fires("night")) == days
    assert len({fire.at.date() for fire in idle_driver.list_fires("night")}) == days
    assert {fire.at.isoweekday() for fire in idle_driver.list_fires("noon")} == {1, 2, 3, 4, 5}
    assert run_sql("SELECT count(*) FROM fire WHERE state = 'missed' OR state = 'failed'") == [(0,)]
    assert run_sql("SELECT count(*) FROM job") == [(2,)]


def test_retry_of_scheduled_job_counts_as_active(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 * * * *", job={"retries": 1})
    driver.advance_to("2026-01-01T01:00")
    driver.scheduler.end_run(JobId(1), 1)
    assert driver.scheduler.status(JobId(1)) is Status.FAILED
    assert driver.scheduler.reader.chains.statuses([JobId(1)]) == {1: "QUEUED"}
    assert [job.job for job in driver.scheduler.session.schedules.active_jobs(driver.find_schedule().id)] == [2]


def test_query_of_webhook_url_is_masked(driver: ScheduleDriver) -> None:
    driver.add_schedule("0 0 * * *", job={"webhooks": ["http://127.0.0.1:9/hook?token=hunter2"]})
    shown = msgspec.json.encode(list_schedules(driver.scheduler.reader, after=0, limit=9))
    assert b"http://127.0.0.1:9/hook?***" in shown
    assert b"hunter2" not in shown
