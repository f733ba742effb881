"""Pacing: batch sizes, and times of the next start and the next tick."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from rota.kernel.pacing import DispatchInterval, PaceState, StartOutlook, compute_outlook, effective_batch_size
from rota.kernel.status import Status
from rota.kernel.verdict import Wait, WaitKind
from tests.kernel.factories import NOW

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("batch_size", "dispatch_interval", "batch"),
    [(None, None, None), (3, None, 3), (None, MINUTE, 1), (None, "manual", 1), (3, MINUTE, 3), (3, "manual", 3)],
)
def test_batch_size_defaults_to_one_with_dispatch_interval(
    batch_size: int | None, dispatch_interval: DispatchInterval | None, batch: int | None
) -> None:
    assert effective_batch_size(batch_size, dispatch_interval) == batch


def test_next_start_needs_a_previous_start_and_a_delay() -> None:
    assert PaceState().next_start(MINUTE) is None
    assert PaceState(last_start=NOW).next_start(timedelta()) is None
    assert PaceState(last_start=NOW).next_start(MINUTE) == NOW + MINUTE


@pytest.mark.parametrize(
    ("last", "dispatch_interval", "due"),
    [
        (None, None, None),
        (None, "manual", None),
        (NOW, "manual", None),
        (None, HOUR, NOW),
        (NOW - MINUTE, HOUR, NOW - MINUTE + HOUR),
        (NOW - HOUR - MINUTE, HOUR, NOW - MINUTE),
    ],
)
def test_next_automatic_tick(
    last: datetime | None, dispatch_interval: DispatchInterval | None, due: datetime | None
) -> None:
    assert PaceState(last_tick=last).next_tick(dispatch_interval, NOW) == due


def test_clamp_limits_times_to_now() -> None:
    pace = PaceState(last_start=NOW, last_tick=NOW, pending_starts=2)
    assert pace.clamp_to(NOW) == pace
    assert pace.clamp_to(NOW - HOUR) == PaceState(last_start=NOW - HOUR, last_tick=NOW - HOUR, pending_starts=2)


def _ticking(spacing: timedelta) -> StartOutlook:
    return StartOutlook(not_before=NOW + HOUR, needs_tick=True, spacing=spacing)


@pytest.mark.parametrize(
    ("pace", "delay", "dispatch_interval", "expected"),
    [
        (PaceState(last_start=NOW, last_tick=NOW), timedelta(), None, StartOutlook()),
        (PaceState(last_start=NOW), MINUTE, None, StartOutlook(not_before=NOW + MINUTE, spacing=MINUTE)),
        (PaceState(), timedelta(), "manual", StartOutlook(needs_tick=True, is_manual=True)),
        (
            PaceState(last_start=NOW),
            MINUTE,
            "manual",
            StartOutlook(not_before=NOW + MINUTE, needs_tick=True, is_manual=True, spacing=MINUTE),
        ),
        (PaceState(last_start=NOW, last_tick=NOW), MINUTE, HOUR, _ticking(MINUTE)),
        (PaceState(last_start=NOW, last_tick=NOW), HOUR, MINUTE, _ticking(HOUR)),
        (
            PaceState(last_start=NOW, last_tick=NOW, pending_starts=1),
            MINUTE,
            HOUR,
            StartOutlook(not_before=NOW + MINUTE, spacing=MINUTE),
        ),
    ],
)
def test_start_outlook(
    pace: PaceState, delay: timedelta, dispatch_interval: DispatchInterval | None, expected: StartOutlook
) -> None:
    assert compute_outlook(pace, delay, dispatch_interval, NOW) == expected


MANUAL = StartOutlook(needs_tick=True, is_manual=True)
HOURLY = StartOutlook(needs_tick=True, not_before=NOW + MINUTE)
SPACED = StartOutlook(not_before=NOW + MINUTE, spacing=MINUTE)


@pytest.mark.parametrize(
    ("outlook", "jobs_before", "detail"),
    [
        (SPACED, 0, "not before 2026-01-31T12:01:00Z"),
        (SPACED, 2, "not before 2026-01-31T12:03:00Z"),
        (HOURLY, 0, "starts with the next tick, not before 2026-01-31T12:01:00Z"),
        (HOURLY, None, "other jobs come first; it starts with a later tick"),
        (StartOutlook(needs_tick=True, not_before=NOW), 0, "starts with the next tick"),
        (MANUAL, 0, "starts with the next `rota tick`"),
        (MANUAL, None, "other jobs come first; it starts with a later `rota tick`"),
    ],
)
def test_wait_detail_says_when_the_job_starts(outlook: StartOutlook, jobs_before: int | None, detail: str) -> None:
    assert outlook.is_delayed(NOW)
    assert outlook.make_wait(NOW, jobs_before) == Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=detail)


@pytest.mark.parametrize(
    "outlook", [StartOutlook(), StartOutlook(not_before=NOW), StartOutlook(not_before=NOW, spacing=MINUTE)]
)
def test_job_that_can_start_now_has_no_wait(outlook: StartOutlook) -> None:
    assert not outlook.is_delayed(NOW)
    assert outlook.make_wait(NOW, 0) is None
