"""HTTP as it comes over a connection, with limits that hold before the application sees anything.

    the request line and headers    64 KiB together, 16 KiB of them for the target
    the body, as it is sent         that of `limit`, and some for the signs between its pieces
    what cannot be read as HTTP     a problem, and the end

Over TCP, where anybody may connect, a request has to come in time as well:

    connected, or begun             10 s until its headers are there
    its body                        1 KiB a second, looked at every 30 s

A refusal goes out before all that was sent is read. To close then would make the kernel throw away the answer with the
rest, so the connection is only closed for writing, and what still comes is dropped for a moment. That is done as well
when the application has answered without reading a large body.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rota.api.limit import MOST_BODY
from rota.api.problem import problem
from rota.errors import BadRequest, Busy, HeadersTooLarge, RotaError, TargetTooLong, TooLarge, TooSlow

Part = Literal["none", "head", "body"]
"""Of a request: what comes next."""

MOST_HEAD = 64 << 10
MOST_TARGET = 16 << 10
_SIGNS = 16 << 20
"""Bytes that the pieces of a body may need beside what they bring."""
_SMALL = 64 << 10
"""Bytes of a body that are read to its end though nobody wants it, so that the connection can be used again."""
_LINGER = 2.0
"""Seconds in which a client that is still sending may read why it was refused."""

HEAD_PATIENCE = 10.0
BODY_PATIENCE = 30.0
LEAST_BODY = 30 << 10
"""Bytes of a body in that time."""


class Protocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._part: Part = "none"
        self._has_begun = False
        self._has_ended = False
        """Whether a request has begun, or ended, in what is being read."""
        self._head = 0
        self._body = 0
        self._length: int | None = None
        self._refusal: RotaError | None = None
        self._is_lingering = False
        self._timer: asyncio.TimerHandle | None = None
        self._answered: RequestResponseCycle | None = None
        """The request that is with the application; `cycle` is the last that came, and may stand in line behind it."""

    # What comes in.

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        self._unset_keepalive_if_required()
        self._has_begun = self._has_ended = False
        try:
            self.parser.feed_data(data)
            self._count(len(data))
        except httptools.HttpParserUpgrade:
            pass  # it is answered as if it had not asked for another protocol
        except (httptools.HttpParserError, RotaError) as error:
            self._refuse(self._refusal or (error if isinstance(error, RotaError) else _no_http()))

    def _count(self, size: int) -> None:
        if self._has_begun or self._has_ended:
            return  # how much of it belongs to which request, nobody says
        if self._part == "body":
            self._body += size
            if self._body > MOST_BODY + _SIGNS:
                raise TooLarge(f"a request body has at most {MOST_BODY:,} bytes")
        else:
            self._head += size
            if self._head > MOST_HEAD:
                raise _head_too_large()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._has_begun = "head", True
        self._head = self._body = 0
        self._length = None

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MOST_TARGET:
            self._stop(TargetTooLong(f"a request's target has at most {MOST_TARGET:,} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part != "head":
            return  # after the body: nobody looks at these, and there is no end to them
        super().on_header(name, value)
        if self.headers[-1][0] == b"content-length":
            self._length = int(value)
        if self._has_begun:
            self._head += len(name) + len(value) + len(": \r\n")
            if self._head > MOST_HEAD:
                self._stop(_head_too_large())

    def on_headers_complete(self) -> None:
        self._part = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._part, self._has_ended = "none", True
        self._head = 0
        super().on_message_complete()
        if self.cycle.response_complete and not self._is_lingering:  # its answer did not wait for its end
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _stop(self, refusal: RotaError) -> None:
        """The parser raises an error of its own for what a callback raises."""
        self._refusal = refusal
        raise refusal

    # What goes out.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        cycle.transport = _Joined(cycle)
        is_old = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, _until_closed(cycle, app) if is_old else app)

    def on_response_complete(self) -> None:
        is_read = self.cycle is not self._answered or not self.cycle.more_body
        if is_read or (self._length or _SMALL + 1) <= _SMALL:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._linger()

    def _refuse(self, refusal: RotaError) -> None:
        """A request that is being answered is not answered twice, and one behind it not before it."""
        before = self._answered
        is_free = before is None or before.response_complete
        is_its_own = before is self.cycle and self._part == "body" and not is_free and not before.response_started
        self._hang_up()
        if is_free or is_its_own:
            self.transport.write(raw(refusal))
        self._linger()

    def _hang_up(self) -> None:
        """Let the application see that nobody waits for its answer."""
        self.pipeline.clear()
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def _linger(self) -> None:
        self._is_lingering = True
        self._disarm()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            with suppress(OSError):  # it was reset, which the loop has not seen yet
                self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._hang_up()
        super().connection_lost(exc)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TcpProtocol(Protocol):
    """For whoever connects. No timer runs for a request that came in one piece."""

    def __init__(self, *args: Any, is_surplus: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self._is_surplus = is_surplus
        """There are as many as there may be: it is told so."""
        self._timed: Part = "head"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        part = self._awaited()
        if self._is_lingering or (part == self._timed and not self._has_begun):
            return
        self._disarm()
        self._timed = part
        if part == "head":
            self._arm_head()
        elif part == "body":
            self._arm_body()

    def _awaited(self) -> Part:
        """Ends of lines before a request are no request, and end the time that a connection may be idle: they begin the
        time of the next."""
        is_idle = self._part == "none" and (self.cycle is None or self.cycle.response_complete)
        return "head" if is_idle and self.timeout_keep_alive_task is None else self._part

    def on_headers_complete(self) -> None:
        if self._is_surplus:
            self._stop(busy())
        super().on_headers_complete()

    def _arm_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_PATIENCE, self._head_is_late)

    def _head_is_late(self) -> None:
        self._refuse(TooSlow(f"the request did not come within {HEAD_PATIENCE:g} s"))

    def _arm_body(self) -> None:
        self._timer = self.loop.call_later(BODY_PATIENCE, self._look_at_body, self._body)

    def _look_at_body(self, before: int) -> None:
        if self.flow.read_paused or self._body - before >= LEAST_BODY:
            self._arm_body()
        elif self.cycle.response_complete:
            self.transport.close()
        else:
            self._refuse(TooSlow("the request's body came to a halt; send it again"))


class _Joined(asyncio.Transport):
    """What an answer is written to: its head waits for its body where that is sure to follow, for each piece that
    leaves by itself is a call of the kernel here and a wake-up there."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head: bytes | None = None
        self._has_begun = False

    def write(self, data: Any) -> None:
        cycle = self._cycle
        if cycle.response_started and not self._has_begun:
            self._has_begun = True
            if cycle.expected_content_length and cycle.scope["method"] != "HEAD":
                self._head = data
                return
        if self._head is not None:
            data, self._head = self._head + data, None
        self._transport.write(data)

    def close(self) -> None:
        if self._head is not None:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


def _until_closed(cycle: RequestResponseCycle, app: ASGIApp) -> Any:
    """For HTTP/1.0, which has no pieces: an answer whose length is not known ends where the connection does."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_measured = True

        async def sent(message: Message) -> None:
            nonlocal is_measured
            if message["type"] == "http.response.start":
                is_measured = any(name.lower() == b"content-length" for name, _ in message["headers"])
                cycle.chunked_encoding = None if is_measured else False
            elif not is_measured:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sent)

    return answer


def busy() -> Busy:
    return Busy("as many connections are open as there may be; close some, or ask again in a while")


def _no_http() -> BadRequest:
    return BadRequest("this is no HTTP request; is it meant for another port, or should it speak TLS?")


def _head_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"a request's target and headers have at most {MOST_HEAD:,} bytes together")


def raw(refusal: RotaError) -> bytes:
    """The whole answer, after which the connection ends."""
    response = problem(refusal.code, refusal.http_status, refusal.message)
    headers = [*response.raw_headers, (b"connection", b"close")]
    lines = [name + b": " + value + b"\r\n" for name, value in headers]
    return b"".join((STATUS_LINE[refusal.http_status], *lines, b"\r\n", response.body))
