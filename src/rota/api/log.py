"""A job's output over HTTP: ranged reads, and a stream that follows until the job ends.

A file cannot tell when it grows, so a follower looks at it on a timer, the more seldom the longer it is quiet, and at
once when the job changes. Nothing is ever read whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from rota.api.accept import JSON, best_of
from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Header, Reply
from rota.api.log_follow import Pace, Place, follow, last_offsets
from rota.api.page import parsed
from rota.api.problem import problem
from rota.api.sse import MEDIA, EventStream
from rota.core.job import Job
from rota.core.status import TERMINAL
from rota.errors import InvalidInput, StoreAway, within
from rota.ids import JobId, parse_job, parse_run, show_job
from rota.store.session import Reader
from rota.view import job as view
from rota.view import run as run_view
from rota.view.log import STREAMS, Output, oversize, path_in, pieces, size_of
from rota.view.workspace import workspace
from rota.wire.log import LogForm, LogsForm, WorkspaceForm
from rota.wire.text import RunText

_BYTES = "application/octet-stream"
_MOST = 2**62
_LONGEST_NUMBER = 18
_LOOK_AGAIN = 0.5
_RANGE = re.compile(r"(?i:bytes)=([0-9]*)-([0-9]*)")
Offset = Annotated[int, Meta(ge=-_MOST, le=_MOST)]
Limit = Annotated[int, Meta(ge=0, le=_MOST)]


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: RunText | None = None
    """Of this run of the job: one that was rewound has earlier ones."""
    follow: bool = False
    """Tell both streams as they are written, as server-sent events; unless the request prefers JSON."""


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: RunText | None = None
    """Of this run of the job: one that was rewound has earlier ones."""
    offset: Offset = 0
    """From this byte on; negative counts from the end."""
    limit: Limit = _MOST
    """So many bytes at most; without effect on what is followed."""
    follow: bool = False
    """Go on until the job has ended."""


class Part(NamedTuple):
    offset: int
    limit: int


async def _threaded(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece when the one before is on its way: a reader that does not read costs one piece."""
    while piece := await asyncio.to_thread(next, content, b""):
        yield piece


async def _place(context: Context, job: JobId, named: str | None) -> Place:
    """Where the logs are that are asked for: of the job as it is now, or of one of its runs."""
    run = parsed("run", named, parse_run)

    def look(reader: Reader) -> Place:
        found = view.find(reader, job)
        if run is not None:
            with within(".run"):
                run_view.refuse_foreign(reader, job, run)
        own = str(context.home.jobs / str(job))
        directory = run_view.directory_of(found, run, own)
        is_current = directory == own
        past = None if run is None or is_current else run_view.show(reader, run, context.sight())
        is_over = not is_current or found.status in TERMINAL
        return Place(Path(directory), is_current, is_current and not found.has_own_logs, is_over, past)

    return await context.look(look)


async def _follow(context: Context, job: JobId, output: Output) -> AsyncIterator[bytes]:
    """First whether it has ended, then what is there: in this order nothing written last is missed. Where the scheduler
    ends first this breaks off, so that the client can tell it from the job's end."""
    try:
        with context.streams.another(), context.hub.listening(job) as changed:
            pace, is_over = Pace(), False
            while not is_over:
                changed.clear()
                found = await _found(context, job)
                is_over = found.status in TERMINAL
                while found.has_own_logs and (piece := await asyncio.to_thread(output.read)):
                    yield piece
                if not is_over:
                    await pace.is_worth_a_look(changed, output.has_more)
    finally:
        output.close()


async def _found(context: Context, job: JobId) -> Job:
    """A store that is away for a while is no end of the log."""
    while True:
        try:
            return await context.look(partial(view.find, job=job))
        except StoreAway:
            await asyncio.sleep(_LOOK_AGAIN)


def _ranged(header: str | None, size: int) -> Part | None:
    """What a `Range` asks for; none where there is none to obey. An empty part cannot be given."""
    found = _RANGE.fullmatch(header or "")
    if found is None or not any(found.groups()):
        return None  # RFC 9110: what is not understood is passed over, and so are several ranges at once
    first, last = found.groups()
    if not first:
        length = min(_number(last), size)
        return Part(size - length, length)
    return Part(_number(first), max(0, min(size, _number(last) + 1 if last else size) - _number(first)))


def _number(digits: str) -> int:
    """RFC 9110: there is no largest one. No log has so many bytes as one that is too long to be read as a number."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _LONGEST_NUMBER else _MOST


def _part(path: Path, part: Part, size: int) -> Response:
    if part.limit <= 0:
        refused = problem("range", 416, f"the log has {size} bytes; ask for a part of these")
        refused.headers["Content-Range"] = f"bytes */{size}"
        return refused
    where = f"bytes {part.offset}-{part.offset + part.limit - 1}/{size}"
    return _measured(path, part, 206, {"Content-Range": where})


def _measured(path: Path, part: Part, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """So much and no more, also where the file grows meanwhile."""
    known = {"Content-Length": str(part.limit), **(headers or {})}
    return _stream(_threaded(pieces(path, *part)), status, known)


def _stream(body: AsyncIterator[bytes], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Accept-Ranges": "bytes", **(headers or {})}
    return StreamingResponse(body, status, headers, media_type=_BYTES)


async def get_log(call: Call[LogQuery, None]) -> Response:
    """Read what a job wrote to `stdout` or `stderr`. Byte for byte: all of it, a part, or on until the job ends.

    A part is asked for by `offset` and `limit`, or by `Range`. With `follow` the bytes are sent as they are written;
    with `follow` and `Accept: text/event-stream` they are sent as messages, each with its text in JSON and the offset
    behind it as `id`, so that `Last-Event-ID` goes on from there. The last message is `end`.
    """
    context, query, request = call.context, call.query, call.request
    job, stream = call.place("job", parse_job), call.path["stream"]
    if stream not in STREAMS:
        raise InvalidInput(f"no such stream: {stream}; the streams are stdout and stderr").under(".stream")
    place = await _place(context, job, query.run)
    path = path_in(place.directory, stream)
    size = 0 if place.is_empty else size_of(path)
    offset = max(0, size + query.offset) if query.offset < 0 else query.offset
    begins = last_offsets(request, (stream,)) or {stream: offset}
    if query.follow and best_of(request, (_BYTES, MEDIA)) == MEDIA:
        return EventStream(follow(context, job, place, begins), context.streams)
    if query.follow and not place.is_over:
        if request.method == "HEAD":
            return _stream(_threaded(iter(())))
        context.streams.refuse_too_many()
        return _stream(_follow(context, job, Output(path, offset)))
    part = _ranged(request.headers.get("range"), size)
    limit = size if query.follow else query.limit
    return _measured(path, Part(offset, max(0, min(limit, size - offset)))) if part is None else _part(path, part, size)


async def get_logs(call: Call[LogsQuery, None]) -> Reply[LogsForm] | Response:
    """Say how much a job has written to each stream, and what else it has left.

    With `follow`, tell both streams as they are written, as server-sent events; the `id` of a message is the offset
    behind it in stdout and that in stderr, as `1024.80`.
    """
    context, job = call.context, call.place("job", parse_job)
    place = await _place(context, job, call.query.run)
    begins = last_offsets(call.request, STREAMS) or dict.fromkeys(STREAMS, 0)
    if call.query.follow and best_of(call.request, (MEDIA, JSON)) == MEDIA:
        return EventStream(follow(context, job, place, begins), context.streams)
    stdout, stderr = (_log(place, stream) for stream in STREAMS)
    most = context.control.config.log.max_bytes
    warnings = [] if most is None or not place.is_current else oversize(context.home.jobs, [job], most)
    form = LogsForm(job=show_job(job), stdout=stdout, stderr=stderr, warning="; ".join(warnings) or None)
    found = await context.look(partial(view.find, job=job))
    if found.spec.workspace is not None and place.is_current:
        left = await asyncio.to_thread(workspace, found, context.home.jobs)
        form = msgspec.structs.replace(form, workspace=msgspec.UNSET if left is None else WorkspaceForm(**left))
    return Reply(form)


def _log(place: Place, stream: str) -> LogForm:
    path = path_in(place.directory, stream)
    return LogForm(path=str(path), size=0 if place.is_empty else size_of(path))


_HEARD = "The `id` of the last message that was seen: with `follow`, the stream goes on behind it."
_LOGS = LogsForm(
    job="job-21",
    stdout=LogForm(path="/srv/web/.rota/jobs/21/stdout.log", size=1024),
    stderr=LogForm(path="/srv/web/.rota/jobs/21/stderr.log", size=80),
    warning=None,
)

ENDPOINTS = [
    Endpoint(
        "GET", "/api/jobs/{job}/logs", get_logs, media=MEDIA, shows=_LOGS,
        hears={"Last-Event-ID": Header(_HEARD, "1024.80", r"^[0-9]{1,18}\.[0-9]{1,18}$")},
    ),
    Endpoint(
        "GET", "/api/jobs/{job}/logs/{stream}", get_log, statuses=(200, 206), media=(_BYTES, MEDIA),
        refuses=(416,), shows="thinking\ndone\n",
        hears={
            "Range": Header("A part of it, by RFC 9110.", "bytes=0-1023", "^bytes=[0-9]{1,18}-[0-9]{0,18}$"),
            "Last-Event-ID": Header(_HEARD, "1024", "^[0-9]{1,18}$"),
        },
        tells={"Accept-Ranges": "`bytes`.", "Content-Range": "Of a part, which one: `bytes 0-1023/4096`."},
    ),
]  # fmt: skip
