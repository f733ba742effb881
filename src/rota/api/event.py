"""What happens, over HTTP: as a stream of server-sent events, or a page of history at a time."""

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

from rota.api.accept import JSON, best_of
from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Header, Reply
from rota.api.feed import Feed, Listener, event_message
from rota.api.page import PageSize, Seconds, parsed
from rota.api.sse import BEAT, MEDIA, EventStream, message
from rota.core.event import NAMED, Entry, Wanted
from rota.errors import InvalidInput
from rota.ids import parse_job
from rota.store.session import Reader
from rota.view.event import Piece, piece, wanted_of
from rota.wire.event import BeginForm, EventForm, EventsForm, ResetForm, event_form
from rota.wire.text import JobText

Number = Annotated[int, Meta(ge=0, le=2**62)]
_LONGEST_NUMBER = 19
_MOST_READS = 20
"""Of one page. Each goes through so many numbers; where they find little, whoever asks goes on himself."""


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    since: Number | None = None
    """Only what happened after the event of this number; 0 for all there is. A stream begins with what happens from now
    on where neither this nor `Last-Event-ID` is given, a page with the oldest event."""
    job: list[JobText] = []
    """Only events of these jobs, and of others in their chains."""
    group: str | None = None
    """Only events of this group and of its members, by id or name."""
    kind: list[Annotated[str, Meta(extra_json_schema={"enum": list(NAMED)})]] = []
    """Only events of these kinds; `job.*` stands for all that begin like that."""
    type: str | None = None
    """Only events of jobs of this type."""
    flow: str | None = None
    """Only events of jobs of this flow."""
    format: Literal["sse", "json"] | None = None
    """A stream or a page, whatever the `Accept` header says."""
    limit: PageSize = 100
    """Of a page: how many at most."""
    wait: Seconds = 0
    """Of a page: where nothing has happened yet, answer when something does or when so many seconds are over."""


async def list_events(call: Call[EventsQuery, None]) -> Reply[EventsForm] | Response:
    """Tell what happens. As a stream of server-sent events, or as a page of history where `Accept` asks for JSON.

    In a stream each message has the event's number as `id`, its kind as `event` and its JSON form as `data`. Whoever
    comes back with the last number in `Last-Event-ID` goes on where he was, without gap or repeat. A message `reset`
    says that events after the number asked for are not there any more; a message `begin` says where a stream begins
    that was asked for without a number.
    """
    query, context = call.query, call.context
    wanted = await context.look(lambda reader: _wanted(reader, query))
    since = last_seen(call.request)
    since = query.since if since is None else since
    if _is_page(call.request, query.format):
        form = await _page(context, wanted, since or 0, query)
        return Reply(_behind_gap(form) if since is not None else msgspec.structs.replace(form, reset=None))
    return EventStream(_stream(context, wanted, since), context.streams)


def _wanted(reader: Reader, query: EventsQuery) -> Wanted:
    jobs = [one for n, job in enumerate(query.job) if (one := parsed(f"job[{n}]", job, parse_job)) is not None]
    return wanted_of(reader, jobs=jobs, group=query.group, kinds=query.kind, job_type=query.type, flow=query.flow)


def last_seen(request: Request) -> int | None:
    """The number in `Last-Event-ID`; a client that has none yet may send it empty."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return None
    if not given.isascii() or not given.isdecimal() or len(given) > _LONGEST_NUMBER:
        raise InvalidInput(f"Last-Event-ID is the id of a message of this stream, a number, not {given[:40]!r}")
    return int(given)


def _is_page(request: Request, asked: str | None) -> bool:
    if asked is not None:
        return asked == "json"
    return best_of(request, (MEDIA, JSON)) == JSON


async def _stream(context: Context, wanted: Wanted, since: int | None) -> AsyncGenerator[bytes, None]:
    feed, listener, complete_from = context.feed, Listener(wanted, since or 0), 0
    with feed.listening(listener):
        if since is None:
            listener.has_read(await context.look(lambda reader: reader.head()))
            yield message(BeginForm(since=listener.position), event="begin", number=listener.position)
        while not feed.is_closed:
            if listener.is_live:
                told = await listener.take()
            else:
                asked = listener.position
                found = await feed.catch_up(listener, complete_from=complete_from)
                complete_from = found.complete_from or complete_from
                told = b"".join((_told_reset(found, asked), *map(event_message, found.entries)))
                told += _passed(found, asked, complete_from)
            if told:
                yield told


def _told_reset(found: Piece, since: int) -> bytes:
    """Whoever comes back with its number has been told, and is not told again."""
    form = _reset(found, since)
    return b"" if form is None else message(form, event="reset", number=form.complete_from - 1)


def _passed(found: Piece, since: int, complete_from: int) -> bytes:
    """Behind the last event from before `complete_from`, where no later one follows: a number alone, which no client
    shows, so that whoever comes back is not told again either."""
    last = found.entries[-1].seq if found.entries else 0
    is_passed = since < complete_from <= found.position + 1
    return b"id: %d\n\n" % (complete_from - 1) if is_passed and last < complete_from else b""


def _reset(found: Piece, since: int) -> ResetForm | None:
    return None if found.complete_from is None else ResetForm(since=since, complete_from=found.complete_from)


def _behind_gap(form: EventsForm) -> EventsForm:
    """Whoever goes on with `next` has been told, and is not told again."""
    if form.reset is None or form.next is None:
        return form
    return msgspec.structs.replace(form, next=max(form.next, form.reset.complete_from - 1))


async def _page(context: Context, wanted: Wanted, since: int, query: EventsQuery) -> EventsForm:
    form = await _read_page(context, wanted, since, query.limit)
    if form.events or form.next is not None or not query.wait:
        return form
    with suppress(TimeoutError):
        async with asyncio.timeout(query.wait):
            await _until_any(context.feed, Listener(wanted, form.position))
    later = await _read_page(context, wanted, form.position, query.limit)
    return msgspec.structs.replace(later, reset=form.reset or later.reset)


async def _until_any(feed: Feed, listener: Listener) -> None:
    """Until there is something for it, or the scheduler ends."""
    with feed.listening(listener):
        while not feed.is_closed:
            if listener.is_live and await listener.take() not in (b"", BEAT):
                return
            if not listener.is_live and (await feed.catch_up(listener)).entries:
                return


async def _read_page(context: Context, wanted: Wanted, since: int, limit: int) -> EventsForm:
    """One read goes through so many numbers; where it finds little there is another, up to a bound."""
    entries: list[Entry] = []
    reset, position, is_end = None, since, False
    for _ in range(_MOST_READS):
        found = await context.look(partial(piece, wanted=wanted, since=position, limit=limit - len(entries)))
        reset = reset or _reset(found, since)
        entries += found.entries
        position, is_end = found.position, found.is_end
        if is_end or len(entries) >= limit:
            break
    return EventsForm(
        events=[event_form(entry) for entry in entries],
        next=None if is_end else position,
        position=position,
        reset=reset,
    )


_ENDED = EventForm(
    seq=1042, at=datetime(2026, 11, 16, 8, 21, 33, 763984, UTC), kind="job.completed", cause="finish", actor=None,
    job="job-21", run="run-21", slot=None, group=None, data={"from": "RUNNING", "exit_code": 0},
)  # fmt: skip
_HEARD = Header("The number of the last event that was seen: the stream goes on behind it.", "1042", "^[0-9]{1,19}$")

ENDPOINTS = [
    Endpoint(
        "GET", "/api/events", list_events, media=MEDIA, refuses=(404,), hears={"Last-Event-ID": _HEARD},
        shows=EventsForm(events=[_ENDED], next=None, position=1042, reset=None),
    ),
]  # fmt: skip
