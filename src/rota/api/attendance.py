"""A slot as a stream, on which it hangs: every change of where it stands, and what it writes.

    {"id": "slot-3", "wait": 300.0, "warning": null}     first: seconds that it may wait for its turn
    {"slot": {"id": "slot-3", "status": "WAITING", "wait": {"detail": "waiting on pool global (1/1)", …}, …}}
    {"slot": {… "status": "RUNNING" …}}
    {"stream": "stdout", "size": 6}               this line, and then so many bytes as they were written
    hello
    {"slot": {… "status": "COMPLETED", "exit_code": 0 …}}     last: it has ended, and all it wrote has been sent

A stream that ends before that was broken off: who comes back with the offsets he has goes on without a gap.
Where it stands is told by its events. A file cannot tell when it grows, so while a command runs its output is looked at
as that of a job is, the more seldom the longer it is quiet; a slot without a command has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.api.context import Context, wait_for
from rota.api.log_follow import Pace
from rota.api.presence import Hold
from rota.api.sse import Streams
from rota.errors import StorageFull, StoreError
from rota.ids import SlotId, show_slot
from rota.view import slot as view
from rota.view.log import STREAMS, Output, path_in
from rota.wire.slot import SlotForm

MEDIA = "application/vnd.rota.stream"
_AT_A_TIME = 16
"""Pieces of one stream before the other has its turn, and before it is looked whether it has ended."""
_OFTEN_ENOUGH = 0.25
"""What it waits for may change with anything that happens; more often than this nobody need be told."""
_LOOK_AT_OUTPUT = 0.2
"""Seconds at most between two looks at what it writes: somebody sits before it."""
_LOOK_ANYWAY = 2.0
"""Not all that holds it can tell: a file, the configuration."""


_LOOK_AGAIN = 0.5


class _Attended(StreamingResponse):
    """While it lasts somebody is there."""

    def __init__(
        self, content: AsyncIterator[bytes], attending: AbstractContextManager[None], streams: Streams
    ) -> None:
        super().__init__(content, media_type=MEDIA)
        self._attending = attending
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.another(), self._attending:
            await super().__call__(scope, receive, send)


def attended(
    context: Context, slot: SlotId, offsets: Mapping[str, int] | None = None, *, warning: str | None = None
) -> StreamingResponse:
    """The slot hangs on it: when it closes before the end, nobody wants the slot any more."""
    hold = Hold()
    frames = _frames(context, slot, _outputs(context, slot, offsets), warning, hold)
    return _Attended(frames, context.presence.attending(slot, hold), context.streams)


def watched(context: Context, slot: SlotId, offsets: Mapping[str, int], *, keeps: bool) -> StreamingResponse:
    """The same for who looks on; `keeps` if it is the client of a slot that never hung on a connection."""
    frames = _frames(context, slot, _outputs(context, slot, offsets), None, Hold())
    return _Attended(frames, context.presence.polling(slot) if keeps else nullcontext(), context.streams)


def _outputs(context: Context, slot: SlotId, offsets: Mapping[str, int] | None) -> Mapping[str, Output]:
    directory = context.home.slots / str(slot)
    given = offsets or dict.fromkeys(STREAMS, 0)
    return {name: Output(path_in(directory, name), offset) for name, offset in given.items()}


async def look(context: Context, slot: SlotId) -> SlotForm:
    return await context.look(partial(view.show, slot=slot, sight=context.sight()))


async def look_patiently(context: Context, slot: SlotId) -> SlotForm:
    """For who is in the middle of something: a store that cannot be read for a while is nobody's end."""
    while True:
        try:
            return await look(context, slot)
        except (StorageFull, StoreError):
            if context.hub.is_closed:
                raise
            await asyncio.sleep(_LOOK_AGAIN)


async def _frames(
    context: Context, slot: SlotId, outputs: Mapping[str, Output], warning: str | None, hold: Hold
) -> AsyncIterator[bytes]:
    yield _line(id=show_slot(slot), wait=context.presence.time_left(slot), warning=warning)
    said: SlotForm | None = None
    pace = Pace(_LOOK_AT_OUTPUT)
    try:
        with context.hub.listening(("slot", slot)) as changed, context.hub.listening(None) as anything:
            while True:
                is_last = context.hub.is_closed  # what ended with the scheduler's own end is still told
                changed.clear()
                anything.clear()
                # First whether it has ended, then what is there: in this order nothing written last is missed.
                form = await look_patiently(context, slot)
                hold.is_over = form.finished_at is not None
                if form != said and not hold.is_over:
                    said = form
                    yield _line(slot=form)
                async for frame in _written(outputs, None if hold.is_over else _AT_A_TIME):
                    yield frame
                if hold.is_over:
                    yield _line(slot=form)
                if hold.is_over or is_last:
                    return
                if not form.ready:
                    await _news(changed, anything)
                elif form.command is None:
                    await changed.wait()
                else:
                    await pace.is_worth_a_look(changed, lambda: any(each.has_more() for each in outputs.values()))
    finally:
        for output in outputs.values():
            output.close()


async def _written(outputs: Mapping[str, Output], most: int | None) -> AsyncIterator[bytes]:
    for name, output in outputs.items():
        count = 0
        while count != most and (piece := await asyncio.to_thread(output.read)):
            count += 1
            yield _line(stream=name, size=len(piece)) + piece


async def _news(changed: asyncio.Event, anything: asyncio.Event) -> None:
    """Of itself at once, of everything else in a moment."""
    waiting = [asyncio.ensure_future(each.wait()) for each in (changed, anything)]
    try:
        await asyncio.wait(waiting, timeout=_LOOK_ANYWAY, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    if anything.is_set():
        await wait_for(changed, _OFTEN_ENOUGH)


def _line(**said: Any) -> bytes:
    return msgspec.json.encode(said) + b"\n"
