"""The pace: how many a tick is good for, and when the next start and the next tick come."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from core.making import NOW
from rota.core.pace import Heartbeat, Outlook, Pace, batch_of, outlook
from rota.core.status import Status
from rota.core.verdict import Wait
from rota.core.wait import WaitKind

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("batch_size", "heartbeat", "batch"),
    [(None, None, None), (3, None, 3), (None, MINUTE, 1), (None, "manual", 1), (3, MINUTE, 3), (3, "manual", 3)],
)
def test_a_tick_starts_one_where_there_is_a_heartbeat_and_no_size(
    batch_size: int | None, heartbeat: Heartbeat | None, batch: int | None
) -> None:
    assert batch_of(batch_size, heartbeat) == batch


def test_no_distance_is_kept_from_nothing_or_by_nothing() -> None:
    assert Pace().next_start(MINUTE) is None
    assert Pace(last_start=NOW).next_start(timedelta()) is None
    assert Pace(last_start=NOW).next_start(MINUTE) == NOW + MINUTE


@pytest.mark.parametrize(
    ("last", "heartbeat", "due"),
    [
        (None, None, None),
        (None, "manual", None),
        (NOW, "manual", None),
        (None, HOUR, NOW),
        (NOW - MINUTE, HOUR, NOW - MINUTE + HOUR),
        (NOW - HOUR - MINUTE, HOUR, NOW - MINUTE),
    ],
)
def test_the_next_tick_of_the_clock(last: datetime | None, heartbeat: Heartbeat | None, due: datetime | None) -> None:
    assert Pace(last_tick=last).next_tick(heartbeat, NOW) == due


def test_nothing_was_later_than_now() -> None:
    pace = Pace(last_start=NOW, last_tick=NOW, owed=2)
    assert pace.as_of(NOW) == pace
    assert pace.as_of(NOW - HOUR) == Pace(last_start=NOW - HOUR, last_tick=NOW - HOUR, owed=2)


@pytest.mark.parametrize(
    ("pace", "delay", "heartbeat", "expected"),
    [
        (Pace(last_start=NOW, last_tick=NOW), timedelta(), None, Outlook()),
        (Pace(last_start=NOW), MINUTE, None, Outlook(not_before=NOW + MINUTE)),
        (Pace(), timedelta(), "manual", Outlook(needs_tick=True)),
        (Pace(last_start=NOW), MINUTE, "manual", Outlook(not_before=NOW + MINUTE, needs_tick=True)),
        (Pace(last_start=NOW, last_tick=NOW), MINUTE, HOUR, Outlook(not_before=NOW + HOUR, needs_tick=True)),
        (Pace(last_start=NOW, last_tick=NOW), HOUR, MINUTE, Outlook(not_before=NOW + HOUR, needs_tick=True)),
        (Pace(last_start=NOW, last_tick=NOW, owed=1), MINUTE, HOUR, Outlook(not_before=NOW + MINUTE)),
    ],
)
def test_when_a_job_can_start_that_nothing_else_holds(
    pace: Pace, delay: timedelta, heartbeat: Heartbeat | None, expected: Outlook
) -> None:
    assert outlook(pace, delay, heartbeat, NOW) == expected


def test_what_the_job_says() -> None:
    wait = Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail="not before 2026-01-31T12:01:00Z")
    assert Outlook(not_before=NOW + MINUTE).wait(NOW) == wait
    assert Outlook(not_before=NOW).wait(NOW) is None
    assert Outlook(needs_tick=True).wait(NOW) is None
    assert [Outlook().is_for_later(NOW), Outlook(needs_tick=True).is_for_later(NOW)] == [False, True]
