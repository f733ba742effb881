"""Events as JSON: in a page, in a stream, and in `rota events --json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.core.event import Entry, Event
from rota.core.status import Status
from rota.ids import JobId, show_group, show_job, show_run, show_slot

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EventForm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    seq: int
    """Its number. Each event has a higher one than those before it."""
    at: datetime
    """When it happened."""
    kind: str
    """What happened: `job.submitted`, `job.failed`, `group.finished` …; docs/events.md lists them."""
    cause: str
    """What part of Rota did it."""
    actor: str | None
    """Who asked for it, where somebody did."""
    job: str | None
    """The job that it happened to."""
    run: str | None
    """The run that it happened to."""
    slot: str | None
    """The direct execution that it happened to."""
    group: str | None
    """Of the job, or what the event is about."""
    data: Mapping[str, Any]
    """What more there is to say; it depends on the kind."""


class ResetForm(msgspec.Struct, frozen=True, kw_only=True):
    """Events after the number that was asked for are not there any more: who followed them looks anew at what is."""

    since: int
    """The number that was asked for."""
    complete_from: int
    """Every event from this number on is there."""


class BeginForm(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream begins that was asked for without a number."""

    since: int
    """The number of the last event before it."""


class EventsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of events, the oldest first."""

    events: list[EventForm]
    """The oldest first."""
    next: int | None
    """The `since` of the page after this, behind what a `reset` says; null when this is the last."""
    position: int
    """How far this page has looked: the `since` for what happens later, and for what is left from before a `reset`."""
    reset: ResetForm | None
    """Set where events before this page are not there any more."""


def event_form(entry: Entry) -> EventForm:
    event = entry.event
    return EventForm(
        seq=entry.seq,
        at=_moment(event.at),
        kind=event.kind,
        cause=event.cause,
        actor=event.actor,
        job=None if event.job is None else show_job(event.job),
        run=None if event.run is None else show_run(event.run),
        slot=None if event.slot is None else show_slot(event.slot),
        group=None if event.group is None else show_group(event.group),
        data=_data(event),
    )


def _moment(stored: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stored)


def _job(number: int) -> str:
    return show_job(JobId(number))


_NUMBERS: Mapping[str, Callable[[int], object]] = {
    "as": _job,
    "retry_of": _job,
    "chain": _job,
    "not_before": _moment,
}
"""What is stored as a number and means something else."""


def _data(event: Event) -> Mapping[str, Any]:
    """As every surface says it: ids and times in their forms, and no status that is internal."""
    said: dict[str, Any] = {}
    for name, value in event.data.items():
        if name in _NUMBERS and isinstance(value, int):
            said[name] = _NUMBERS[name](value)
        elif name == "from" and value == Status.DISPATCHED:
            if event.kind != "job.running":
                said[name] = Status.RUNNING.value
        elif not (name == "slot" and event.slot is not None) and not (name == "group" and event.group is not None):
            said[name] = value
    return said
