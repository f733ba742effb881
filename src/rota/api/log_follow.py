"""Job output as server-sent events: text as it is written, and a message at the end."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request

from rota.api.context import Context
from rota.api.hub import wait_for
from rota.api.sse import KEEPALIVE, KEEPALIVE_INTERVAL, format_message
from rota.core.job import Job
from rota.core.status import TERMINAL
from rota.errors import InvalidInput
from rota.ids import JobId, format_job_id
from rota.view.job import find_job
from rota.view.log import LogReader, TextChunk, TextLogReader, log_path_in
from rota.wire.job import RunView
from rota.wire.log import LogChunk, LogEnd

_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.1, 1.0
"""Seconds between two reads of a file, which does not report that it has grown. They increase while it is quiet."""
_OFFSETS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})*")


class LogLocation(NamedTuple):
    """Location of the logs of a run."""

    directory: Path
    is_current: bool
    is_empty: bool
    """Whether the files there belong to an earlier run."""
    is_over: bool
    """Whether nothing more is written there."""
    past_run: RunView | None = None
    """Requested run, if the job was rewound after it."""


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


def parse_last_offsets(request: Request, streams: Sequence[str]) -> dict[str, int] | None:
    """Return the position of a client from its `Last-Event-ID`."""
    text = request.headers.get("last-event-id", "").strip()
    if not text:
        return None
    numbers = text.split(".")
    if not _OFFSETS.fullmatch(text) or len(numbers) != len(streams):
        raise InvalidInput(f"invalid Last-Event-ID {text[:40]!r}; send the id of a message of this stream")
    return dict(zip(streams, map(int, numbers), strict=True))


async def follow_log(
    context: Context, job: JobId, location: LogLocation, start_offsets: Mapping[str, int]
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
            record = await context.read(partial(find_job, job=job))
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
