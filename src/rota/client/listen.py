"""Endless streams of server-sent events. After a broken connection the stream is requested again from the last message.

Written once, in async form, like `RetryingTransport`.
"""

from __future__ import annotations

from rota.client.outage import SchedulerOutage
from rota.client.problem import ConnectionBroken, ResponseTimeout
from rota.client.sse import SseDecoder
from rota.errors import ServiceUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from rota.client.requests import Request
    from rota.client.retrying import IncomingResponse, RetryingTransport
    from rota.client.sse import SseMessage

RECONNECT_DELAY = 1.0
"""Seconds before the stream is requested again, as the scheduler announces in `retry`."""


async def listen(
    transport: RetryingTransport, build: Callable[[str | None], Request], last: str | None = None
) -> AsyncGenerator[SseMessage, None]:
    """Yield messages without end. `build` makes the request from the id of the last message."""
    outage = SchedulerOutage(transport)
    while True:
        incoming, messages = await _open_with_retries(transport, build(last), outage), SseDecoder()
        try:
            while not incoming.is_finished:
                data = await incoming.receive()
                transport.has_answered = True
                outage.end()
                for message in messages.feed(data):
                    last = message.id or last
                    yield message
        except (ConnectionBroken, ResponseTimeout):
            if not transport.has_answered:  # without an earlier response the failure is reported immediately
                raise
        except ServiceUnavailable as error:
            await outage.wait_or_raise(error)
        finally:
            incoming.close()
        await transport.sleep(RECONNECT_DELAY)


async def _open_with_retries(
    transport: RetryingTransport, request: Request, outage: SchedulerOutage
) -> IncomingResponse:
    while True:
        try:
            return await transport.open_stream(request)
        except ServiceUnavailable as error:
            await outage.wait_or_raise(error)
