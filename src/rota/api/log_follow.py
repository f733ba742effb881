"""A job's output as server-sent events: text as it is written, and a word at the end."""

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

from rota.api.context import Context, wait_for
from rota.api.sse import BEAT, BEAT_EVERY, message
from rota.core.job import Job
from rota.core.status import TERMINAL
from rota.errors import InvalidInput
from rota.ids import JobId, show_job
from rota.view.job import find
from rota.view.log import Output, Text, TextOutput, path_in
from rota.wire.job import RunForm
from rota.wire.log import EndForm, PieceForm

_LOOK_OFTEN, _LOOK_SELDOM = 0.1, 1.0
"""Seconds between looks at a file: it cannot tell that it grew. The longer it is quiet, the more."""
_OFFSETS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})*")


class Place(NamedTuple):
    directory: Path
    is_current: bool
    is_empty: bool
    """What is there is not the job's any more."""
    is_over: bool
    """Nothing more is written there."""
    past: RunForm | None = None
    """The run that is asked for, where the job has been rewound since."""


class Pace:
    """How long to wait until the next look at what may have grown."""

    def __init__(self, seldom: float = _LOOK_SELDOM) -> None:
        self._pause = _LOOK_OFTEN
        self._seldom = seldom

    async def is_worth_a_look(
        self, changed: asyncio.Event, has_more: Callable[[], bool], *, within: float = math.inf
    ) -> bool:
        """Whether something was written, or the job changed, within so many seconds."""
        loop = asyncio.get_running_loop()
        due = loop.time() + within
        while (left := due - loop.time()) > 0:
            if await wait_for(changed, min(left, self._pause)) or has_more():
                self._pause = _LOOK_OFTEN
                return True
            self._pause = min(self._seldom, 2 * self._pause)
        return False


def last_offsets(request: Request, streams: Sequence[str]) -> dict[str, int] | None:
    """Where the client was, by its `Last-Event-ID`."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return None
    numbers = given.split(".")
    if not _OFFSETS.fullmatch(given) or len(numbers) != len(streams):
        raise InvalidInput(f"Last-Event-ID is the id of a message of this stream, not {given[:40]!r}")
    return dict(zip(streams, map(int, numbers), strict=True))


async def follow(
    context: Context, job: JobId, place: Place, begins: Mapping[str, int]
) -> AsyncGenerator[bytes, None]:  # fmt: skip
    """First whether it has ended, then what is there: in this order nothing written last is missed."""
    with ExitStack() as opened:
        told = _Told(
            {
                stream: opened.enter_context(closing(TextOutput(Output(path_in(place.directory, stream), offset))))
                for stream, offset in begins.items()
            }
        )
        changed = opened.enter_context(context.hub.listening(job))
        while not context.hub.is_closed:
            changed.clear()
            found = await context.look(partial(find, job=job))
            is_over = found.status in TERMINAL or place.past is not None
            if found.has_own_logs or place.past is not None:
                async for each in told.news(is_over=is_over):
                    yield each
            if is_over:
                yield message(_end(found, place.past), event="end", number=told.number)
                return
            while not await told.is_worth_a_look(changed) and not changed.is_set():
                yield BEAT


def _end(job: Job, past: RunForm | None) -> EndForm:
    if past is not None and past.status is not None:
        return EndForm(job=past.job, status=past.status, exit_code=past.exit_code)
    return EndForm(job=show_job(job.id), status=job.status.shown.value, exit_code=job.exit_code)


class _Told:
    """What has been told of each stream."""

    def __init__(self, streams: Mapping[str, TextOutput]) -> None:
        self._streams = streams
        self._pace = Pace()

    @property
    def number(self) -> str:
        return ".".join(str(text.end) for text in self._streams.values())

    async def news(self, *, is_over: bool) -> AsyncGenerator[bytes, None]:
        for stream, output in self._streams.items():
            while piece := await asyncio.to_thread(output.read):
                yield self._message(stream, piece)
            if is_over and (rest := output.rest()) is not None:
                yield self._message(stream, rest)

    def _message(self, stream: str, piece: Text) -> bytes:
        return message(PieceForm(stream=stream, offset=piece.begin, text=piece.text), number=self.number)

    async def is_worth_a_look(self, changed: asyncio.Event) -> bool:
        """Whether something was written, or the job changed, before a heartbeat is due."""
        return await self._pace.is_worth_a_look(changed, self._has_more, within=BEAT_EVERY)

    def _has_more(self) -> bool:
        return any(text.has_more() for text in self._streams.values())
