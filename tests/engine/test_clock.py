"""A wall clock that is set back while the scheduler runs or is off: no due time is further away than its delay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rota.executor.port import StartConfirmation, StartFailure
from rota.ids import JobId, WebhookId
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.kernel.status import Status
from rota.webhooks.commands import RotationRequest, rotate_secret
from rota.webhooks.model import HOLD_DURATION
from tests.engine.schedule_harness import AdjustableClock
from tests.harness import Scheduler
from tests.webhooks.test_outbox import add as add_webhook
from tests.webhooks.test_outbox import due_messages, fail_delivery, read_webhook, record_refusal, run_one

pytestmark = pytest.mark.both_databases
SetClockBack = Callable[[Scheduler], None]


def while_it_runs(scheduler: Scheduler) -> None:
    scheduler.run_turns()


def while_it_is_off(scheduler: Scheduler) -> None:
    scheduler.crash()


@pytest.fixture(params=[while_it_runs, while_it_is_off])
def set_clock_back(request: pytest.FixtureRequest) -> SetClockBack:
    """Set the wall clock back by a day."""

    def act(scheduler: Scheduler) -> None:
        clock = scheduler.clock
        assert isinstance(clock, AdjustableClock)
        clock.set_time((clock.moment - timedelta(days=1)).replace(tzinfo=None).isoformat())
        request.param(scheduler)

    return act


@pytest.fixture
def scheduler(scheduler: Scheduler) -> Scheduler:
    scheduler.clock = scheduler.engine._clock = scheduler.engine._executor_health._clock = AdjustableClock()
    return scheduler


def advance(scheduler: Scheduler, **delay: float) -> None:
    scheduler.clock.advance(**delay)
    scheduler.run_turns()


def check_starts_after(scheduler: Scheduler, job: JobId, **delay: float) -> None:
    """Check that the job does not start a microsecond before the delay ends, and starts as soon as it does."""
    before = scheduler.started_jobs().count(job)
    advance(scheduler, **delay, microseconds=-1)
    assert scheduler.started_jobs().count(job) == before
    advance(scheduler, microseconds=1)
    assert scheduler.started_jobs().count(job) == before + 1


def test_submit_delay_is_kept_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    job = scheduler.submit(delay="5m")
    advance(scheduler, minutes=3)
    set_clock_back(scheduler)
    assert scheduler.job(job).not_before == scheduler.clock.now() + timedelta(minutes=5)
    assert scheduler.engine.next_due == scheduler.clock.now() + timedelta(minutes=5)
    check_starts_after(scheduler, job, minutes=5)


def test_edited_delay_is_kept_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    from rota.jobs.edit import EditRequest, edit

    job = scheduler.submit(delay="5m")
    scheduler.run_request(lambda tx: edit(tx, job, EditRequest(delay="1h"), actor="tester"))
    set_clock_back(scheduler)
    check_starts_after(scheduler, job, hours=1)


def test_retry_backoff_is_kept_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    scheduler.configure(retry=RetryPolicies(default=RetryPolicy(max_retries=1, base=timedelta(seconds=10), jitter=0)))
    job = scheduler.submit(retry="default")
    scheduler.confirm_start(job)
    scheduler.end_run(job, 1)
    set_clock_back(scheduler)
    check_starts_after(scheduler, JobId(job + 1), seconds=10)


def test_start_retry_delay_is_kept_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    job = scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
    set_clock_back(scheduler)
    scheduler.executor.orders.clear()
    check_starts_after(scheduler, job, seconds=1)


def test_delay_that_is_over_stays_over(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    running = scheduler.submit()
    job = scheduler.submit(delay="5m")
    advance(scheduler, minutes=6)
    assert scheduler.show_job(job).wait is not None
    set_clock_back(scheduler)
    scheduler.cancel(running)
    if running in scheduler.started_jobs():
        scheduler.end_run(running, None, signal=15, ended_by="stop")
    scheduler.run_turns()
    assert scheduler.job(job).status is Status.DISPATCHED


def test_delay_of_rewound_cancelled_job_restarts(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    job = scheduler.submit(delay="5m")
    scheduler.cancel(job)
    set_clock_back(scheduler)
    scheduler.rewind(job)
    assert scheduler.job(job).not_before == scheduler.clock.now() + timedelta(minutes=5)
    check_starts_after(scheduler, job, minutes=5)


def test_delay_that_is_over_stays_over_when_the_job_is_rewound(
    scheduler: Scheduler, set_clock_back: SetClockBack
) -> None:
    job = scheduler.submit(delay="5m")
    check_starts_after(scheduler, job, minutes=5)
    scheduler.end_run(job)
    set_clock_back(scheduler)
    count = scheduler.started_jobs().count(job)
    scheduler.rewind(job)
    assert scheduler.started_jobs().count(job) == count + 1


def test_time_while_scheduler_is_off_counts(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="5m")
    scheduler.clock.advance(minutes=4)
    scheduler.crash()
    check_starts_after(scheduler, job, minutes=1)


def test_breaker_cool_down_is_kept_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    scheduler.set_breaker_policy(failures=1, cool_down=timedelta(minutes=5))
    job = scheduler.submit(type="x")
    scheduler.confirm_start(job)
    scheduler.end_run(job, 1)
    held = scheduler.submit(type="x")
    set_clock_back(scheduler)
    check_starts_after(scheduler, held, minutes=5)


def test_breaker_window_expires_after_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    scheduler.set_breaker_policy(failures=2, window=timedelta(minutes=10))
    run_one(scheduler, 1, type="x")
    set_clock_back(scheduler)
    advance(scheduler, minutes=11)
    run_one(scheduler, 1, type="x")
    assert scheduler.reader.breakers.list_all() == [], "the first failure is older than the window"


@pytest.mark.parametrize("kind", ["spawn_delay", "dispatch_interval"])
def test_tick_pacing_is_kept_when_clock_is_set_back(
    scheduler: Scheduler, set_clock_back: SetClockBack, kind: str
) -> None:
    scheduler.set_pools(**{"global": -1, "flow__*": -1})
    scheduler.configure(**{kind: timedelta(minutes=5)})
    first, second = scheduler.submit(), scheduler.submit()
    advance(scheduler, minutes=5)
    assert scheduler.started_jobs()[0] == first
    advance(scheduler, minutes=1)
    count = len(scheduler.started_jobs())
    third = scheduler.submit()
    set_clock_back(scheduler)
    outlook = scheduler.engine.outlook.not_before
    assert outlook is not None
    assert outlook <= scheduler.clock.now() + timedelta(minutes=5)
    for _ in range(3):
        scheduler.receive(
            *(StartConfirmation(run=start.run, pid=4242, start_time=1) for start in scheduler.executor.starts)
        )
        advance(scheduler, minutes=5)
    assert third in scheduler.started_jobs(), (second, count)


def test_delivery_retry_delay_is_kept_when_clock_is_set_back(
    scheduler: Scheduler, set_clock_back: SetClockBack
) -> None:
    add_webhook(scheduler)
    run_one(scheduler)
    next_at = record_refusal(scheduler).next_at
    assert next_at is not None
    delay = next_at - scheduler.clock.now()
    set_clock_back(scheduler)
    due = due_messages(scheduler)
    assert due.messages == []
    assert due.next_at == scheduler.clock.now() + delay


def test_webhook_hold_is_limited_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    add_webhook(scheduler)
    number = 0
    while read_webhook(scheduler).held_until is None:
        number += 1
        run_one(scheduler)
        fail_delivery(scheduler, number)
    set_clock_back(scheduler)
    until = read_webhook(scheduler).held_until
    assert until is not None
    assert until <= scheduler.clock.now() + HOLD_DURATION


def test_old_secret_expiry_is_kept_when_clock_is_set_back(scheduler: Scheduler, set_clock_back: SetClockBack) -> None:
    add_webhook(scheduler)
    scheduler.run_request(
        lambda tx: rotate_secret(tx, WebhookId(1), RotationRequest(keep_old_for="1h"), actor="tester")
    )
    set_clock_back(scheduler)
    assert read_webhook(scheduler).old_secret_until == scheduler.clock.now() + timedelta(hours=1)
