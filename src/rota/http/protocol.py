"""HTTP/1.1 with limits that apply before the application sees a request.

    request line and headers        64 KiB in total, 16 KiB for the target
    body, as sent                   the limit in `limit`, plus the overhead of its chunks
    input that is not HTTP          a problem document, then the connection closes

Any client can connect over TCP, so a request also has to arrive in time:

    connection or request opened    10 s until its headers are complete
    body                            1 KiB per second, checked every 30 s

On the socket and over TCP, a client that reads nothing of a response for 30 s while more than 64 KiB (the transport's
write buffer) are pending is disconnected. It can repeat the request and resume where it stopped. The connection that a
direct execution depends on is exempt: to close it would cancel the command.

A refusal is sent before the whole request is read. If the connection were closed then, the kernel would discard the
response together with the unread input. So only the write side is closed, and further input is dropped for a moment.
The same applies when the application has responded without reading a large body.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Literal

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rota.errors import (
    BadRequest,
    BodyTooLarge,
    HeadersTooLarge,
    RequestTimeout,
    RotaError,
    TargetTooLong,
    TooManyConnections,
)
from rota.http.limits import MAX_BODY_BYTES, LimitNotice
from rota.http.problem import problem_response

log = logging.getLogger("rota.http")

RequestPart = Literal["none", "head", "body"]
"""Part of a request that the parser expects next."""

MAX_HEAD_BYTES = 64 << 10
MAX_TARGET_BYTES = 16 << 10
_MAX_CHUNK_OVERHEAD_BYTES = 16 << 20
"""Maximum overhead of the chunks of a body."""
_MAX_DRAINED_BODY_BYTES = 64 << 10
"""Maximum size of an unused body that is read so that the connection can be used again."""
_LINGER_TIMEOUT = 2.0
"""Seconds in which a client that still sends can read the refusal."""

HEAD_TIMEOUT = 10.0
BODY_CHECK_INTERVAL = 30.0
MIN_BODY_PROGRESS_BYTES = 30 << 10
"""Minimum number of body bytes in one `BODY_CHECK_INTERVAL`."""

SEND_TIMEOUT = 30.0
"""Seconds after which a client that reads nothing of its response is disconnected."""
KEEP_WHEN_STALLED = "rota.keep_when_stalled"
"""Key in an ASGI scope: keep the connection even if its client reads nothing."""
_stall_notice = LimitNotice(log)


class HttpProtocol(HttpToolsProtocol):
    """HTTP protocol of a connection on the socket."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._next_part: RequestPart = "none"
        self._has_begun = False
        self._has_ended = False
        """Whether a request has begun, or ended, in the data that is being parsed."""
        self._head_bytes = 0
        self._body_bytes = 0
        self._content_length: int | None = None
        self._refusal: RotaError | None = None
        self._is_lingering = False
        self._timer: asyncio.TimerHandle | None = None
        self._active_cycle: RequestResponseCycle | None = None
        """Request that the application handles. `cycle` is the last request received, which may wait behind it."""
        self._stall_timer: asyncio.TimerHandle | None = None

    # Input.

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        self._unset_keepalive_if_required()
        self._has_begun = self._has_ended = False
        try:
            self.parser.feed_data(data)
            self._count_bytes(len(data))
        except httptools.HttpParserUpgrade:
            pass  # the request is answered without the upgrade
        except (httptools.HttpParserError, RotaError) as error:
            self._refuse(self._refusal or (error if isinstance(error, RotaError) else _make_not_http_error()))

    def _count_bytes(self, size: int) -> None:
        if self._has_begun or self._has_ended:
            return  # the parser does not tell which of the bytes belong to which request
        if self._next_part == "body":
            self._body_bytes += size
            if self._body_bytes > MAX_BODY_BYTES + _MAX_CHUNK_OVERHEAD_BYTES:
                raise BodyTooLarge(f"the request body exceeds {MAX_BODY_BYTES:,} bytes; submit in several parts")
        else:
            self._head_bytes += size
            if self._head_bytes > MAX_HEAD_BYTES:
                raise _make_head_too_large_error()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._next_part, self._has_begun = "head", True
        self._head_bytes = self._body_bytes = 0
        self._content_length = None

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_TARGET_BYTES:
            self._abort_parse(TargetTooLong(f"the request target exceeds {MAX_TARGET_BYTES:,} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._next_part != "head":
            return  # trailers are unused, and their number is unlimited
        super().on_header(name, value)
        if self.headers[-1][0] == b"content-length":
            self._content_length = int(value)
        if self._has_begun:
            self._head_bytes += len(name) + len(value) + len(": \r\n")
            if self._head_bytes > MAX_HEAD_BYTES:
                self._abort_parse(_make_head_too_large_error())

    def on_headers_complete(self) -> None:
        self._next_part = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._next_part, self._has_ended = "none", True
        self._head_bytes = 0
        super().on_message_complete()
        if self.cycle.response_complete and not self._is_lingering:  # the response was sent before the request ended
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _abort_parse(self, refusal: RotaError) -> None:
        """Raise from a callback of the parser. The parser replaces the exception with its own, so the refusal is
        stored."""
        self._refusal = refusal
        raise refusal

    # Output.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active_cycle = cycle
        cycle.transport = _CoalescingTransport(cycle)
        is_old = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, _close_delimited(cycle, app) if is_old else app)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._watch_backlog()

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        super().resume_writing()

    def _watch_backlog(self) -> None:
        backlog = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(SEND_TIMEOUT, self._disconnect_if_stalled, backlog)

    def _disconnect_if_stalled(self, previous_backlog: int) -> None:
        """Disconnect a client that has read nothing. Nothing is written while the transport is paused, so a backlog
        that did not shrink was not read."""
        is_exempt = self._active_cycle is not None and self._active_cycle.scope.get(KEEP_WHEN_STALLED, False)
        if is_exempt or self.transport.get_write_buffer_size() < previous_backlog:
            self._watch_backlog()
            return
        _stall_notice.log(f"a client read nothing of its response for {SEND_TIMEOUT:g} s and was disconnected")
        self._disconnect_application()
        self.transport.abort()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def on_response_complete(self) -> None:
        is_read = self.cycle is not self._active_cycle or not self.cycle.more_body
        if is_read or (self._content_length or _MAX_DRAINED_BODY_BYTES + 1) <= _MAX_DRAINED_BODY_BYTES:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._linger()

    def _refuse(self, refusal: RotaError) -> None:
        """Refuse the request that is being received. A request that is already being answered does not get a second
        response, and a pipelined request is not answered before its predecessor."""
        active = self._active_cycle
        is_idle = active is None or active.response_complete
        is_own = active is self.cycle and self._next_part == "body" and not is_idle and not active.response_started
        self._disconnect_application()
        if is_idle or is_own:
            self.transport.write(render_raw_response(refusal))
        self._linger()

    def _disconnect_application(self) -> None:
        """Tell the application that the client has disconnected."""
        self.pipeline.clear()
        if self._active_cycle is not None and not self._active_cycle.response_complete:
            self._active_cycle.disconnected = True
            self._active_cycle.message_event.set()

    def _linger(self) -> None:
        self._is_lingering = True
        self._cancel_timer()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            with suppress(OSError):  # the client has reset the connection, and the event loop has not noticed yet
                self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER_TIMEOUT, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._cancel_stall_timer()
        self._disconnect_application()
        super().connection_lost(exc)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TcpProtocol(HttpProtocol):
    """HTTP protocol of a TCP connection. No timer runs once a request has arrived in one piece."""

    def __init__(self, *args: Any, exceeds_limit: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._exceeds_limit = exceeds_limit
        """Whether there are too many connections, so that this one gets a refusal."""
        self._timed_part: RequestPart = "head"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        part = self._expected_part()
        if self._is_lingering or (part == self._timed_part and not self._has_begun):
            return
        self._cancel_timer()
        self._timed_part = part
        if part == "head":
            self._start_head_timer()
        elif part == "body":
            self._start_body_timer()

    def _expected_part(self) -> RequestPart:
        """Return the part of the request that has to arrive in time. Line breaks before a request are not a request,
        but they end the keep-alive timeout and start the timeout of the next request."""
        is_idle = self._next_part == "none" and (self.cycle is None or self.cycle.response_complete)
        return "head" if is_idle and self.timeout_keep_alive_task is None else self._next_part

    def on_headers_complete(self) -> None:
        if self._exceeds_limit:
            self._abort_parse(make_too_many_connections_error())
        super().on_headers_complete()

    def _start_head_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._refuse_late_head)

    def _refuse_late_head(self) -> None:
        self._refuse(RequestTimeout(f"the request headers did not arrive within {HEAD_TIMEOUT:g} s"))

    def _start_body_timer(self) -> None:
        self._timer = self.loop.call_later(BODY_CHECK_INTERVAL, self._check_body_progress, self._body_bytes)

    def _check_body_progress(self, previous_bytes: int) -> None:
        if self.flow.read_paused or self._body_bytes - previous_bytes >= MIN_BODY_PROGRESS_BYTES:
            self._start_body_timer()
        elif self.cycle.response_complete:
            self.transport.close()
        else:
            self._refuse(RequestTimeout("the request body stalled; send the request again"))


class _CoalescingTransport(asyncio.Transport):
    """Transport of a response. It sends the head together with the body if a body is sure to follow, because each
    separate write costs a system call here and a wake-up of the client."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._pending_head: bytes | None = None
        self._has_begun = False

    def write(self, data: Any) -> None:
        cycle = self._cycle
        if cycle.response_started and not self._has_begun:
            self._has_begun = True
            if cycle.expected_content_length and cycle.scope["method"] != "HEAD":
                self._pending_head = data
                return
        if self._pending_head is not None:
            data, self._pending_head = self._pending_head + data, None
        self._transport.write(data)

    def close(self) -> None:
        if self._pending_head is not None:
            self._transport.write(self._pending_head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


def _close_delimited(cycle: RequestResponseCycle, app: ASGIApp) -> Any:
    """Return the application for HTTP/1.0, which has no chunks: a response of unknown length ends with the
    connection."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        has_length = True

        async def send_unchunked(message: Message) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
                cycle.chunked_encoding = None if has_length else False
            elif not has_length:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unchunked)

    return respond


def make_too_many_connections_error() -> TooManyConnections:
    return TooManyConnections("the connection limit is reached; close some connections, or try again later")


def _make_not_http_error() -> BadRequest:
    return BadRequest("this is not an HTTP request; check the port, and whether it expects http instead of https")


def _make_head_too_large_error() -> HeadersTooLarge:
    return HeadersTooLarge(f"the request target and headers exceed {MAX_HEAD_BYTES:,} bytes in total")


def render_raw_response(refusal: RotaError) -> bytes:
    """Return the bytes of a refusal that ends the connection."""
    response = problem_response(refusal.code, refusal.http_status, refusal.message)
    headers = [*response.raw_headers, (b"connection", b"close")]
    lines = [name + b": " + value + b"\r\n" for name, value in headers]
    return b"".join((STATUS_LINE[refusal.http_status], *lines, b"\r\n", response.body))
