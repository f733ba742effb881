"""Listening to what happens, without end: a stream that ends or breaks is asked for again, from the last message on.

Written once, in async form, as `carry` is.
"""

from __future__ import annotations

from rota.client.absence import Absence
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


async def listen(
    carrier: Carrier, build: Callable[[str | None], Ask], last: str | None = None
) -> AsyncGenerator[Message, None]:
    """`build` makes the request from the id of the last message."""
    absence = Absence(carrier)
    while True:
        incoming, messages = await _opened(carrier, build(last), absence), Messages()
        try:
            while not incoming.finished:
                data = await incoming.receive()
                carrier.answered = True
                absence.over()
                for message in messages.feed(data):
                    last = message.id or last
                    yield message
        except (Broken, NoAnswer):
            if not carrier.answered:  # who never had an answer is told at once
                raise
        except Unavailable as error:
            await absence.bear(error)
        finally:
            incoming.close()
        await carrier.pause(PAUSE)


async def _opened(carrier: Carrier, ask: Ask, absence: Absence) -> Incoming:
    while True:
        try:
            return await carrier.open(ask)
        except Unavailable as error:
            await absence.bear(error)
