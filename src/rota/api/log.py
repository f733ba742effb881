"""A job's output over HTTP: ranged reads, and a stream that follows until the job ends.

A file cannot tell when it grows, so a follower looks at it on a short timer, and at once when the job
changes. Nothing is ever read whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rota.api.context import Context, context_of, wait_for
from rota.api.problem import number
from rota.core.status import TERMINAL
from rota.errors import InvalidInput
from rota.ids import JobId, parse_job
from rota.view import job as view

_CHUNK = 64 * 1024
_LOOK_EVERY = 0.1
_MOST = 2**62
_STREAMS = ("stdout", "stderr")


def _read(path: Path, offset: int, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def _range(path: Path, offset: int, limit: int) -> AsyncIterator[bytes]:
    while limit > 0:
        chunk = await asyncio.to_thread(_read, path, offset, min(_CHUNK, limit))
        if not chunk:
            return
        yield chunk
        offset += len(chunk)
        limit -= len(chunk)


async def _follow(context: Context, job: JobId, path: Path, offset: int) -> AsyncIterator[bytes]:
    """First whether it has ended, then what is there: in this order nothing written last is missed."""
    with context.hub.listening(job) as changed:
        has_ended = False
        while not has_ended:
            changed.clear()
            has_ended = (await context.look(partial(view.find, job=job))).status in TERMINAL
            async for chunk in _range(path, offset, _MOST):
                yield chunk
                offset += len(chunk)
            while not has_ended and not await wait_for(changed, _LOOK_EVERY) and _size(path) <= offset:
                pass


async def get_log(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    stream = request.path_params["stream"]
    if stream not in _STREAMS:
        raise InvalidInput(f"no such stream: {stream}; the streams are stdout and stderr")
    await context.look(partial(view.find, job=job))
    path = context.home.jobs / str(job) / f"{stream}.log"
    offset = int(number(request, "offset", 0, least=-_MOST, most=_MOST))
    if offset < 0:
        offset = max(0, _size(path) + offset)
    limit = int(number(request, "limit", _MOST, least=0, most=_MOST))
    is_followed = request.query_params.get("follow") in ("1", "true")
    body = _follow(context, job, path, offset) if is_followed else _range(path, offset, limit)
    return StreamingResponse(body, media_type="application/octet-stream")


ROUTES = [Route("/api/jobs/{job}/logs/{stream}", get_log, methods=["GET"])]
