"""Events over HTTP: a stream of server-sent events, or pages of history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from rota.db.session import Reader
from rota.errors import InvalidInput
from rota.events.feed import EventFeed, EventListener, event_message
from rota.events.queries import EventSlice, make_event_filter, read_events
from rota.events.schemas import EventPage, EventView, StreamReset, StreamStart, render_event
from rota.http.context import Context
from rota.http.endpoint import JSON, Endpoint, Header, Invocation, JsonReply, PageSize, WaitSeconds, parse_field
from rota.http.sse import KEEPALIVE, MEDIA, EventStream, format_message
from rota.ids import parse_job_id
from rota.kernel.events import KIND_PATTERNS, EventEntry, EventFilter
from rota.schema_types import JobIdText

EventNumber = Annotated[int, Meta(ge=0, le=2**62)]
_MAX_NUMBER_DIGITS = 19
_MAX_READS_PER_PAGE = 20
"""Maximum number of reads for one page. Each read covers a range of numbers. If few events match, the client continues
with the next page."""


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    since: EventNumber | None = None
    """Number of the last event that the client has; 0 for all events. Without it and without `Last-Event-ID`, a stream
    starts with new events, and a page with the oldest event."""
    job: list[JobIdText] = []
    """Only events of these jobs, and of other jobs in their chains."""
    group: str | None = None
    """Only events of this group and of its members. The value is an id or a name."""
    kind: list[Annotated[str, Meta(extra_json_schema={"enum": list(KIND_PATTERNS)})]] = []
    """Only events of these kinds. `job.*` selects all kinds that begin with `job.`."""
    type: str | None = None
    """Only events of jobs of this type."""
    flow: str | None = None
    """Only events of jobs of this flow."""
    format: Literal["sse", "json"] | None = None
    """Format of the response: a stream or a page. It overrides the `Accept` header."""
    limit: PageSize = 100
    """Maximum number of events on a page."""
    wait: WaitSeconds = 0
    """Maximum seconds to wait for an event if the page would be empty."""


async def list_events(call: Invocation[EventsQuery, None]) -> JsonReply[EventPage] | Response:
    """Stream events as server-sent events. If `Accept` names only JSON, the response is a page of history.

    Each message of a stream has the number of the event as `id`, its kind as `event` and its JSON form as `data`. A
    client that reconnects with the last number in `Last-Event-ID` resumes without a gap or a repeat. A message `reset`
    means that events after the requested number have been removed. A message `begin` gives the number at which a stream
    begins if the request has none.
    """
    query, context = call.query, call.context
    event_filter = await context.read(lambda reader: _make_event_filter(reader, query))
    since = parse_last_event_id(call.request)
    since = query.since if since is None else since
    if _prefers_page(call):
        page = await _read_page_or_wait(context, event_filter, since or 0, query)
        return JsonReply(_skip_gap(page) if since is not None else msgspec.structs.replace(page, reset=None))
    return EventStream(_stream(context, event_filter, since), context.stream_limit)


def _make_event_filter(reader: Reader, query: EventsQuery) -> EventFilter:
    jobs = [
        job for n, text in enumerate(query.job) if (job := parse_field(f"job[{n}]", text, parse_job_id)) is not None
    ]
    return make_event_filter(
        reader, jobs=jobs, group=query.group, kinds=query.kind, job_type=query.type, flow=query.flow
    )


def parse_last_event_id(request: Request) -> int | None:
    """Return the number in `Last-Event-ID`. A client that has no number can send an empty header."""
    text = request.headers.get("last-event-id", "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_NUMBER_DIGITS:
        raise InvalidInput(f"invalid Last-Event-ID {text[:40]!r}; send the id of a message of this stream, a number")
    return int(text)


def _prefers_page(call: Invocation[EventsQuery, None]) -> bool:
    if call.query.format is not None:
        return call.query.format == "json"
    return call.names_media_type(JSON) and not call.names_media_type(MEDIA)


async def _stream(context: Context, event_filter: EventFilter, since: int | None) -> AsyncGenerator[bytes, None]:
    feed, listener, complete_from = context.feed, EventListener(event_filter, since or 0), 0
    with feed.subscribe(listener):
        if since is None:
            listener.mark_read(await context.read(lambda reader: reader.events.head_seq()))
            yield format_message(StreamStart(since=listener.position), event="begin", event_id=listener.position)
        while not feed.is_closed:
            if listener.is_live:
                messages = await listener.wait_for_messages()
            else:
                messages, complete_from = await _catch_up(feed, listener, complete_from)
            if messages:
                yield messages


async def _catch_up(feed: EventFeed, listener: EventListener, complete_from: int) -> tuple[bytes, int]:
    """Return the next messages and the new `complete_from`. The events are released before the client reads the
    messages."""
    since = listener.position
    page = await feed.catch_up(listener, complete_from=complete_from)
    complete_from = page.complete_from or complete_from
    messages = b"".join((_reset_message(page, since), *map(event_message, page.entries)))
    return messages + _gap_marker(page, since, complete_from), complete_from


def _reset_message(page: EventSlice, since: int) -> bytes:
    """Return the reset message of a page, if any. Its id keeps it from being repeated after a reconnect."""
    reset = _find_reset(page, since)
    return b"" if reset is None else format_message(reset, event="reset", event_id=reset.complete_from - 1)


def _gap_marker(page: EventSlice, since: int, complete_from: int) -> bytes:
    """Return a message with only a number if no event follows `complete_from` yet. No client shows it, but it keeps the
    reset from being repeated after a reconnect."""
    last = page.entries[-1].seq if page.entries else 0
    is_passed = since < complete_from <= page.position + 1
    return b"id: %d\n\n" % (complete_from - 1) if is_passed and last < complete_from else b""


def _find_reset(page: EventSlice, since: int) -> StreamReset | None:
    return None if page.complete_from is None else StreamReset(since=since, complete_from=page.complete_from)


def _skip_gap(page: EventPage) -> EventPage:
    """Move `next` behind the gap, so that the next page does not report the reset again."""
    if page.reset is None or page.next is None:
        return page
    return msgspec.structs.replace(page, next=max(page.next, page.reset.complete_from - 1))


async def _read_page_or_wait(context: Context, event_filter: EventFilter, since: int, query: EventsQuery) -> EventPage:
    page = await _read_page(context, event_filter, since, query.limit)
    if page.events or page.next is not None or not query.wait:
        return page
    with suppress(TimeoutError):
        async with asyncio.timeout(query.wait):
            await _wait_for_any(context.feed, EventListener(event_filter, page.position))
    later = await _read_page(context, event_filter, page.position, query.limit)
    return msgspec.structs.replace(later, reset=page.reset or later.reset)


async def _wait_for_any(feed: EventFeed, listener: EventListener) -> None:
    """Wait until an event matches, or the scheduler stops."""
    with feed.subscribe(listener):
        while not feed.is_closed:
            if listener.is_live and await listener.wait_for_messages() not in (b"", KEEPALIVE):
                return
            if not listener.is_live and (await feed.catch_up(listener)).entries:
                return


async def _read_page(context: Context, event_filter: EventFilter, since: int, limit: int) -> EventPage:
    """Read a page. Each read covers a limited range of numbers, so a page with few matches takes several reads, up to a
    maximum."""
    entries: list[EventEntry] = []
    reset, position, is_end = None, since, False
    for _ in range(_MAX_READS_PER_PAGE):
        page = await context.read(
            partial(read_events, event_filter=event_filter, since=position, limit=limit - len(entries))
        )
        reset = reset or _find_reset(page, since)
        entries += page.entries
        position, is_end = page.position, page.is_end
        if is_end or len(entries) >= limit:
            break
    return EventPage(
        events=[render_event(entry) for entry in entries],
        next=None if is_end else position,
        position=position,
        reset=reset,
    )


_EVENT_EXAMPLE = EventView(
    seq=1042,
    at=datetime(2026, 11, 16, 8, 21, 33, 763984, UTC),
    kind="job.completed",
    cause="finish",
    actor=None,
    job="job-21",
    run="run-21",
    reservation=None,
    group=None,
    data={"from": "RUNNING", "exit_code": 0},
)
_LAST_EVENT_ID = Header(
    "Number of the last event received. The stream resumes after this event.", "1042", "^[0-9]{1,19}$"
)

ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/events",
        list_events,
        media=MEDIA,
        errors=(404,),
        request_headers={"Last-Event-ID": _LAST_EVENT_ID},
        response_example=EventPage(events=[_EVENT_EXAMPLE], next=None, position=1042, reset=None),
    )
]
