"""Events read from the table, a piece at a time, on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.test_gc import ALL, collect, collector_of
from harness import Scheduler
from rota.core.event import Entry, Wanted
from rota.errors import InvalidInput, NotFound
from rota.ids import JobId
from rota.store import event as store_event
from rota.view.event import piece, wanted_of
from rota.wire.event import event_form


def read(scheduler: Scheduler, wanted: Wanted, *, since: int = 0, limit: int = 100) -> list[Entry]:
    """All of it, in pieces that leave nothing out and say nothing twice."""
    found: list[Entry] = []
    while True:
        each = piece(scheduler.reader, wanted, since=since, limit=limit)
        assert since <= each.position
        assert len(each.entries) <= limit
        found += each.entries
        if each.is_end:
            assert each.position == scheduler.reader.head()
            return found
        assert each.position > since
        since = each.position


def kinds(entries: list[Entry]) -> list[str]:
    return [entry.event.kind for entry in entries]


@pytest.fixture
def busy(scheduler: Scheduler) -> Scheduler:
    """Eight jobs, some retried, some in a group, a slot, a pause."""
    scheduler.submit(type="story", flow="write", retries=0)
    scheduler.end(JobId(1), 1)
    retried = scheduler.submit(retries=1, type="story")
    scheduler.end(retried, 1)
    scheduler.clock.advance(minutes=1)
    scheduler.turn()
    scheduler.end(JobId(3))
    scheduler.submit_group({}, {}, name="both")
    scheduler.end(JobId(4))
    scheduler.end(JobId(5))
    slot = scheduler.reserve("true")
    scheduler.end_slot(slot)
    scheduler.pause()
    return scheduler


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("span", [1, 5, 20_000])
def test_whatever_is_wanted_is_the_table_without_the_rest(
    busy: Scheduler, monkeypatch: pytest.MonkeyPatch, limit: int, span: int
) -> None:
    monkeypatch.setattr(store_event, "_SPAN", span)
    monkeypatch.setattr(store_event, "_ROWS", 2)
    table = read(busy, Wanted())
    assert [entry.seq for entry in table] == [seq for seq, _ in busy.reader.events_since(0, 1000)]
    (group,) = {entry.event.group for entry in table if entry.event.group is not None}
    for wanted in (
        Wanted(kinds=frozenset({"job.failed", "slot.ended"})),
        Wanted(chains=frozenset({JobId(2)})),
        Wanted(chains=frozenset({JobId(1), JobId(2)}), kinds=frozenset({"job.failed"})),
        Wanted(group=group),
        Wanted(group=group, kinds=frozenset({"job.completed"})),
        Wanted(type="story"),
        Wanted(flow="write"),
    ):
        expected = [entry for entry in table if wanted.wants(entry)]
        assert expected
        assert read(busy, wanted, limit=limit) == expected
        middle = expected[0].seq
        assert read(busy, wanted, since=middle, limit=limit) == expected[1:]


def test_a_job_stands_for_its_chain_and_a_group_for_its_members(busy: Scheduler) -> None:
    retry = wanted_of(busy.reader, jobs=[JobId(3)])
    assert {entry.event.job for entry in read(busy, retry)} == {2, 3}
    group = read(busy, wanted_of(busy.reader, group="both"))
    assert {entry.event.job for entry in group} == {None, 4, 5}
    assert kinds(group)[0] == "group.submitted"
    assert kinds(group)[-1] == "group.finished"
    assert all(entry.event.group == group[0].event.group for entry in group)


def test_what_is_not_there_cannot_be_wanted(busy: Scheduler) -> None:
    with pytest.raises(NotFound, match="job-99"):
        wanted_of(busy.reader, jobs=[JobId(99)])
    with pytest.raises(NotFound, match="nobody"):
        wanted_of(busy.reader, group="nobody")
    with pytest.raises(InvalidInput):
        wanted_of(busy.reader, kinds=["nothing"])


def test_as_json_ids_and_times_have_their_forms(busy: Scheduler) -> None:
    forms = [event_form(entry) for entry in read(busy, Wanted())]
    retried = next(form for form in forms if form.kind == "job.retried")
    assert (retried.job, retried.data["as"]) == ("job-2", "job-3")
    again = next(form for form in forms if form.job == "job-3")
    assert (again.kind, again.data["retry_of"], again.data["chain"]) == ("job.submitted", "job-2", "job-2")
    slot = next(form for form in forms if form.kind == "slot.ended")
    assert (slot.slot, slot.job, "slot" in slot.data) == ("slot-1", None, False)
    finished = next(form for form in forms if form.kind == "group.finished")
    assert (finished.group, "group" in finished.data) == ("group-1", False)
    assert {form.group for form in forms if form.job == "job-4"} == {"group-1"}
    assert not any(form.data.get("from") == "DISPATCHED" for form in forms), "that status is internal"
    assert all(form.at.tzinfo is not None for form in forms)


def test_what_was_collected_is_said_to_be_missing(busy: Scheduler) -> None:
    kept = busy.submit()
    first = read(busy, Wanted())[0].seq
    assert piece(busy.reader, Wanted(), since=0, limit=9).complete_from is None
    collect(collector_of(busy), ALL)
    complete = busy.reader.events_from()
    assert complete > first
    found = piece(busy.reader, Wanted(), since=first, limit=1000)
    assert found.complete_from == complete
    assert found.entries == [entry for entry in read(busy, Wanted(), since=first) if entry.event.job in (kept, None)], (
        "what is there is told all the same"
    )
    assert piece(busy.reader, Wanted(), since=complete - 1, limit=9).complete_from is None
    assert piece(busy.reader, Wanted(), since=first, limit=9, complete_from=complete).complete_from is None, "said once"
    own = wanted_of(busy.reader, jobs=[kept])
    assert piece(busy.reader, own, since=0, limit=9).complete_from is None, "a job that is there has all its events"
    gone = Wanted(chains=frozenset({JobId(1), kept}))
    assert piece(busy.reader, gone, since=0, limit=9).complete_from == complete


def test_a_number_that_was_never_given_out_is_of_another_history(busy: Scheduler) -> None:
    head = busy.reader.head()
    found = piece(busy.reader, Wanted(), since=head + 1, limit=9)
    assert (found.entries, found.position, found.is_end, found.complete_from) == ([], head, True, head + 1)
    found = piece(busy.reader, Wanted(), since=head, limit=9)
    assert (found.entries, found.position, found.is_end, found.complete_from) == ([], head, True, None)


def test_numbers_go_on_where_the_last_events_were_collected(scheduler: Scheduler) -> None:
    scheduler.end(scheduler.submit())
    head = scheduler.reader.head()
    scheduler.clock.advance(days=1)
    collect(collector_of(scheduler), timedelta())
    assert scheduler.reader.head() > head, "what was collected is itself an event"
    found = piece(scheduler.reader, Wanted(), since=head, limit=9)
    assert kinds(found.entries) == ["gc.removed"]
    assert found.complete_from is None
