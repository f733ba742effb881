"""Events read in slices, on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.db import events
from rota.errors import InvalidInput, NotFound
from rota.events.queries import make_event_filter, read_events
from rota.events.schemas import render_event
from rota.ids import JobId
from rota.kernel.events import EventEntry, EventFilter
from tests.harness import Scheduler
from tests.retention.test_collector import ALL, collect, collector_of

pytestmark = pytest.mark.both_databases


def read_all_events(
    scheduler: Scheduler, event_filter: EventFilter, *, since: int = 0, limit: int = 100
) -> list[EventEntry]:
    """Read all events in slices, and check that the slices have no gap and do not overlap."""
    entries: list[EventEntry] = []
    while True:
        part = read_events(scheduler.reader, event_filter, since=since, limit=limit)
        assert since <= part.position
        assert len(part.entries) <= limit
        entries += part.entries
        if part.is_end:
            assert part.position == scheduler.reader.events.head_seq()
            return entries
        assert part.position > since
        since = part.position


def kinds_of(entries: list[EventEntry]) -> list[str]:
    return [entry.event.kind for entry in entries]


@pytest.fixture
def busy_scheduler(scheduler: Scheduler) -> Scheduler:
    """Scheduler with jobs, a retry, a group, a reservation and a pause."""
    scheduler.submit(type="story", flow="write", retries=0)
    scheduler.end_run(JobId(1), 1)
    retried = scheduler.submit(retries=1, type="story")
    scheduler.end_run(retried, 1)
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    scheduler.end_run(JobId(3))
    scheduler.submit_group({}, {}, name="both")
    scheduler.end_run(JobId(4))
    scheduler.end_run(JobId(5))
    reservation = scheduler.reserve("true")
    scheduler.end_reservation(reservation)
    scheduler.pause()
    return scheduler


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("span", [1, 5, 20_000])
def test_filtered_read_returns_the_matching_events(
    busy_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, limit: int, span: int
) -> None:
    monkeypatch.setattr(events, "_MAX_SEQ_SPAN", span)
    monkeypatch.setattr(events, "_MIN_ROWS", 2)
    table = read_all_events(busy_scheduler, EventFilter())
    assert [entry.seq for entry in table] == [seq for seq, _ in busy_scheduler.reader.events.since(0, 1000)]
    (group,) = {entry.event.group for entry in table if entry.event.group is not None}
    for event_filter in (
        EventFilter(kinds=frozenset({"job.failed", "reservation.ended"})),
        EventFilter(chains=frozenset({JobId(2)})),
        EventFilter(chains=frozenset({JobId(1), JobId(2)}), kinds=frozenset({"job.failed"})),
        EventFilter(group=group),
        EventFilter(group=group, kinds=frozenset({"job.completed"})),
        EventFilter(type="story"),
        EventFilter(flow="write"),
    ):
        expected = [entry for entry in table if event_filter.matches(entry)]
        assert expected
        assert read_all_events(busy_scheduler, event_filter, limit=limit) == expected
        middle = expected[0].seq
        assert read_all_events(busy_scheduler, event_filter, since=middle, limit=limit) == expected[1:]


def test_job_filter_covers_chain_and_group_filter_covers_members(busy_scheduler: Scheduler) -> None:
    retry = make_event_filter(busy_scheduler.reader, jobs=[JobId(3)])
    assert {entry.event.job for entry in read_all_events(busy_scheduler, retry)} == {2, 3}
    group = read_all_events(busy_scheduler, make_event_filter(busy_scheduler.reader, group="both"))
    assert {entry.event.job for entry in group} == {None, 4, 5}
    assert kinds_of(group)[0] == "group.submitted"
    assert kinds_of(group)[-1] == "group.finished"
    assert all(entry.event.group == group[0].event.group for entry in group)


def test_filter_refuses_unknown_job_group_and_kind(busy_scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="job-99"):
        make_event_filter(busy_scheduler.reader, jobs=[JobId(99)])
    with pytest.raises(NotFound, match="unknown"):
        make_event_filter(busy_scheduler.reader, group="unknown")
    with pytest.raises(InvalidInput):
        make_event_filter(busy_scheduler.reader, kinds=["nothing"])


def test_rendered_events_have_public_ids_and_times(busy_scheduler: Scheduler) -> None:
    views = [render_event(entry) for entry in read_all_events(busy_scheduler, EventFilter())]
    retried = next(view for view in views if view.kind == "job.retried")
    assert (retried.job, retried.data["retried_as"]) == ("job-2", "job-3")
    retry = next(view for view in views if view.job == "job-3")
    assert (retry.kind, retry.data["retry_of"], retry.data["chain"]) == ("job.submitted", "job-2", "job-2")
    reservation = next(view for view in views if view.kind == "reservation.ended")
    assert (reservation.reservation, reservation.job) == ("reservation-1", None)
    assert "reservation" not in reservation.data
    finished = next(view for view in views if view.kind == "group.finished")
    assert (finished.group, "group" in finished.data) == ("group-1", False)
    assert {view.group for view in views if view.job == "job-4"} == {"group-1"}
    assert not any(view.data.get("from") == "DISPATCHED" for view in views), "DISPATCHED is internal"
    assert all(view.at.tzinfo is not None for view in views)


def test_removed_events_are_reported_as_a_gap(busy_scheduler: Scheduler) -> None:
    kept = busy_scheduler.submit()
    first = read_all_events(busy_scheduler, EventFilter())[0].seq
    assert read_events(busy_scheduler.reader, EventFilter(), since=0, limit=9).complete_from is None
    collect(collector_of(busy_scheduler), ALL)
    complete = busy_scheduler.reader.events.first_seq()
    assert complete > first
    result = read_events(busy_scheduler.reader, EventFilter(), since=first, limit=1000)
    assert result.complete_from == complete
    assert result.entries == [
        entry
        for entry in read_all_events(busy_scheduler, EventFilter(), since=first)
        if entry.event.job in (kept, None)
    ], "remaining events are still returned"
    assert read_events(busy_scheduler.reader, EventFilter(), since=complete - 1, limit=9).complete_from is None
    assert (
        read_events(busy_scheduler.reader, EventFilter(), since=first, limit=9, complete_from=complete).complete_from
        is None
    ), "a known gap is not reported again"
    of_kept_job = make_event_filter(busy_scheduler.reader, jobs=[kept])
    assert read_events(busy_scheduler.reader, of_kept_job, since=0, limit=9).complete_from is None, (
        "an existing job has all its events"
    )
    with_removed_job = EventFilter(chains=frozenset({JobId(1), kept}))
    assert read_events(busy_scheduler.reader, with_removed_job, since=0, limit=9).complete_from == complete


def test_unknown_future_number_is_reported_as_a_gap(busy_scheduler: Scheduler) -> None:
    head = busy_scheduler.reader.events.head_seq()
    result = read_events(busy_scheduler.reader, EventFilter(), since=head + 1, limit=9)
    assert (result.entries, result.position, result.is_end, result.complete_from) == ([], head, True, head + 1)
    result = read_events(busy_scheduler.reader, EventFilter(), since=head, limit=9)
    assert (result.entries, result.position, result.is_end, result.complete_from) == ([], head, True, None)


def test_event_numbers_continue_after_all_events_are_removed(scheduler: Scheduler) -> None:
    scheduler.end_run(scheduler.submit())
    head = scheduler.reader.events.head_seq()
    scheduler.clock.advance(days=1)
    collect(collector_of(scheduler), timedelta())
    assert scheduler.reader.events.head_seq() > head, "the removal is an event itself"
    result = read_events(scheduler.reader, EventFilter(), since=head, limit=9)
    assert kinds_of(result.entries) == ["gc.removed"]
    assert result.complete_from is None
