"""A job's output over HTTP: ranged reads, and a stream that follows until the job ends.

A file cannot tell when it grows, so a follower looks at it on a short timer, and at once when the job
changes. Nothing is ever read whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rota.api.context import Context, context_of, wait_for
from rota.api.problem import answer, number, problem
from rota.core.status import TERMINAL
from rota.errors import InvalidInput
from rota.ids import JobId, parse_job, parse_run, show_job
from rota.store.session import Reader
from rota.view import job as view
from rota.view.log import STREAMS, Output, oversize, path_in, pieces, size_of
from rota.view.run import directory_of, refuse_foreign
from rota.view.workspace import workspace

_LOOK_EVERY = 0.1
_MOST = 2**62
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Part(NamedTuple):
    offset: int
    limit: int


async def _threaded(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece when the one before is on its way: a reader that does not read costs one piece."""
    while piece := await asyncio.to_thread(next, content, b""):
        yield piece


class Place(NamedTuple):
    directory: Path
    is_current: bool
    is_empty: bool
    """What is there is not the job's any more."""


async def _place(request: Request, context: Context, job: JobId) -> Place:
    """Where the logs are that are asked for: of the job as it is now, or of one of its runs."""
    named = request.query_params.get("run")
    run = None if named is None else parse_run(named)

    def look(reader: Reader) -> Place:
        found = view.find(reader, job)
        if run is not None:
            refuse_foreign(reader, job, run)
        own = str(context.home.jobs / str(job))
        directory = directory_of(found, run, own)
        is_current = directory == own
        return Place(Path(directory), is_current, is_empty=is_current and not found.has_own_logs)

    return await context.look(look)


async def _follow(context: Context, job: JobId, output: Output) -> AsyncIterator[bytes]:
    """First whether it has ended, then what is there: in this order nothing written last is missed."""
    try:
        with context.hub.listening(job) as changed:
            is_over = False
            while not is_over:
                changed.clear()
                found = await context.look(partial(view.find, job=job))
                is_over = found.status in TERMINAL
                while found.has_own_logs and (piece := await asyncio.to_thread(output.read)):
                    yield piece
                while not is_over and not await wait_for(changed, _LOOK_EVERY) and not output.has_more():
                    pass
    finally:
        output.close()


def _ranged(header: str | None, size: int) -> Part | None:
    """What a `Range` asks for; none where there is none to obey. An empty part cannot be given."""
    found = _RANGE.fullmatch(header or "")
    if found is None or not any(found.groups()):
        return None  # RFC 9110: what is not understood is passed over, and so are several ranges at once
    first, last = found.groups()
    if not first:
        length = min(int(last), size)
        return Part(size - length, length)
    return Part(int(first), max(0, min(size, int(last) + 1 if last else size) - int(first)))


def _part(path: Path, part: Part, size: int) -> Response:
    if part.limit <= 0:
        refused = problem("range", 416, f"the log has {size} bytes; ask for a part of these")
        refused.headers["Content-Range"] = f"bytes */{size}"
        return refused
    headers = {"Content-Range": f"bytes {part.offset}-{part.offset + part.limit - 1}/{size}"}
    return _stream(_threaded(pieces(path, *part)), 206, headers)


def _stream(body: AsyncIterator[bytes], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Accept-Ranges": "bytes", **(headers or {})}
    return StreamingResponse(body, status, headers, media_type="application/octet-stream")


async def get_log(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    stream = request.path_params["stream"]
    if stream not in STREAMS:
        raise InvalidInput(f"no such stream: {stream}; the streams are stdout and stderr")
    place = await _place(request, context, job)
    path = path_in(place.directory, stream)
    size = 0 if place.is_empty else size_of(path)
    offset = int(number(request, "offset", 0, least=-_MOST, most=_MOST))
    offset = max(0, size + offset) if offset < 0 else offset
    limit = int(number(request, "limit", _MOST, least=0, most=_MOST))
    if request.query_params.get("follow") in ("1", "true") and place.is_current:
        return _stream(_follow(context, job, Output(path, offset)))
    part = _ranged(request.headers.get("range"), size)
    limit = 0 if place.is_empty else limit
    return _stream(_threaded(pieces(path, offset, limit))) if part is None else _part(path, part, size)


async def get_logs(request: Request) -> Response:
    """How much there is of each stream, a word where that is more than it should be, and what else the job has left."""
    context, job = context_of(request), parse_job(request.path_params["job"])
    place = await _place(request, context, job)
    paths = {stream: path_in(place.directory, stream) for stream in STREAMS}
    most = context.control.config.log.max_bytes
    warnings = [] if most is None or not place.is_current else oversize(context.home.jobs, [job], most)
    said = {
        stream: {"path": str(path), "size": 0 if place.is_empty else size_of(path)} for stream, path in paths.items()
    }
    body = {"job": show_job(job), **said, "warning": "; ".join(warnings) or None}
    found = await context.look(partial(view.find, job=job))
    if found.spec.workspace is not None and place.is_current:
        body["workspace"] = await asyncio.to_thread(workspace, found, context.home.jobs)
    return answer(body)


ROUTES = [
    Route("/api/jobs/{job}/logs", get_logs, methods=["GET"]),
    Route("/api/jobs/{job}/logs/{stream}", get_log, methods=["GET"]),
]
