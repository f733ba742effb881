"""Local executor: the scheduler's side of the socket between scheduler and supervisor; `supervisor/server.py` is the
other side.

    engine ── send ──► send buffer ──► socket ──► supervisor
       ▲                                 │
       └── receive ◄── inbox ◄───────────┘         on a break: ConnectionLoss, a new connection, then RunInventory

Neither side can block the other. The supervisor never blocks on a send and keeps reading. On this side the socket is
non-blocking too, and bytes that it does not take stay in the send buffer. Flushing that buffer must not depend on
incoming messages, because an environment or an acknowledgement gets no answer. So `fileno` is an epoll instance, which
a selector can wait on like any other descriptor. It is readable when the supervisor has sent something and, while the
buffer is not empty, when the socket takes more; `receive` then flushes the buffer. The descriptor stays the same across
reconnects. An eventfd in it signals that the inbox holds messages that arrived with the connection or during
`withdraw`.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from rota import __version__
from rota.errors import Conflict, ServiceUnavailable
from rota.executor import launcher
from rota.executor.port import (
    AcknowledgeOrder,
    ConnectionLoss,
    EnvironmentUpload,
    ExecutorFailure,
    ExecutorMessage,
    ExecutorNotAnswering,
    ExecutorOrder,
    ExitReport,
    PingOrder,
    Pong,
    PrefetchOrder,
    PrefetchStart,
    RunInventory,
    RunReport,
    SignalOrder,
    StartConfirmation,
    StartFailure,
    StartOrder,
    StartRefusal,
    StopOrder,
    WithdrawConfirmation,
    WithdrawOrder,
)
from rota.ids import RunId
from rota.supervisor.protocol import ACCEPTED_PROTOCOLS, PROTOCOL, LineReader

CONNECT_TIMEOUT = 10.0
_HELLO_TIMEOUT = 3.0
"""Maximum seconds a call waits for the answer to a hello. A later call picks up a late answer."""
_CHUNK_BYTES = 1 << 18

_log = logging.getLogger(__name__)

_DECODE_ERRORS = (ValueError, RecursionError)
"""Exceptions that decoding a line can raise."""


class _Hello(msgspec.Struct):
    protocol: int
    pid: int
    boot: str
    version: str
    runs: list[RunReport]
    has_cgroups: bool = False


class _Error(msgspec.Struct):
    error: str
    run: int | None = None
    protocol: int | None = None
    order: str | None = None
    """The type of the order that was refused."""


class _MessageType(msgspec.Struct):
    type: str


_encode = msgspec.json.Encoder().encode
_decode_type = msgspec.json.Decoder(_MessageType).decode
_decoders: dict[str, Callable[[bytes], ExecutorMessage | _Hello | _Error]] = {
    "hello": msgspec.json.Decoder(_Hello).decode,
    "error": msgspec.json.Decoder(_Error).decode,
    "started": msgspec.json.Decoder(StartConfirmation).decode,
    "failed_to_start": msgspec.json.Decoder(StartFailure).decode,
    "exited": msgspec.json.Decoder(ExitReport).decode,
    "prefetch_started": msgspec.json.Decoder(PrefetchStart).decode,
    "withdrawn": msgspec.json.Decoder(WithdrawConfirmation).decode,
    "pong": msgspec.json.Decoder(Pong).decode,
    "failure": msgspec.json.Decoder(ExecutorFailure).decode,
}
_PREFIX = {
    StartOrder: b'{"type":"start",',
    EnvironmentUpload: b'{"type":"environment",',
    PrefetchOrder: b'{"type":"prefetch",',
    WithdrawOrder: b'{"type":"withdraw",',
    StopOrder: b'{"type":"stop",',
    SignalOrder: b'{"type":"signal",',
    PingOrder: b'{"type":"ping"',  # this message has no fields
    AcknowledgeOrder: b'{"type":"acknowledge",',
}


class LocalExecutor:
    """Executor that runs commands through the home's supervisor, and starts a supervisor if none is running.

    `receive` may take up to `connect_timeout` seconds when it has to start a supervisor. It raises ServiceUnavailable
    if that fails, and Conflict if a newer scheduler has taken over; the next call tries again. A supervisor that does
    not answer the hello costs that time once: later calls check the same connection for the answer. One new connection
    for each call would fill the backlog of the socket and then block. A message that cannot be decoded ends the
    connection, because it may have been an exit report; the next connection repeats everything that matters.
    """

    def __init__(
        self,
        home: Path,
        generation: int | None,
        *,
        version: str = __version__,
        connect_timeout: float = CONNECT_TIMEOUT,
        are_cgroups_enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        """Connect if a generation is given; otherwise wait for `connect_as`. `are_cgroups_enabled` is called at each
        start of a supervisor."""
        self._home = home.resolve()
        self._generation = generation
        self._version = version
        self._connect_timeout = connect_timeout
        self._outgoing = bytearray()
        self._inbox: list[ExecutorMessage] = []
        self._line_reader = LineReader()
        self._sock: socket.socket | None = None
        self._pending_socket: socket.socket | None = None
        """A connection whose hello is not answered yet."""
        self._is_broken = True
        self._decode_error: str | None = None
        """Decode failure that `receive` has not raised yet."""
        self._is_awaiting_writable = False
        """Whether the socket is full: `fileno` then also reports when it takes more."""
        self._launcher = launcher.SupervisorLauncher(self._home, are_cgroups_enabled)
        self._epoll = select.epoll()
        self._wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup_fd, select.EPOLLIN)
        self.supervisor_pid = 0
        self.has_cgroups = False
        """Whether the supervisor puts each new run into a cgroup."""
        try:
            if generation is not None:
                self._connect()
        except BaseException:
            self.close()
            raise

    def connect_as(self, generation: int) -> None:
        """Connect now with this generation, and use it for all later connections."""
        self._generation = generation
        self._connect()

    @property
    def supports_prefetch(self) -> bool:
        """Return whether there is a connection."""
        return not self._is_broken

    def fileno(self) -> int:
        return self._epoll.fileno()

    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        if self._is_broken:
            return  # the next `RunInventory` settles it: an order that was not received was not executed
        for order in orders:
            self._outgoing += _PREFIX[type(order)] + _encode_order(order)[1:] + b"\n"
        self._flush()

    def withdraw(self, series: int, timeout: float) -> None:
        if self._is_broken:
            return
        deadline = time.monotonic() + timeout
        self.send([WithdrawOrder(series=series)])
        while not self._is_broken and not self._is_withdrawn(series) and self._wait_for_io(deadline):
            self._flush()
            self._receive_available()
        if self._inbox:
            os.eventfd_write(self._wakeup_fd, 1)  # the socket is drained, so it does not signal the new messages

    def _is_withdrawn(self, series: int) -> bool:
        return any(isinstance(message, WithdrawConfirmation) and message.series == series for message in self._inbox)

    def _wait_for_io(self, deadline: float) -> bool:
        """Wait until the supervisor has sent something, or the socket takes more of a non-empty buffer. Return False at
        the deadline."""
        remaining = deadline - time.monotonic()
        if self._sock is None or remaining <= 0:
            return False
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLOUT if self._outgoing else select.POLLIN)
        return bool(poll.poll(remaining * 1000))

    def receive(self) -> list[ExecutorMessage]:
        if self._generation is None:
            return []
        if self._is_broken and not self._inbox:
            try:
                self._raise_decode_error()
                self._connect()
            except BaseException:
                self._clear_wakeup()  # a caller that waits on `fileno` must not be woken in a busy loop
                raise
        elif not self._is_broken:  # otherwise `withdraw` found the break, and the inbox holds the messages before it
            self._flush()
            self._receive_available()
        messages, self._inbox = self._inbox, []
        if self._decode_error is None:
            self._clear_wakeup()
        return messages

    def _raise_decode_error(self) -> None:
        """Raise a decode failure once, so that the caller backs off: the next connection may fail the same way."""
        reason, self._decode_error = self._decode_error, None
        if reason is not None:
            raise ServiceUnavailable(reason)

    def request_exit(self) -> None:
        """Ask the supervisor to exit without waiting for another scheduler. A supervisor with live runs ignores it."""
        if not self._is_broken:
            with suppress(ProcessLookupError):
                os.kill(self.supervisor_pid, signal.SIGTERM)

    def close(self) -> None:
        """Close the connection. The supervisor stays while it has runs; the next scheduler repeats unsent orders."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._close_pending_socket()
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._wakeup_fd)
        self._launcher.close()

    # --- connection ---

    def _connect(self) -> None:
        deadline = time.monotonic() + self._connect_timeout
        os.eventfd_write(self._wakeup_fd, 1)  # keeps `fileno` readable until `receive` has returned the result
        self._close_socket()
        self._is_broken = True
        while True:
            try:
                sock, hello = self._handshake(deadline)
            except ExecutorNotAnswering:
                raise
            except OSError as error:
                self._close_pending_socket()
                if time.monotonic() >= deadline:
                    raise ServiceUnavailable(
                        self._launcher.with_log_tail("the supervisor closes every connection")
                    ) from error
                continue  # the supervisor was exiting or was killed: find or start the next one
            except BaseException:
                self._close_pending_socket()
                self._inbox = []  # without the inventory, the other messages have no meaning
                raise
            break
        sock.setblocking(False)
        self._sock = sock
        self._epoll.register(sock, select.EPOLLIN)
        self._is_awaiting_writable = False
        self._outgoing.clear()
        self._is_broken = False
        self.supervisor_pid, self.has_cgroups = hello.pid, hello.has_cgroups
        self._inbox.insert(0, RunInventory(runs=hello.runs))

    def _close_socket(self) -> None:
        if self._sock is not None:
            self._epoll.unregister(self._sock)
            self._sock.close()
            self._sock = None

    def _close_pending_socket(self) -> None:
        if self._pending_socket is not None:
            self._pending_socket.close()
            self._pending_socket = None

    def _handshake(self, deadline: float) -> tuple[socket.socket, _Hello]:
        """Send a hello and wait for the answer. Raises OSError if the connection breaks meanwhile, and
        ExecutorNotAnswering if there is no answer; the next call checks for the answer without waiting."""
        if self._pending_socket is None:
            try:
                self._pending_socket = self._launcher.connect(deadline)
            except OSError as error:  # a retry would not help: the home or this process lacks something
                raise ServiceUnavailable(f"the supervisor could not be started: {error}") from error
            self._send_hello(self._pending_socket)
            deadline = min(deadline, time.monotonic() + _HELLO_TIMEOUT)
        else:
            deadline = 0.0
        hello = self._receive_hello(self._pending_socket, deadline)
        sock, self._pending_socket = self._pending_socket, None
        return sock, hello

    def _send_hello(self, sock: socket.socket) -> None:
        self.supervisor_pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        hello = {
            "type": "hello",
            "protocol": PROTOCOL,
            "min_protocol": ACCEPTED_PROTOCOLS[0],
            "generation": self._generation,
            "version": self._version,
        }
        sock.settimeout(self._connect_timeout)
        sock.sendall(_encode(hello) + b"\n")
        self._line_reader = LineReader()

    def _receive_hello(self, sock: socket.socket, deadline: float) -> _Hello:
        lines: list[bytes] = []
        while not lines:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = sock.recv(_CHUNK_BYTES)
            except TimeoutError:
                raise ExecutorNotAnswering(f"the supervisor (pid {self.supervisor_pid}) does not answer") from None
            if not data:
                raise ConnectionResetError
            lines = self._line_reader.feed(data)
        self._inbox = []
        try:
            response = _decode_message(lines[0])
            for line in lines[1:]:
                self._handle_line(line)
        except _DECODE_ERRORS as error:
            raise ServiceUnavailable(_describe_decode_error(error)) from error
        if isinstance(response, _Error):
            self._raise_refusal(response)
        if not isinstance(response, _Hello):
            raise ServiceUnavailable(f"unexpected answer to hello from the supervisor: {lines[0][:200]!r}")
        return response

    def _raise_refusal(self, error: _Error) -> None:
        if error.protocol is not None and error.protocol not in ACCEPTED_PROTOCOLS:
            raise ServiceUnavailable(
                f"the running supervisor belongs to another version of Rota ({error.error}); it exits when its jobs "
                "have ended, and a new one replaces it: wait for that, or go back to the version that started it"
            )
        raise Conflict(f"the supervisor refused this scheduler: {error.error}")

    def _mark_broken(self, reason: str) -> None:
        """Treat the connection as broken until the next `receive`, which reconnects. The dead socket keeps `fileno`
        readable."""
        self._is_broken = True
        self._outgoing.clear()
        self._inbox.append(ConnectionLoss(reason=reason))

    def _receive_available(self) -> None:
        try:
            reason = self._read_socket()
        except _DECODE_ERRORS as error:
            reason = self._decode_error = _describe_decode_error(error)
            self._close_socket()
            os.eventfd_write(self._wakeup_fd, 1)
        if reason is not None:
            self._mark_broken(reason)

    # --- bytes ---

    def _flush(self) -> None:
        if not self._outgoing or self._sock is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            # The read detects the break too, after the last messages of the supervisor.
            self._outgoing.clear()
        if bool(self._outgoing) is not self._is_awaiting_writable:
            self._is_awaiting_writable = bool(self._outgoing)
            events = select.EPOLLIN | select.EPOLLOUT if self._is_awaiting_writable else select.EPOLLIN
            self._epoll.modify(self._sock, events)

    def _read_socket(self) -> str | None:
        """Read everything available. Return the reason if the connection has ended."""
        while self._sock is not None:
            try:
                data = self._sock.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                return f"the connection to the supervisor broke: {error.strerror}"
            if not data:
                return "the supervisor closed the connection"
            for line in self._line_reader.feed(data):
                self._handle_line(line)
            if len(data) < _CHUNK_BYTES:
                return None  # if more data or an end of file is pending, the descriptor stays readable
        return "closed"

    def _handle_line(self, line: bytes) -> None:
        message = _decode_message(line)
        if isinstance(message, _Error):
            _log.warning("the supervisor refused an order for run %s: %s", message.run, message.error)
            if message.run is not None and message.order == "start":
                self._inbox.append(StartRefusal(run=RunId(message.run), error=message.error))
        elif message is not None and not isinstance(message, _Hello):
            self._inbox.append(message)

    def _clear_wakeup(self) -> None:
        try:
            os.eventfd_read(self._wakeup_fd)
        except BlockingIOError:
            return


def _encode_order(order: ExecutorOrder) -> bytes:
    try:
        return _encode(order)
    except UnicodeEncodeError:
        # Arguments, paths and variables may hold bytes that are not UTF-8. Python represents them as lone surrogates,
        # which only its own encoder passes on.
        return json.dumps(msgspec.to_builtins(order)).encode()


def _describe_decode_error(error: Exception) -> str:
    return f"cannot decode a message from the supervisor ({error}); reconnecting"


def _decode_message(line: bytes) -> ExecutorMessage | _Hello | _Error | None:
    """Decode one line. Return None for a message type that only a newer supervisor knows."""
    decode = _decoders.get(_decode_type(line).type)
    return None if decode is None else decode(line)
