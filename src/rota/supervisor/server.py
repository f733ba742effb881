"""Socket server: the supervisor's side of the socket between scheduler and supervisor (`executor/local.py` is the other
side). It admits schedulers and handles their messages.

One scheduler is connected at a time. A hello of the same or a higher generation takes over: the older connection is
closed with all its unread messages, so that a start sent by a replaced scheduler is never executed. A lower generation
is refused.

Answers are collected and sent once per iteration of the loop. Answers that are not urgent are delayed briefly, because
most often another one follows. Sending never blocks: bytes that the socket does not take stay in memory; their number
is bounded by the number of unreported exits. Reading continues meanwhile, so the two sides cannot block each other.

The scheduler does not expect a refusal, so a refused order of any kind ends the open series of prefetched runs.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH108, PTH116
from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time

from rota import __version__
from rota.supervisor import protocol
from rota.supervisor.child_manager import ChildManager
from rota.supervisor.event_loop import READ, READ_WRITE, EventLoop, Timer
from rota.supervisor.log import write_log
from rota.supervisor.tree import ProcessTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHUNK_BYTES = 1 << 18


class SchedulerConnection:
    __slots__ = ("environments", "is_blocked", "is_closed", "line_reader", "outgoing", "peer_pid", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.peer_pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.line_reader = protocol.LineReader()
        self.outgoing: list[bytes] = []
        self.environments: dict[int, dict[str, str]] = {}
        self.is_closed = False
        self.is_blocked = False
        """Whether the socket is full: the rest is sent when it takes more."""


class SupervisorServer:
    def __init__(self, loop: EventLoop, child_manager: ChildManager, tree: ProcessTree, boot: str) -> None:
        self._loop = loop
        self._child_manager = child_manager
        self._tree = tree
        self._boot = boot
        self._listener: socket.socket
        self._accept_retry_timer: Timer | None = None
        self._socket_path = ""
        self._inode = 0
        self.scheduler: SchedulerConnection | None = None
        self._should_flush = False
        self._flush_timer: Timer | None = None
        self._flush_at = 0.0
        self._unread_poll = select.poll()
        self._is_reading = False
        """Whether received messages may still wait to be processed."""
        child_manager.send_line = self.send_line
        child_manager.prefetch.has_unread_messages = self._has_unread_messages

    def listen(self, home: str) -> None:
        """Listen on the home's socket, and replace an earlier socket that is unreachable. The caller holds the
        supervisor's lock on the home, so an existing file at the address belongs to no live supervisor."""
        if self._socket_path:
            self._stop_listening()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{home}/{protocol.SOCKET}")
        directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mask = os.umask(0o177)  # briefly: children must get the user's own umask
        try:
            # A socket address has at most 107 bytes; through the descriptor a home path of any length fits.
            self._listener.bind(f"/proc/self/fd/{directory}/{protocol.SOCKET}")
        finally:
            os.umask(mask)
            os.close(directory)
        self._listener.listen(16)
        self._socket_path = f"{home}/{protocol.SOCKET}"
        self._inode = os.stat(self._socket_path).st_ino
        self._watch_listener()

    @property
    def is_reachable(self) -> bool:
        """Return whether the file at the address is this server's socket."""
        try:
            return os.stat(self._socket_path).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Remove the socket, unless the home was removed and created again: then the file belongs to another
        supervisor."""
        with contextlib.suppress(OSError):
            if self.is_reachable:
                os.unlink(self._socket_path)

    def _stop_listening(self) -> None:
        if self._accept_retry_timer is not None:
            self._accept_retry_timer.cancel()
            self._accept_retry_timer = None
        else:
            with contextlib.suppress(OSError):  # it may not be watched yet
                self._loop.unwatch(self._listener.fileno())
        self._listener.close()

    def _watch_listener(self) -> None:
        self._accept_retry_timer = None
        self._loop.watch(self._listener.fileno(), self._accept)

    def send_line(self, line: bytes, *, within: float = 0.0) -> None:
        """Queue a line. With `within`, it may wait that many seconds to be sent with a more urgent one."""
        if self.scheduler is None:
            return
        self.scheduler.outgoing.append(line)
        if not within:
            self._should_flush = True
            return
        due = time.monotonic() + within
        if self._flush_timer is None or due < self._flush_at:
            if self._flush_timer is not None:
                self._flush_timer.cancel()
            self._flush_timer, self._flush_at = self._loop.call_at(due, self._request_flush), due

    def _request_flush(self) -> None:
        self._flush_timer, self._should_flush = None, True

    def flush(self) -> None:
        if not self._should_flush or self.scheduler is None or self.scheduler.is_blocked:
            return
        self._should_flush = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self.scheduler.outgoing:
            self._send(self.scheduler)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                write_log(f"cannot accept a connection: {error.strerror}; retrying in a second")
                self._loop.unwatch(self._listener.fileno())
                self._accept_retry_timer = self._loop.call_at(time.monotonic() + 1.0, self._watch_listener)
            return
        sock.setblocking(False)
        connection = SchedulerConnection(sock)
        self._loop.watch(sock.fileno(), lambda: self._handle_ready(connection))

    def _handle_ready(self, connection: SchedulerConnection) -> None:
        if connection.is_blocked:
            self._send(connection)
        self._is_reading = True
        try:
            for line in self._read(connection):
                if connection.is_closed:
                    return  # refused, or replaced by another scheduler: the rest does not count
                self._handle_message(connection, line)
        finally:
            self._is_reading = False
        self._child_manager.prefetch.start_next()

    def _has_unread_messages(self) -> bool:
        if self.scheduler is None:
            return False
        if self._is_reading or self.scheduler.line_reader.has_partial_line:
            return True
        self._unread_poll.register(self.scheduler.sock, select.POLLIN)
        try:
            return bool(self._unread_poll.poll(0))
        finally:
            self._unread_poll.unregister(self.scheduler.sock)

    def _read(self, connection: SchedulerConnection) -> list[bytes]:
        try:
            data = b"" if connection.is_closed else connection.sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._close(connection)
        return connection.line_reader.feed(data)

    def _send(self, connection: SchedulerConnection) -> None:
        data = b"".join(connection.outgoing)
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.outgoing = [data[sent:]] if sent < len(data) else []
        is_waiting = sent < len(data)
        if is_waiting is not connection.is_blocked:
            connection.is_blocked = is_waiting
            self._loop.set_events(connection.sock.fileno(), READ_WRITE if is_waiting else READ)

    def _close(self, connection: SchedulerConnection) -> None:
        if not connection.is_closed:
            connection.is_closed = True
            self._loop.unwatch(connection.sock.fileno())
            with contextlib.suppress(OSError):
                # A child that is still in its exec has a copy of the socket; without a shutdown the peer would see no
                # end until then.
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.sock.close()
        if connection is self.scheduler:
            self.scheduler = None
            self._tree.scheduler_pids.discard(connection.peer_pid)
            self._child_manager.prefetch.reset()

    def _handle_message(self, connection: SchedulerConnection, line: bytes) -> None:
        """Process one message. An invalid one is refused and has no other effect."""
        message: dict[str, Any] = {}
        try:
            message = protocol.parse_message(line)
            if connection is self.scheduler:
                problem = self._execute_order(connection, message)
            else:
                problem = self._handle_hello(connection, message)
        except protocol.PARSE_ERRORS as error:
            problem = f"invalid message: {error!r:.300}"
            write_log(f"{problem}: {line[:200]!r}")
        if problem is not None:
            self._should_flush = True
            connection.outgoing.append(protocol.encode_refusal(problem, message))
            if connection is self.scheduler:
                self._child_manager.prefetch.end_series()
            else:
                self._send(connection)
                self._close(connection)

    def _execute_order(self, connection: SchedulerConnection, message: dict[str, Any]) -> str | None:
        match message["type"]:
            case "start":
                protocol.check_start(message)
                if self._child_manager.prefetch.has_pending:
                    # The scheduler orders a start only when it no longer counts on the prefetched ones.
                    self._child_manager.prefetch.end_series()
                environment = connection.environments.get(message["environment_id"])
                is_new = self._child_manager.start(message, environment)
                return None if is_new else protocol.DUPLICATE_RUN
            case "prefetch":
                self._child_manager.prefetch.enqueue(message, connection.environments)
                return None
            case "withdraw":
                self._child_manager.prefetch.withdraw(protocol.read_integer(message, "series"))
                return None
            case "ping":
                self.send_line(protocol.encode_message(type="pong"))
                return None
            case "environment":
                connection.environments[message["environment_id"]] = protocol.read_variables(message, "variables")
                return None
            case "stop":
                kill_after = protocol.read_optional_seconds(message, "kill_after")
                return (
                    None
                    if self._child_manager.stop(protocol.read_integer(message, "run"), kill_after)
                    else "no such run"
                )
            case "signal":
                return (
                    None
                    if self._child_manager.send_signal(
                        protocol.read_integer(message, "run"), protocol.read_integer(message, "number")
                    )
                    else "no such run"
                )
            case "acknowledge":
                return (
                    None
                    if self._child_manager.acknowledge(protocol.read_integer(message, "run"))
                    else "this run has not ended"
                )
            case unknown:
                return f"unknown message: {unknown!r:.100}"

    def _handle_hello(self, connection: SchedulerConnection, message: dict[str, Any]) -> str | None:
        if message["type"] != "hello":
            return "the first message must be a hello"
        version = protocol.negotiate_version(message["protocol"], message.get("min_protocol", message["protocol"]))
        if version is None:
            return f"protocol {message['protocol']} is not supported, only {list(protocol.ACCEPTED_PROTOCOLS)}"
        if not self._child_manager.accept_generation(protocol.read_integer(message, "generation")):
            return f"generation {message['generation']} was replaced by generation {self._child_manager.generation}"
        if self.scheduler is not None:
            self._close(self.scheduler)
        self.scheduler = connection
        self._tree.scheduler_pids.add(connection.peer_pid)
        connection.outgoing.append(
            protocol.encode_message(
                type="hello",
                protocol=version,
                pid=os.getpid(),
                boot=self._boot,
                version=__version__,
                has_cgroups=self._child_manager.has_cgroups,
                runs=self._child_manager.inventory(),
            )
        )
        connection.outgoing.extend(self._child_manager.reportable_ends())
        if self._child_manager.error is not None:
            connection.outgoing.append(protocol.encode_message(type="failure", error=self._child_manager.error))
        self._should_flush = True
        return None
