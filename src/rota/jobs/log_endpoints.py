"""Job output over HTTP: ranges of bytes, and streams that follow the output until the job ends.

A stream has the bytes as they are, or server-sent events: text as it is written, and a message at the end. A file does
not report that it has grown, so a follower polls it: less and less often while it is quiet, and immediately when the
job changes. No file is ever read as a whole.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rota.db.session import Reader
from rota.errors import InvalidInput, StoreUnavailable, error_path
from rota.events.hub import wait_for
from rota.http.context import Context
from rota.http.endpoint import JSON, Endpoint, Header, Invocation, JsonReply, parse_field
from rota.http.problem import problem_response
from rota.http.sse import KEEPALIVE, KEEPALIVE_INTERVAL, MEDIA, EventStream, format_message
from rota.ids import JobId, format_job_id, parse_job_id, parse_run_id
from rota.jobs import queries
from rota.jobs.logs import (
    STREAMS,
    LogReader,
    TextChunk,
    TextLogReader,
    log_path_in,
    log_size,
    oversize_warnings,
    read_chunks,
)
from rota.jobs.result_schemas import JobLogs, JobWorkspace, LogChunk, LogEnd, LogFile
from rota.jobs.schemas import RunView
from rota.kernel.job import Job
from rota.kernel.status import TERMINAL
from rota.schema_types import RunIdText
from rota.worktrees.queries import show_workspace

_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.1, 1.0
"""Seconds between two reads of a file, which does not report that it has grown. They increase while it is quiet."""
_EVENT_ID = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})*")
_RAW_MEDIA = "application/octet-stream"
_MAX_OFFSET = 2**62
_MAX_NUMBER_DIGITS = 18
_STORE_RETRY_DELAY = 0.5
_RANGE_HEADER = re.compile(r"(?i:bytes)=([0-9]*)-([0-9]*)")
SignedOffset = Annotated[int, Meta(ge=-_MAX_OFFSET, le=_MAX_OFFSET)]
ByteLimit = Annotated[int, Meta(ge=0, le=_MAX_OFFSET)]


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: RunIdText | None = None
    """Run of the job, if not the current one. A rewound job has earlier runs."""
    follow: bool = False
    """Send both streams as server-sent events as they are written, unless `Accept` names only JSON."""


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: RunIdText | None = None
    """Run of the job, if not the current one. A rewound job has earlier runs."""
    offset: SignedOffset = 0
    """Offset of the first byte. A negative offset counts from the end."""
    limit: ByteLimit = _MAX_OFFSET
    """Maximum number of bytes. No effect with `follow`."""
    follow: bool = False
    """Continue until the job has ended."""


async def get_logs(call: Invocation[LogsQuery, None]) -> JsonReply[JobLogs] | Response:
    """Show how much a job has written to each stream, and its worktree and patches.

    With `follow`, both streams are sent as server-sent events as they are written. The `id` of a message has the
    offsets after it in stdout and stderr, such as `1024.80`.
    """
    context, job = call.context, call.path_parameter("job", parse_job_id)
    location = await _locate_log(context, job, call.query.run)
    start_offsets = _parse_last_offsets(call.request, STREAMS) or dict.fromkeys(STREAMS, 0)
    if call.query.follow and (call.names_media_type(MEDIA) or not call.names_media_type(JSON)):
        return EventStream(_follow_messages(context, job, location, start_offsets), context.stream_limit)
    stdout, stderr = (_describe_log(location, stream) for stream in STREAMS)
    limit = context.control.config.log.max_bytes
    warnings = [] if limit is None or not location.is_current else oversize_warnings(context.home.jobs, [job], limit)
    logs = JobLogs(job=format_job_id(job), stdout=stdout, stderr=stderr, warning="; ".join(warnings) or None)
    record = await context.read(partial(queries.find_job, job=job))
    if record.spec.workspace is not None and location.is_current:
        fields = await asyncio.to_thread(show_workspace, record, context.home.jobs)
        logs = msgspec.structs.replace(logs, workspace=msgspec.UNSET if fields is None else JobWorkspace(**fields))
    return JsonReply(logs)


def _describe_log(location: _LogLocation, stream: str) -> LogFile:
    path = log_path_in(location.directory, stream)
    return LogFile(path=str(path), size=0 if location.is_empty else log_size(path))


async def get_log(call: Invocation[LogQuery, None]) -> Response:
    """Read the stdout or stderr of a job. The bytes are those that the job wrote.

    `offset` and `limit`, or a `Range` header, select a part. With `follow`, bytes are sent as they are written. With
    `follow` and `Accept: text/event-stream`, they are sent as messages: the data is JSON with the text, and the `id` is
    the offset after it, so that `Last-Event-ID` resumes there. The last message is `end`.
    """
    context, query, request = call.context, call.query, call.request
    job, stream = call.path_parameter("job", parse_job_id), call.path_values["stream"]
    if stream not in STREAMS:
        raise InvalidInput(f"no such stream: {stream}; the streams are stdout and stderr").at_path(".stream")
    location = await _locate_log(context, job, query.run)
    path = log_path_in(location.directory, stream)
    size = 0 if location.is_empty else log_size(path)
    offset = max(0, size + query.offset) if query.offset < 0 else query.offset
    start_offsets = _parse_last_offsets(request, (stream,)) or {stream: offset}
    if query.follow and call.names_media_type(MEDIA):
        return EventStream(_follow_messages(context, job, location, start_offsets), context.stream_limit)
    if query.follow and not location.is_over:
        if request.method == "HEAD":
            return _stream_response(_read_in_thread(iter(())))
        context.stream_limit.refuse_too_many()
        return _stream_response(_follow_bytes(context, job, LogReader(path, offset)))
    byte_range = _parse_range(request.headers.get("range"), size)
    limit = size if query.follow else query.limit
    return (
        _sized_response(path, ByteRange(offset, max(0, min(limit, size - offset))))
        if byte_range is None
        else _range_response(path, byte_range, size)
    )


class _LogLocation(NamedTuple):
    """Location of the logs of a run."""

    directory: Path
    is_current: bool
    is_empty: bool
    """Whether the files there belong to an earlier run."""
    is_over: bool
    """Whether nothing more is written there."""
    past_run: RunView | None = None
    """Requested run, if the job was rewound after it."""


async def _locate_log(context: Context, job: JobId, run_id: str | None) -> _LogLocation:
    """Return the location of the logs of the job's current run, or of the run that is requested."""
    run = parse_field("run", run_id, parse_run_id)

    def locate(reader: Reader) -> _LogLocation:
        record = queries.find_job(reader, job)
        if run is not None:
            with error_path(".run"):
                queries.check_run_of_job(reader, job, run)
        job_directory = str(context.home.jobs / str(job))
        directory = queries.find_run_directory(record, run, job_directory)
        is_current = directory == job_directory
        past_run = None if run is None or is_current else queries.show_run(reader, run, context.view_context())
        is_over = not is_current or record.status in TERMINAL
        return _LogLocation(Path(directory), is_current, is_current and not record.has_own_logs, is_over, past_run)

    return await context.read(locate)


class ByteRange(NamedTuple):
    offset: int
    limit: int


def _parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the range that a `Range` header requests; None if there is none, or if it is ignored. A range outside the
    file is empty."""
    match = _RANGE_HEADER.fullmatch(header or "")
    if match is None or not any(match.groups()):
        return None  # RFC 9110: an invalid header is ignored; so are multiple ranges
    first, last = match.groups()
    if not first:
        length = min(_parse_number(last), size)
        return ByteRange(size - length, length)
    return ByteRange(
        _parse_number(first), max(0, min(size, _parse_number(last) + 1 if last else size) - _parse_number(first))
    )


def _parse_number(digits: str) -> int:
    """Parse a number of any length, since RFC 9110 sets no maximum. A number too long to be an offset becomes the
    maximum offset."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MAX_NUMBER_DIGITS else _MAX_OFFSET


def _range_response(path: Path, byte_range: ByteRange, size: int) -> Response:
    if byte_range.limit <= 0:
        response = problem_response("range", 416, f"the log has {size} bytes; request a range within it")
        response.headers["Content-Range"] = f"bytes */{size}"
        return response
    content_range = f"bytes {byte_range.offset}-{byte_range.offset + byte_range.limit - 1}/{size}"
    return _sized_response(path, byte_range, 206, {"Content-Range": content_range})


def _sized_response(
    path: Path, byte_range: ByteRange, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a response with exactly these bytes, even if the file grows in the meantime."""
    all_headers = {"Content-Length": str(byte_range.limit), **(headers or {})}
    return _stream_response(_read_in_thread(read_chunks(path, *byte_range)), status, all_headers)


def _stream_response(body: AsyncIterator[bytes], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Accept-Ranges": "bytes", **(headers or {})}
    return StreamingResponse(body, status, headers, media_type=_RAW_MEDIA)


async def _read_in_thread(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks, each read in a thread once the previous one is sent. A client that does not read costs one chunk of
    memory."""
    while chunk := await asyncio.to_thread(next, content, b""):
        yield chunk


async def _follow_bytes(context: Context, job: JobId, output: LogReader) -> AsyncIterator[bytes]:
    """Yield output until the job has ended. The status is read before the output, so that the last bytes are not
    missed. If the scheduler stops first, the stream breaks off, so that the client can tell this from the job's end."""
    try:
        with context.stream_limit.track(), context.hub.subscribe(job) as changed:
            backoff, is_over = PollBackoff(), False
            while not is_over:
                changed.clear()
                record = await _read_job_with_retry(context, job)
                is_over = record.status in TERMINAL
                while record.has_own_logs and (chunk := await asyncio.to_thread(output.read)):
                    yield chunk
                if not is_over:
                    await backoff.wait_for_change(changed, output.has_more)
    finally:
        output.close()


async def _read_job_with_retry(context: Context, job: JobId) -> Job:
    """Return the job. A store that is temporarily unavailable does not end the stream."""
    while True:
        try:
            return await context.read(partial(queries.find_job, job=job))
        except StoreUnavailable:
            await asyncio.sleep(_STORE_RETRY_DELAY)


def _parse_last_offsets(request: Request, streams: Sequence[str]) -> dict[str, int] | None:
    """Return the position of a client from its `Last-Event-ID`."""
    text = request.headers.get("last-event-id", "").strip()
    if not text:
        return None
    numbers = text.split(".")
    if not _EVENT_ID.fullmatch(text) or len(numbers) != len(streams):
        raise InvalidInput(f"invalid Last-Event-ID {text[:40]!r}; send the id of a message of this stream")
    return dict(zip(streams, map(int, numbers), strict=True))


async def _follow_messages(
    context: Context, job: JobId, location: _LogLocation, start_offsets: Mapping[str, int]
) -> AsyncGenerator[bytes, None]:
    """Stream output until the job has ended. The status is read before the output, so that the last bytes are not
    missed."""
    with ExitStack() as stack:
        progress = _LogProgress(
            {
                stream: stack.enter_context(
                    closing(TextLogReader(LogReader(log_path_in(location.directory, stream), offset)))
                )
                for stream, offset in start_offsets.items()
            }
        )
        changed = stack.enter_context(context.hub.subscribe(job))
        while not context.hub.is_closed:
            changed.clear()
            record = await context.read(partial(queries.find_job, job=job))
            is_over = record.status in TERMINAL or location.past_run is not None
            if record.has_own_logs or location.past_run is not None:
                async for message in progress.read_messages(is_over=is_over):
                    yield message
            if is_over:
                yield format_message(_make_end(record, location.past_run), event="end", event_id=progress.event_id)
                return
            while not await progress.wait_for_change(changed) and not changed.is_set():
                yield KEEPALIVE


def _make_end(job: Job, past_run: RunView | None) -> LogEnd:
    if past_run is not None and past_run.status is not None:
        return LogEnd(job=past_run.job, status=past_run.status, exit_code=past_run.exit_code)
    return LogEnd(job=format_job_id(job.id), status=job.status.public.value, exit_code=job.exit_code)


class _LogProgress:
    """Position in each stream, and its next messages."""

    def __init__(self, streams: Mapping[str, TextLogReader]) -> None:
        self._streams = streams
        self._backoff = PollBackoff()

    @property
    def event_id(self) -> str:
        return ".".join(str(text.end) for text in self._streams.values())

    async def read_messages(self, *, is_over: bool) -> AsyncGenerator[bytes, None]:
        for stream, output in self._streams.items():
            while chunk := await asyncio.to_thread(output.read):
                yield self._format_message(stream, chunk)
            if is_over and (rest := output.flush()) is not None:
                yield self._format_message(stream, rest)

    def _format_message(self, stream: str, chunk: TextChunk) -> bytes:
        return format_message(LogChunk(stream=stream, offset=chunk.begin, text=chunk.text), event_id=self.event_id)

    async def wait_for_change(self, changed: asyncio.Event) -> bool:
        """Return whether output was written, or the job changed, before a keep-alive is due."""
        return await self._backoff.wait_for_change(changed, self._has_more, max_seconds=KEEPALIVE_INTERVAL)

    def _has_more(self) -> bool:
        return any(text.has_more() for text in self._streams.values())


class PollBackoff:
    """Delay until the next read of a file that may have grown."""

    def __init__(self, max_delay: float = _MAX_POLL_INTERVAL) -> None:
        self._delay = _MIN_POLL_INTERVAL
        self._max_delay = max_delay

    async def wait_for_change(
        self, changed: asyncio.Event, has_more: Callable[[], bool], *, max_seconds: float = math.inf
    ) -> bool:
        """Return whether output was written, or the job changed, within `max_seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_seconds
        while (remaining := deadline - loop.time()) > 0:
            if await wait_for(changed, min(remaining, self._delay)) or has_more():
                self._delay = _MIN_POLL_INTERVAL
                return True
            self._delay = min(self._max_delay, 2 * self._delay)
        return False


_LAST_EVENT_ID = "`id` of the last message received. With `follow`, the stream resumes after this message."
_LOGS_EXAMPLE = JobLogs(
    job="job-21",
    stdout=LogFile(path="/srv/web/.rota/jobs/21/stdout.log", size=1024),
    stderr=LogFile(path="/srv/web/.rota/jobs/21/stderr.log", size=80),
    warning=None,
)


ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/jobs/{job}/logs",
        get_logs,
        media=MEDIA,
        response_example=_LOGS_EXAMPLE,
        request_headers={"Last-Event-ID": Header(_LAST_EVENT_ID, "1024.80", r"^[0-9]{1,18}\.[0-9]{1,18}$")},
    ),
    Endpoint(
        "GET",
        "/api/jobs/{job}/logs/{stream}",
        get_log,
        statuses=(200, 206),
        media=(_RAW_MEDIA, MEDIA),
        errors=(416,),
        response_example="thinking\ndone\n",
        request_headers={
            "Range": Header("Range of bytes (RFC 9110).", "bytes=0-1023", "^bytes=[0-9]{1,18}-[0-9]{0,18}$"),
            "Last-Event-ID": Header(_LAST_EVENT_ID, "1024", "^[0-9]{1,18}$"),
        },
        response_headers={
            "Accept-Ranges": "Always `bytes`.",
            "Content-Range": "Range of a partial response, such as `bytes 0-1023/4096`.",
        },
    ),
]
