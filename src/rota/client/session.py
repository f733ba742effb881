"""Session of a command with the scheduler of one home: requests in, JSON out. `retrying` has the retries."""

from __future__ import annotations

import select
import sys
import time

from rota.client.problem import make_not_running
from rota.client.requests import MAX_PAGE_SIZE, RESPONSE_TIMEOUT, Request
from rota.client.retrying import RetryingTransport, iterate_blocking, restart_scheduler, run_blocking
from rota.client.transport import HomeSocket, HttpResponse, ResponseStream, send
from rota.home import Home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from rota.client.requests import Json
    from rota.client.sse import SseMessage
    from rota.client.transport import SchedulerAddress


_NOTICE_DELAY = 5.0
"""Seconds without a response after which the user is notified."""


class BlockingStream:
    """A response stream of a blocking program, with the interface of an asynchronous one."""

    __slots__ = ("stream",)

    def __init__(self, stream: ResponseStream) -> None:
        self.stream = stream

    @property
    def status(self) -> int:
        return self.stream.status

    @property
    def headers(self) -> dict[str, str]:
        return self.stream.headers

    @property
    def is_finished(self) -> bool:
        return self.stream.is_finished

    async def receive(self) -> bytes:
        return self.stream.receive()

    def close(self) -> None:
        self.stream.close()


class BlockingTransport(RetryingTransport):
    """A transport with blocking operations."""

    def __init__(
        self, address: SchedulerAddress, home: Home | None, *, autostart: bool, outage_timeout: float | None = 0.0
    ) -> None:
        """Initialize the transport. `home` is the home to start a scheduler in, or `None` if that is not possible."""
        super().__init__(autostart=autostart and home is not None, outage_timeout=outage_timeout)
        self._address = address
        self._home = home

    async def send(self, request: Request) -> BlockingStream:
        return BlockingStream(send(self._address, request))

    async def start_scheduler(self) -> None:
        assert self._home is not None  # noqa: S101 - autostart requires a home
        restart_scheduler(self._home, has_answered=self.has_answered, tolerates_outage=self.tolerates_outage)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - blocking on purpose: there is no event loop


class _CommandTransport(BlockingTransport):
    """The transport of a command, with notices for the user."""

    def __init__(self, home: Home, *, autostart: bool, is_read_only: bool) -> None:
        super().__init__(HomeSocket(home), home, autostart=autostart)
        self._own_home = home
        self._is_read_only = is_read_only

    async def start_scheduler(self) -> None:
        """Start the scheduler and notify the user.

        A read-only command only waits for a scheduler that is starting. After a response it also restarts a scheduler
        that has crashed, so that it can continue to follow.
        """
        if self._is_read_only and not self.has_answered:
            from rota.client.autostart import make_unreachable_error, wait_until_running

            if not wait_until_running(self._own_home, notify=self.notify):
                raise make_unreachable_error(self._own_home) or make_not_running(self._own_home)
            return
        if restart_scheduler(self._own_home, has_answered=self.has_answered, tolerates_outage=self.tolerates_outage):
            self.notify(f"started the scheduler in {self._own_home.directory}; `rota down` stops it")

    def notify(self, text: str) -> None:
        print(f"rota: {text}", file=sys.stderr, flush=True)

    def on_sent(self, response: Any, request: Request) -> None:
        """Notify the user if there is no response for long. A scheduler that is stopped by a signal, or whose file
        system does not answer, still accepts requests."""
        if request.timeout is None:
            return
        poll = select.poll()
        poll.register(response.stream, select.POLLIN)
        if not poll.poll((_NOTICE_DELAY + request.timeout - RESPONSE_TIMEOUT) * 1000):
            self.notify(f"the scheduler (pid {response.stream.peer_pid}) does not answer; waiting for it")


class SchedulerSession:
    """The session of a command with a scheduler."""

    def __init__(self, home: Home, *, autostart: bool = True, is_read_only: bool = False) -> None:
        """Initialize the session. A command with `is_read_only` does not start a stopped scheduler."""
        self.home = home
        self._transport = _CommandTransport(home, autostart=autostart, is_read_only=is_read_only)

    @property
    def has_answered(self) -> bool:
        """Whether the scheduler has responded to this command. A caller of `open_stream` sets it itself."""
        return self._transport.has_answered

    @has_answered.setter
    def has_answered(self, value: bool) -> None:
        self._transport.has_answered = value

    def request_json(self, request: Request) -> Any:
        """Send the request, and return the JSON of the response."""
        return self.request(request).json()

    def request(self, request: Request) -> HttpResponse:
        """Send the request, and return the complete response."""
        return run_blocking(self._transport.request(request))

    def open_stream(self, request: Request) -> ResponseStream:
        """Send the request. The caller reads the response."""
        incoming = run_blocking(self._transport.open_stream(request))
        assert isinstance(incoming, BlockingStream)  # noqa: S101 - made by `send`
        return incoming.stream

    def listen(self, build: Callable[[str | None], Request]) -> Iterator[SseMessage]:
        """Yield the messages of a stream without end. `build` makes the request from the id of the last message."""
        from rota.client.sse import listen

        return iterate_blocking(listen(self._transport, build))

    def pages(self, build: Callable[..., Request], name: str, **parameters: object) -> Iterator[Json]:
        """Yield all items of a list, page by page."""
        cursor: str | None = None
        while True:
            response = self.request_json(build(**parameters, limit=MAX_PAGE_SIZE, cursor=cursor))
            yield from response[name]
            cursor = response.get("next")
            if cursor is None:
                return
