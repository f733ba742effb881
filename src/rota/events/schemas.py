"""JSON representations of events: in a page, in a stream, and in `rota events --json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.ids import JobId, format_group_id, format_job_id, format_reservation_id, format_run_id
from rota.kernel.events import Event, EventEntry
from rota.kernel.status import Status

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A record of something that happened."""

    seq: int
    """Sequence number of the event. Later events have higher numbers."""
    at: datetime
    """Time of the event."""
    kind: str
    """Kind of the event, such as `job.submitted`, `job.failed` or `group.finished`. docs/reference/events.md lists all
    kinds."""
    cause: str
    """Part of Rota that made the event."""
    actor: str | None
    """User or client that requested the change; `null` if there was no request."""
    job: str | None
    """Id of the job that the event is about; `null` if there is none."""
    run: str | None
    """Id of the run that the event is about; `null` if there is none."""
    reservation: str | None
    """Id of the direct execution that the event is about; `null` if there is none."""
    group: str | None
    """Id of the job's group, or of the group that the event is about; `null` if there is none."""
    data: Mapping[str, Any]
    """Details of the event. The keys depend on `kind`."""


class StreamReset(msgspec.Struct, frozen=True, kw_only=True):
    """A gap in the events: some of the requested events are no longer stored. A client that follows events has to read
    the current state again."""

    since: int
    """Number that the client requested."""
    complete_from: int
    """Number of the first event from which the events are complete."""


class StreamStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a stream that was requested without a number."""

    since: int
    """Number of the last event before the stream."""


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of events, oldest first."""

    events: list[EventView]
    """Events, oldest first."""
    next: int | None
    """Value of `since` for the next page, after any gap that `reset` reports; `null` on the last page."""
    position: int
    """Number of the last event that was examined. Pass it as `since` to get later events, or the remaining events from
    before a gap."""
    reset: StreamReset | None
    """Gap in the events; `null` if they are complete."""


def render_event(entry: EventEntry) -> EventView:
    event = entry.event
    return EventView(
        seq=entry.seq,
        at=_to_datetime(event.at),
        kind=event.kind,
        cause=event.cause,
        actor=event.actor,
        job=None if event.job is None else format_job_id(event.job),
        run=None if event.run is None else format_run_id(event.run),
        reservation=None if event.reservation is None else format_reservation_id(event.reservation),
        group=None if event.group is None else format_group_id(event.group),
        data=_render_data(event),
    )


def _to_datetime(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _format_job(number: int) -> str:
    return format_job_id(JobId(number))


_FIELD_RENDERERS: Mapping[str, Callable[[int], object]] = {
    "retried_as": _format_job,
    "retry_of": _format_job,
    "chain": _format_job,
    "not_before": _to_datetime,
}
"""Fields that are stored as numbers, with the functions that render them."""


def _render_data(event: Event) -> Mapping[str, Any]:
    """Render the data of an event: ids and times in their public formats, without internal statuses."""
    data: dict[str, Any] = {}
    for name, value in event.data.items():
        if name in _FIELD_RENDERERS and isinstance(value, int):
            data[name] = _FIELD_RENDERERS[name](value)
        elif name == "from" and value == Status.DISPATCHED:
            if event.kind != "job.running":
                data[name] = Status.RUNNING.value
        elif not (name == "reservation" and event.reservation is not None) and not (
            name == "group" and event.group is not None
        ):
            data[name] = value
    return data
