"""Client of a direct execution, which stays connected until the command has ended, even if the scheduler restarts.

    reserve ─▶ stream ─▶ … ─▶ ended
                 │ connection broken
                 └─▶ reconnect with the reservation ID and the offsets of the copied output ─▶ stream

The stream has lines of JSON, each followed by as many bytes of output as it announces. The reservation depends on the
connection of the stream, so it ends with this process. SIGINT and SIGTERM cancel it and wait until its processes have
ended; a second signal exits immediately. Other signals are forwarded to the command if it runs, and cancel the
reservation otherwise.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator

from rota.cli.terminal import SignalPipe, StreamOutput, print_notice, sleep, wait_readable
from rota.client.problem import ConnectionBroken, InvalidResponse
from rota.client.requests.direct import (
    cancel_reservation,
    signal_reservation,
    stream_new_reservation,
    stream_reservation,
)
from rota.client.retrying import STORE_POLL_INTERVAL, StoreOutage
from rota.client.session import SchedulerSession
from rota.client.transport import ResponseStream
from rota.errors import Conflict, InvalidInput, NotFound, ReservationTimeout, ServiceUnavailable, StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_MAX_LINE_BYTES = 1 << 24
CANCEL_SIGNALS = (signal.SIGINT, signal.SIGTERM)
FORWARDED_SIGNALS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_UNKNOWN_OUTCOME_ADVICE = "the request was sent, so the command may have started; check with `rota reservation list`"
_RECONNECT_DELAY = 0.05
_RECONNECT_INTERVAL = 0.5
"""Seconds between two attempts: nothing announces that the scheduler has restarted."""


class WaitInterrupted(Exception):
    """The wait was interrupted by a signal."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class ReservationClient:
    def __init__(self, session: SchedulerSession, notify: Callable[[str], None], *, has_output_on_stderr: bool) -> None:
        """Create a client. With `has_output_on_stderr`, all output goes to stderr, because stdout has another use."""
        self._session = session
        self._notify = notify
        self._signals = SignalPipe((*CANCEL_SIGNALS, *FORWARDED_SIGNALS))
        descriptors = {"stdout": 2 if has_output_on_stderr else 1, "stderr": 2}
        self._outputs = {
            name: StreamOutput(number, self._signals, self._on_signals) for name, number in descriptors.items()
        }
        self._copied_bytes = dict.fromkeys(descriptors, 0)
        self._reservation_id: str | None = None
        self._reservation: Json | None = None
        self._deadline: float | None = None
        """Monotonic time at which the wait times out. The client keeps it to wait without a scheduler too."""
        self._last_message: str | None = None
        self._is_waiting = False
        """Whether a reason for waiting was printed and the start was not."""
        self._pending_signals: list[int] = []
        """Signals received before the reservation was known."""
        self._cancel_signal: int | None = None
        self._is_disconnected = False
        """Whether there is no connection to a scheduler."""
        self._cancel_stream: ResponseStream | None = None
        self._outage = StoreOutage()

    def close(self) -> None:
        self._signals.close()
        if self._cancel_stream is not None:
            self._cancel_stream.close()

    def run(self, request: Json) -> Json:
        """Run the command and return the ended reservation. Raise WaitInterrupted if a signal ends the wait."""
        while self._should_resubmit(request):
            pass
        while self._reservation is None or self._reservation["finished_at"] is None:
            self._pause(_RECONNECT_DELAY)
            try:
                self._copy_stream(self._reconnect())
            except ConnectionBroken:
                continue
            except StoreUnavailable as error:
                self._wait_for_store(error)
        return self._reservation

    def _should_resubmit(self, request: Json) -> bool:
        """Create the reservation and follow its stream. Return whether to retry because nothing was stored."""
        try:
            self._copy_stream(self._session.open_stream(stream_new_reservation(request)))
        except ConnectionBroken as error:
            if self._reservation_id is None:  # a retry could run the command twice
                raise ServiceUnavailable(f"{error.message}\n{_UNKNOWN_OUTCOME_ADVICE}") from error
        except StoreUnavailable as error:
            self._wait_for_store(error)
            return self._reservation_id is None
        return False

    def _wait_for_store(self, error: StoreUnavailable) -> None:
        self._outage.raise_if_too_long(error)
        if self._last_message != error.message:
            self._last_message = error.message
            self._notify(f"{error.message}; waiting for it")
        self._pause(STORE_POLL_INTERVAL)

    def cancel_signal(self, reservation: Json) -> int | None:
        """Return the signal that cancelled the reservation, or None if it ended otherwise."""
        return self._cancel_signal if reservation["status"] == "CANCELLED" else None

    # The stream.

    def _copy_stream(self, stream: ResponseStream) -> None:
        """Copy the output until the stream ends."""
        frames = FrameDecoder()
        with stream:
            while not stream.is_finished:
                wait_readable(stream, self._signals, self._on_signals)
                for head, payload in frames.feed(stream.receive()):
                    self._handle_frame(head, payload)

    def _handle_frame(self, head: Json, payload: bytes) -> None:
        self._session.has_answered, self._is_disconnected = True, False
        self._outage.end()
        if "stream" in head:
            self._report_start()
            self._outputs[head["stream"]].write(payload)
            self._copied_bytes[head["stream"]] += len(payload)
        elif "reservation" in head:
            self._reservation = head["reservation"]
            self._report_state(head["reservation"])
            pending, self._pending_signals = self._pending_signals, []
            self._handle_signals(pending)
        else:
            self._reservation_id, remaining = head["id"], head.get("wait")
            self._deadline = None if remaining is None else time.monotonic() + remaining
            if head.get("warning"):
                self._notify(f"warning: {head['warning']}")

    def _report_state(self, reservation: Json) -> None:
        """Report each new reason for waiting, the start, and the reason of a failure."""
        if reservation["status"] == "WAITING":
            self._is_waiting = True
            explanation = reservation.get("explanation") or "waiting to start"
            self._print_new(f"{reservation['id']}: {explanation}{_self_wait_warning(reservation)}")
        elif reservation["status"] == "RUNNING":
            # A command without a pid is only ordered: if its start fails, the reservation waits again.
            if reservation["command"] is None or reservation["pid"] is not None:
                self._report_start()
        elif reservation["reason"] and reservation["reason"] != f"exit code {reservation['exit_code']}":
            self._print_new(f"{reservation['id']} {reservation['status']}: {reservation['reason']}")
        else:
            self._report_start()

    def _report_start(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._print_new(f"{self._reservation_id} starts")

    def _print_new(self, message: str) -> None:
        if message != self._last_message:
            self._last_message = message
            self._notify(message)

    def _reconnect(self) -> ResponseStream:
        assert self._reservation_id is not None  # noqa: S101 - only a known reservation is reconnected
        self._is_disconnected = True
        last_error = None
        while True:
            remaining = None if self._deadline is None else self._deadline - time.monotonic()
            wait = None if remaining is None else f"{max(0.001, remaining):.3f}s"
            try:
                stream = self._session.open_stream(
                    stream_reservation(self._reservation_id, self._copied_bytes, wait=wait)
                )
            except StoreUnavailable:
                raise  # the scheduler responds
            except ServiceUnavailable as error:
                if last_error != error.message:
                    last_error = error.message
                    self._notify(f"{self._reservation_id} waits for the scheduler: {error.message}")
                if remaining is not None and remaining <= 0 and not self._is_running:
                    raise ReservationTimeout(
                        f"{self._reservation_id}: it did not start in time; nothing of it ran"
                    ) from None
                self._pause(_RECONNECT_INTERVAL)
                continue
            if self._cancel_signal is not None:
                self._request_cancel()
            return stream

    def _pause(self, seconds: float) -> None:
        sleep(seconds, self._signals, self._on_signals)

    # Signals.

    def _on_signals(self) -> None:
        numbers = self._signals.read_signals()
        if self._reservation is not None:
            self._handle_signals(numbers)
            return
        has_cancel_signal = any(number in CANCEL_SIGNALS for number in self._pending_signals)
        self._pending_signals += numbers
        if has_cancel_signal and any(number in CANCEL_SIGNALS for number in numbers):
            raise WaitInterrupted(next(number for number in self._pending_signals if number in CANCEL_SIGNALS))

    @property
    def _is_running(self) -> bool:
        return self._reservation is not None and self._reservation["status"] == "RUNNING"

    def _handle_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in FORWARDED_SIGNALS and self._is_running:
                self._forward_signal(number)
            else:
                self._cancel_or_interrupt(number)

    def _cancel_or_interrupt(self, signal_number: int) -> None:
        if self._is_disconnected:
            self._notify(f"{self._reservation_id} is cancelled when the scheduler is back, because its client has left")
        if self._is_disconnected or self._cancel_signal is not None:
            raise WaitInterrupted(self._cancel_signal or signal_number)
        self._cancel_signal = signal_number
        self._request_cancel()

    def _request_cancel(self) -> None:
        """Request the cancellation; the stream reports the end. A reconnect repeats the request."""
        assert self._reservation_id is not None  # noqa: S101 - as above
        try:
            self._cancel_stream = self._session.open_stream(cancel_reservation(self._reservation_id))
        except ServiceUnavailable:
            return

    def _forward_signal(self, signal_number: int) -> None:
        assert self._reservation_id is not None  # noqa: S101 - as above
        try:
            self._session.request_json(signal_reservation(self._reservation_id, signal.Signals(signal_number).name))
        except (Conflict, InvalidInput, NotFound, ServiceUnavailable) as error:
            self._notify(error.message)


class FrameDecoder:
    """An incremental decoder of frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._header: Json | None = None
        """Header of the frame whose bytes are incomplete."""

    def feed(self, data: bytes) -> Iterator[tuple[Json, bytes]]:
        """Decode received bytes, and yield each complete line with its bytes of output."""
        self._buffer += data
        while True:
            if self._header is None:
                self._header = self._take_header()
            size = 0 if self._header is None else int(self._header.get("size", 0))
            if self._header is None or len(self._buffer) < size:
                return
            header, self._header = self._header, None
            payload = bytes(self._buffer[:size])
            del self._buffer[:size]
            yield header, payload

    def _take_header(self) -> Json | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise InvalidResponse(
                    "the scheduler's stream has a line that is too long; it may be another version: see `rota doctor`"
                )
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            header: Json = json.loads(line)
        except ValueError:
            raise InvalidResponse(
                f"the scheduler's stream cannot be decoded: {line[:40]!r}; see `rota doctor`"
            ) from None
        return header


def discard_message(_text: str) -> None:
    """Discard a message, so that only the output of the command is printed."""


def make_notifier(*, is_quiet: bool) -> Callable[[str], None]:
    return discard_message if is_quiet else print_notice


def _self_wait_warning(reservation: Json) -> str:
    """Return a warning if the command waits for the job that it runs in."""
    parent = os.environ.get("ROTA_JOB") or os.environ.get("ROTA_RESERVATION")
    if not parent or not re.search(rf"\b{re.escape(parent)}\b", reservation.get("explanation") or ""):
        return ""
    return f"; this command runs inside {parent}, which holds what it waits for, so it cannot start"
