"""Requests with retries: a missing scheduler is started, and a request is repeated if that is safe.

After a broken connection it is unknown whether the scheduler received the request. The request is repeated only if it
cannot take effect twice: a read, a PUT, or a request with an idempotency key. While a request with the same key is in
progress, the client waits for its response. A 503 with `Retry-After` is repeated for a moment, and for an unavailable
store as long as a database server takes to restart.

Without an earlier response, a missing scheduler is always started: the user has just requested it. After a response, a
missing scheduler is started only if it crashed: a `rota wait` in another terminal must not restart a scheduler that was
stopped on purpose. The socket tells the two apart: an orderly shutdown removes the socket before it releases the lock,
so a free lock with an existing socket is a crash.

Waits, logs and event streams outlast temporary outages: `SchedulerOutage` and `StoreOutage` limit their duration.

The logic is written once, in async form. If the operations of a subclass block, no coroutine ever suspends, and
`run_blocking` returns the result without an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine

from rota.client.problem import ConnectionBroken, InvalidResponse, NoResponse, NotRunning, ResponseTimeout
from rota.client.requests import Request
from rota.client.transport import HttpResponse
from rota.errors import RequestInProgress, RotaError, ServiceUnavailable, StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from typing import Any, Protocol, TypeVar

    from rota.home import Home

    T = TypeVar("T")

    class IncomingResponse(Protocol):
        """A response that is being received."""

        @property
        def status(self) -> int: ...
        @property
        def headers(self) -> dict[str, str]: ...
        @property
        def is_finished(self) -> bool: ...
        async def receive(self) -> bytes: ...
        def close(self) -> None: ...


_OUTAGE_POLL_INTERVAL = 0.25
STORE_OUTAGE_TIMEOUT = 30.0
"""Seconds to wait for an unavailable store. A database server that restarts is available again by then."""
STORE_POLL_INTERVAL = 1.0
"""Seconds between two checks for the store."""
_MAX_ATTEMPTS = 3
_CONNECTION_LOST = "the connection to the scheduler broke before the response was complete"
_MAY_HAVE_RUN = "the request was sent and may have been carried out; check with `rota list --all` before you repeat it"
_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = 0.05, 1.0
"""Seconds between two attempts while a request with the same key is in progress."""
_MAX_UNAVAILABLE_WAIT = 3.0
"""Maximum total number of seconds to wait for a scheduler that responds with 503."""


class RetryingTransport:
    """The retries. A subclass provides `send`, `start_scheduler` and `sleep`, blocking or for an event loop."""

    def __init__(self, *, autostart: bool, outage_timeout: float | None = 0.0) -> None:
        """Initialize the transport.

        `outage_timeout` is the maximum number of seconds to wait for a scheduler that was stopped while `wait`, a log
        or a stream is in progress; `None` is without limit. A scheduler that crashed is always restarted.
        """
        self.autostart = autostart
        self.outage_timeout = outage_timeout
        self.tolerates_outage = True
        """Whether to wait for a scheduler that was running before, or to restart it after a crash."""
        self.has_answered = False
        """Whether the scheduler has responded. A caller of `open_stream` sets it itself."""

    async def send(self, request: Request) -> IncomingResponse:
        """Send the request over a connection. Raise NotRunning if no scheduler listens."""
        raise NotImplementedError

    async def start_scheduler(self) -> None:
        """Start the scheduler, or wait for one that is starting."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def notify(self, text: str) -> None:
        """Notify the user of a delay."""

    def on_sent(self, response: Any, request: Request) -> None:
        """Handle a request that was sent. A command notifies the user if there is no response for long."""

    async def open_stream(self, request: Request) -> IncomingResponse:
        """Send the request, and start the scheduler first if needed. The caller reads the response."""
        try:
            return await self.send(request)
        except NotRunning:
            if not self.autostart:
                raise
            await self.start_scheduler()
        return await self.send(request)

    async def request(self, request: Request) -> HttpResponse:
        """Send the request, and return the complete response."""
        was_sent, waited, attempts = False, 0.0, 0
        while True:
            try:
                response = await self._request_once(request)
            except ConnectionBroken as error:
                was_sent, attempts = True, attempts + 1
                if not request.is_repeatable or attempts == _MAX_ATTEMPTS:
                    if request.method == "GET":
                        raise
                    message = error.message if isinstance(error, NoResponse) else _CONNECTION_LOST
                    raise ConnectionBroken(f"{message}\n{_MAY_HAVE_RUN}") from error
                await self.sleep(_MIN_RETRY_DELAY)
            except (RequestInProgress, ServiceUnavailable) as error:
                delay = _retry_delay(error, request, waited, tolerates_outage=self.tolerates_outage)
                if delay is None:
                    if was_sent and request.method != "GET" and isinstance(error, ServiceUnavailable):
                        raise ServiceUnavailable(f"{error.message}\n{_MAY_HAVE_RUN}") from error
                    raise
                if isinstance(error, StoreUnavailable) and not waited:
                    self.notify(f"{error.message}; waiting for it")
                await self.sleep(delay)
                waited += delay
            else:
                self.has_answered = True
                return response

    async def _request_once(self, request: Request) -> HttpResponse:
        incoming = await self.open_stream(request)
        try:
            self.on_sent(incoming, request)
            parts = []
            while not incoming.is_finished:
                parts.append(await incoming.receive())
            return HttpResponse(incoming.status, incoming.headers, b"".join(parts))
        finally:
            incoming.close()


def _retry_delay(error: RotaError, request: Request, waited: float, *, tolerates_outage: bool) -> float | None:
    """Return the seconds before the next attempt, or `None` if another attempt does not help."""
    if isinstance(error, RequestInProgress) and "Idempotency-Key" in request.headers:
        delay = min(_MAX_RETRY_DELAY, max(_MIN_RETRY_DELAY, waited))
        return delay if request.timeout is None or waited < request.timeout else None
    # A request without a timeout may have begun its work, and must not begin it a second time.
    if error.retry_after is None or not request.is_repeatable or request.timeout is None:
        return None
    limit = STORE_OUTAGE_TIMEOUT if tolerates_outage and isinstance(error, StoreUnavailable) else _MAX_UNAVAILABLE_WAIT
    return error.retry_after if waited + error.retry_after <= limit else None


def restart_scheduler(home: Home, *, has_answered: bool, tolerates_outage: bool = True) -> bool:
    """Start the scheduler of a home, or wait for one that is starting. Return whether it was started.

    `has_answered`: the client has had a response from a scheduler. `tolerates_outage`: the client waits for a scheduler
    to return.
    """
    from rota.client import autostart

    if has_answered:
        if not tolerates_outage:
            raise ServiceUnavailable(
                "the scheduler is not running any more; start it with `rota up`, then try again"
            ) from None
        if autostart.wait_until_running(home):
            return False
        if not home.socket.exists():
            raise ServiceUnavailable(
                "the scheduler was stopped meanwhile; start it with `rota up`, then try again"
            ) from None
    return autostart.start(home)


class StoreOutage:
    """Duration of an outage of the store, for a client that polls."""

    def __init__(self) -> None:
        self._since: float | None = None

    def end(self) -> None:
        """Record that the store answered."""
        self._since = None

    def raise_if_too_long(self, error: StoreUnavailable) -> None:
        """Raise the error if the outage has exceeded its limit."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since >= STORE_OUTAGE_TIMEOUT:
            raise error


class SchedulerOutage:
    """Duration of an outage of the scheduler."""

    def __init__(self, transport: RetryingTransport) -> None:
        self._transport = transport
        self._since: float | None = None
        self._had_broken_connection = False
        self._store_outage = StoreOutage()

    def end(self) -> None:
        """Record that the scheduler answered."""
        self._since, self._had_broken_connection = None, False
        self._store_outage.end()

    async def wait_or_raise(self, error: ServiceUnavailable) -> None:
        """Wait before the next attempt, or raise the error if the outage has exceeded its limit.

        Without an earlier response the error is raised immediately. A broken connection does not mean that the
        scheduler is gone: the first is always followed by another attempt, which starts a scheduler that has crashed.
        While only the store is unavailable, the scheduler itself is running.
        """
        transport, now = self._transport, time.monotonic()
        if isinstance(error, StoreUnavailable) and transport.tolerates_outage:
            self._store_outage.raise_if_too_long(error)
            await transport.sleep(STORE_POLL_INTERVAL)
            return
        if not transport.has_answered or isinstance(error, InvalidResponse):
            raise error
        self._since = self._since or now
        is_first = isinstance(error, ConnectionBroken | ResponseTimeout) and not self._had_broken_connection
        self._had_broken_connection |= is_first
        if not is_first and transport.outage_timeout is not None and now - self._since >= transport.outage_timeout:
            raise error
        await transport.sleep(_OUTAGE_POLL_INTERVAL)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a blocking coroutine must not suspend")


def iterate_blocking(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield the items of an asynchronous generator that never suspends."""
    try:
        while True:
            try:
                item = run_blocking(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run_blocking(items.aclose())
