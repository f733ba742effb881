"""Listening to what happens, without end: a stream that ends or breaks is asked for again, from the last message on.

Written once, in async form, as `carry` is.
"""

from __future__ import annotations

import time

from rota.client.message import Messages
from rota.client.problem import Broken, NoAnswer
from rota.errors import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from rota.client.ask import Ask
    from rota.client.carry import Carrier, Incoming
    from rota.client.message import Message

PAUSE = 1.0
"""Seconds until a stream is asked for again, as the scheduler says by `retry`."""
_LOOK_EVERY = 0.25
_AWAY = 30.0
"""Seconds for which one who listens waits for a scheduler that is being started again."""


async def listen(
    carrier: Carrier, build: Callable[[str | None], Ask], last: str | None = None, *, outlasts: bool = False
) -> AsyncGenerator[Message, None]:
    """`build` makes the request from the id of the last message. `outlasts`: it waits for a scheduler that was stopped
    to come back; one that crashed is always gone on with."""
    while True:
        incoming, messages = await _open(carrier, build(last), outlasts=outlasts), Messages()
        try:
            while not incoming.finished:
                data = await incoming.receive()
                carrier.answered = True
                for message in messages.feed(data):
                    last = message.id or last
                    yield message
        except (Broken, NoAnswer):
            if not carrier.answered:  # who never had an answer is told at once
                raise
        finally:
            incoming.close()
        await carrier.pause(PAUSE)


async def _open(carrier: Carrier, ask: Ask, *, outlasts: bool) -> Incoming:
    deadline = time.monotonic() + _AWAY
    while True:
        try:
            return await carrier.open(ask)
        except Unavailable:
            if not (carrier.answered and outlasts) or time.monotonic() >= deadline:
                raise
        await carrier.pause(_LOOK_EVERY)
