"""The socket: who may speak, and what was said.

One scheduler speaks at a time. A hello of the same or a higher generation takes over: the older connection is
closed with whatever it still holds unread, so that a start sent by a scheduler that has been replaced is never
carried out. A lower generation is refused.

Answers are collected and sent once for each turn of the loop; what nobody waits for is held back for a moment, for most
often something follows that can take it along. Nothing here ever waits for the peer: what the
socket does not take stays in memory (as much as there are ends to tell), and reading goes on meanwhile, so the
two sides cannot wait for each other.

An order that is refused, whichever it is, is none that the scheduler reckoned with: what it gave ahead is off.
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
from rota.executor.supervisor import field, protocol
from rota.executor.supervisor.keeper import Keeper
from rota.executor.supervisor.log import say
from rota.executor.supervisor.loop import READ, READ_WRITE, Loop, Timer
from rota.executor.supervisor.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHUNK = 1 << 18


class Connection:
    __slots__ = ("is_closed", "is_waiting", "lines", "out", "peer", "sock", "surroundings")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.peer: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.lines = protocol.Lines()
        self.out: list[bytes] = []
        self.surroundings: dict[int, dict[str, str]] = {}
        self.is_closed = False
        self.is_waiting = False
        """The socket is full: more is sent when it says that it takes more."""


class Server:
    def __init__(self, loop: Loop, keeper: Keeper, tree: Tree, boot: str) -> None:
        self._loop = loop
        self._keeper = keeper
        self._tree = tree
        self._boot = boot
        self._listener: socket.socket
        self._resting: Timer | None = None
        self._address = ""
        self._inode = 0
        self.scheduler: Connection | None = None
        self._is_urgent = False
        self._later: Timer | None = None
        self._due = 0.0
        self._mail = select.poll()
        self._is_reading = False
        """There may be more of what came together than has been gone through."""
        keeper.tell = self.tell
        keeper.ahead.has_mail = self._has_mail

    def listen(self, home: str) -> None:
        """Only the holder of the lock gets here, so what lies at the address is nobody's. Where nobody can come to the
        socket of before, this is another."""
        if self._address:
            self._stop_listening()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{home}/{protocol.SOCKET}")
        directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mask = os.umask(0o177)  # briefly: children are to get the user's own
        try:
            # An address has room for 107 bytes; through the descriptor a home of any length fits.
            self._listener.bind(f"/proc/self/fd/{directory}/{protocol.SOCKET}")
        finally:
            os.umask(mask)
            os.close(directory)
        self._listener.listen(16)
        self._address = f"{home}/{protocol.SOCKET}"
        self._inode = os.stat(self._address).st_ino
        self._watch_listener()

    @property
    def is_reachable(self) -> bool:
        """Whether what lies at the address is our own socket."""
        try:
            return os.stat(self._address).st_ino == self._inode
        except OSError:
            return False

    def leave(self) -> None:
        """Still under the lock, yet a home that was removed and made anew has another: only our own is unlinked."""
        with contextlib.suppress(OSError):
            if self.is_reachable:
                os.unlink(self._address)

    def _stop_listening(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        else:
            with contextlib.suppress(OSError):  # it may not have come so far as to be watched
                self._loop.forget(self._listener.fileno())
        self._listener.close()

    def _watch_listener(self) -> None:
        self._resting = None
        self._loop.watch(self._listener.fileno(), self._accept)

    def tell(self, line: bytes, *, within: float = 0.0) -> None:
        """What can wait so long goes with the next line that cannot, or when its time is over."""
        if self.scheduler is None:
            return
        self.scheduler.out.append(line)
        if not within:
            self._is_urgent = True
            return
        due = time.monotonic() + within
        if self._later is None or due < self._due:
            if self._later is not None:
                self._later.cancel()
            self._later, self._due = self._loop.at(due, self._hurry), due

    def _hurry(self) -> None:
        self._later, self._is_urgent = None, True

    def flush(self) -> None:
        if not self._is_urgent or self.scheduler is None or self.scheduler.is_waiting:
            return
        self._is_urgent = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self.scheduler.out:
            self._send(self.scheduler)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                say(f"a connection could not be accepted: {error.strerror}; waiting a second")
                self._loop.forget(self._listener.fileno())
                self._resting = self._loop.at(time.monotonic() + 1.0, self._watch_listener)
            return
        sock.setblocking(False)
        connection = Connection(sock)
        self._loop.watch(sock.fileno(), lambda: self._ready(connection))

    def _ready(self, connection: Connection) -> None:
        if connection.is_waiting:
            self._send(connection)
        self._is_reading = True
        try:
            for text in self._read(connection):
                if connection.is_closed:
                    return  # refused, or somebody took over: the rest is not for us
                self._take(connection, text)
        finally:
            self._is_reading = False
        self._keeper.ahead.go_on()

    def _has_mail(self) -> bool:
        if self.scheduler is None:
            return False
        if self._is_reading or self.scheduler.lines.is_within:
            return True
        self._mail.register(self.scheduler.sock, select.POLLIN)
        try:
            return bool(self._mail.poll(0))
        finally:
            self._mail.unregister(self.scheduler.sock)

    def _read(self, connection: Connection) -> list[bytes]:
        try:
            data = b"" if connection.is_closed else connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._close(connection)
        return connection.lines.feed(data)

    def _send(self, connection: Connection) -> None:
        data = b"".join(connection.out)
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        connection.out = [data[sent:]] if sent < len(data) else []
        is_waiting = sent < len(data)
        if is_waiting is not connection.is_waiting:
            connection.is_waiting = is_waiting
            self._loop.change(connection.sock.fileno(), READ_WRITE if is_waiting else READ)

    def _close(self, connection: Connection) -> None:
        if not connection.is_closed:
            connection.is_closed = True
            self._loop.forget(connection.sock.fileno())
            with contextlib.suppress(OSError):
                # A child whose program is being loaded still has a copy, and as long as that the peer would see no end.
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.sock.close()
        if connection is self.scheduler:
            self.scheduler = None
            self._tree.schedulers.discard(connection.peer)
            self._keeper.ahead.forget()

    def _take(self, connection: Connection, text: bytes) -> None:
        """One message. What cannot be understood is said so and costs nobody else anything."""
        message: dict[str, Any] = {}
        try:
            message = protocol.parse(text)
            if connection is self.scheduler:
                problem = self._obey(connection, message)
            else:
                problem = self._greet(connection, message)
        except field.NOT_UNDERSTOOD as error:
            problem = f"not understood: {error!r:.300}"
            say(f"{problem}: {text[:200]!r}")
        if problem is not None:
            self._is_urgent = True
            connection.out.append(protocol.refusal(problem, message))
            if connection is self.scheduler:
                self._keeper.ahead.end()
            else:
                self._send(connection)
                self._close(connection)

    def _obey(self, connection: Connection, message: dict[str, Any]) -> str | None:
        match message["type"]:
            case "start":
                field.check_start(message)
                if self._keeper.ahead.is_waiting:
                    self._keeper.ahead.end()  # this one was not to come before those
                surroundings = connection.surroundings.get(message["surroundings"])
                is_fine = self._keeper.start(message, surroundings)
                return None if is_fine else protocol.KNOWN
            case "ahead":
                self._keeper.ahead.give(message, connection.surroundings)
                return None
            case "withdraw":
                self._keeper.ahead.withdraw(field.whole(message, "series"))
                return None
            case "environment":
                connection.surroundings[message["surroundings"]] = field.variables(message, "variables")
                return None
            case "stop":
                kill_after = field.maybe_seconds(message, "kill_after")
                return None if self._keeper.stop(field.whole(message, "run"), kill_after) else "no such run"
            case "signal":
                return (
                    None
                    if self._keeper.signal(field.whole(message, "run"), field.whole(message, "number"))
                    else "no such run"
                )
            case "acknowledge":
                return None if self._keeper.acknowledge(field.whole(message, "run")) else "this run has not ended"
            case unknown:
                return f"unknown message: {unknown!r:.100}"

    def _greet(self, connection: Connection, message: dict[str, Any]) -> str | None:
        if message["type"] != "hello":
            return "a hello is expected first"
        version = protocol.agree(message["protocol"], message.get("oldest", message["protocol"]))
        if version is None:
            return f"protocol {message['protocol']} is not spoken here, only {list(protocol.ACCEPTED)}"
        if not self._keeper.take_over(field.whole(message, "generation")):
            return f"generation {message['generation']} is over: {self._keeper.generation} has taken over"
        if self.scheduler is not None:
            self._close(self.scheduler)
        self.scheduler = connection
        self._tree.schedulers.add(connection.peer)
        connection.out.append(
            protocol.line(
                type="hello",
                protocol=version,
                pid=os.getpid(),
                boot=self._boot,
                version=__version__,
                accounts=self._keeper.accounts(),
            )
        )
        connection.out.extend(self._keeper.ends())
        if self._keeper.trouble is not None:
            connection.out.append(protocol.line(type="trouble", trouble=self._keeper.trouble))
        self._is_urgent = True
        return None
