"""The executor on this machine: the scheduler's end of the supervisor's socket.

    engine ── send ──► out-buffer ──► socket ──► supervisor
       ▲                                │
       └── receive ◄── inbox ◄──────────┘          a break: Lost, then a new connection, then Accounts

Neither side can wait for the other. The supervisor never blocks on a send and always reads on; here the socket
is non-blocking too, and what it does not take stays in the out-buffer. That buffer must not wait for an
answer to be flushed, because an environment or an acknowledgement gets none. So `fileno` is an epoll instance,
which a selector can wait on like any other descriptor. It is readable when the supervisor has said something,
and, while something is left in the buffer, also when the socket takes more; `receive` then sends it.
It stays the same over reconnects. An eventfd in it says that the inbox holds what came with the connection, or while
`withdraw` waited for something else.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rota import __version__
from rota.errors import Conflict, Unavailable
from rota.executor import starter
from rota.executor.port import (
    Account,
    Accounts,
    Acknowledge,
    Ahead,
    Environment,
    Exited,
    FailedToStart,
    Lost,
    Message,
    Order,
    Refused,
    Signal,
    Start,
    Started,
    Stop,
    Taken,
    Trouble,
    Withdraw,
    Withdrawn,
)
from rota.executor.supervisor.protocol import ACCEPTED, AHEAD, PROTOCOL, Lines
from rota.ids import RunId

CONNECT_WAIT = 10.0
_CHUNK = 1 << 18

_log = logging.getLogger(__name__)

_UNREADABLE = (ValueError, RecursionError)
"""What reading a line can raise."""


class _Hello(msgspec.Struct):
    protocol: int
    pid: int
    boot: str
    version: str
    accounts: list[Account]


class _Error(msgspec.Struct):
    error: str
    run: int | None = None
    protocol: int | None = None
    order: str | None = None
    """Which order it answers."""


class _Head(msgspec.Struct):
    type: str


_encode = msgspec.json.Encoder().encode
_head = msgspec.json.Decoder(_Head).decode
_body: dict[str, Callable[[bytes], Message | _Hello | _Error]] = {
    "hello": msgspec.json.Decoder(_Hello).decode,
    "error": msgspec.json.Decoder(_Error).decode,
    "started": msgspec.json.Decoder(Started).decode,
    "failed_to_start": msgspec.json.Decoder(FailedToStart).decode,
    "exited": msgspec.json.Decoder(Exited).decode,
    "taken": msgspec.json.Decoder(Taken).decode,
    "withdrawn": msgspec.json.Decoder(Withdrawn).decode,
    "trouble": msgspec.json.Decoder(Trouble).decode,
}
_PREFIX = {
    Start: b'{"type":"start",',
    Environment: b'{"type":"environment",',
    Ahead: b'{"type":"ahead",',
    Withdraw: b'{"type":"withdraw",',
    Stop: b'{"type":"stop",',
    Signal: b'{"type":"signal",',
    Acknowledge: b'{"type":"acknowledge",',
}


class LocalExecutor:
    """Runs are started by the home's supervisor, which is started when it is not there.

    `receive` may take up to `wait` seconds when the supervisor has to be started anew. It raises Unavailable
    when there is none to be had, and Conflict when a newer scheduler has taken over; the next call tries again.
    What the supervisor says and nobody can read ends the connection: it may have been an end, and on the next one all
    that matters is told again.
    """

    def __init__(
        self, home: Path, generation: int | None, *, version: str = __version__, wait: float = CONNECT_WAIT
    ) -> None:
        """Without a generation nobody is spoken to before `introduce`."""
        self._home = home.resolve()
        self._generation = generation
        self._version = version
        self._wait = wait
        self._out = bytearray()
        self._inbox: list[Message] = []
        self._lines = Lines()
        self._sock: socket.socket | None = None
        self._is_broken = True
        self._nonsense: str | None = None
        """What was said that cannot be read, until somebody has heard of it."""
        self._wants_room = False
        """The socket was full: `fileno` says when it takes more."""
        self._starter = starter.Starter(self._home)
        self._epoll = select.epoll()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._news, select.EPOLLIN)
        self.supervisor_pid = 0
        self._spoken = PROTOCOL
        """The version that this supervisor and we have in common."""
        try:
            if generation is not None:
                self._connect()
        except BaseException:
            self.close()
            raise

    def introduce(self, generation: int) -> None:
        """Speak for this generation, from the next connection on, which is tried now."""
        self._generation = generation
        self._connect()

    @property
    def goes_ahead(self) -> bool:
        """Whether there is one, and it knows how."""
        return not self._is_broken and self._spoken >= AHEAD

    def fileno(self) -> int:
        return self._epoll.fileno()

    def send(self, orders: Sequence[Order]) -> None:
        if self._is_broken:
            return  # `Accounts` will say what became of everything; what was not heard was not done
        for order in orders:
            if self.goes_ahead or not isinstance(order, Ahead | Withdraw):
                self._out += _PREFIX[type(order)] + _encoded(order)[1:] + b"\n"
        self._flush()

    def withdraw(self, series: int, patience: float) -> None:
        if not self.goes_ahead:
            return
        deadline = time.monotonic() + patience
        self.send([Withdraw(series=series)])
        while not self._is_broken and not self._has_withdrawn(series) and self._waits(deadline):
            self._flush()
            self._take_in()
        if self._inbox:
            os.eventfd_write(self._news, 1)  # the socket has been read, and says no more that something came

    def _has_withdrawn(self, series: int) -> bool:
        return any(isinstance(message, Withdrawn) and message.series == series for message in self._inbox)

    def _waits(self, deadline: float) -> bool:
        """Until the supervisor has said something, or takes more while there is more. False when the time is over."""
        left = deadline - time.monotonic()
        if self._sock is None or left <= 0:
            return False
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLOUT if self._out else select.POLLIN)
        return bool(poll.poll(left * 1000))

    def receive(self) -> list[Message]:
        if self._generation is None:
            return []
        if self._is_broken and not self._inbox:
            try:
                self._complain()
                self._connect()
            except BaseException:
                self._clear_news()  # there is none: who waits on `fileno` must not be called at once, over and over
                raise
        elif not self._is_broken:  # else what came before the break has not been given out yet: `withdraw` found it
            self._flush()
            self._take_in()
        messages, self._inbox = self._inbox, []
        if self._nonsense is None:
            self._clear_news()
        return messages

    def _complain(self) -> None:
        """Once, so that somebody hears of it and waits a while: the next connection may come to the same."""
        reason, self._nonsense = self._nonsense, None
        if reason is not None:
            raise Unavailable(reason)

    def close(self) -> None:
        """The supervisor stays while it has runs. What was not flushed is asked again by the next scheduler."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._news)
        self._starter.close()

    # --- connection ---

    def _connect(self) -> None:
        deadline = time.monotonic() + self._wait
        os.eventfd_write(self._news, 1)  # `fileno` stays readable until `receive` has returned what came of it
        self._hang_up()
        self._is_broken = True
        while True:
            sock = self._starter.connect(deadline)
            try:
                hello = self._greet(sock, deadline)
            except OSError as error:
                sock.close()
                if time.monotonic() >= deadline:
                    raise Unavailable(self._starter.explain("the supervisor closes every connection")) from error
                continue  # it was ending, or was killed: find or start the next one
            except BaseException:
                sock.close()
                self._inbox = []  # without the accounts nobody could make anything of the rest
                raise
            break
        sock.setblocking(False)
        self._sock = sock
        self._epoll.register(sock, select.EPOLLIN)
        self._wants_room = False
        self._out.clear()
        self._is_broken = False
        self.supervisor_pid = hello.pid
        self._spoken = hello.protocol
        self._inbox.insert(0, Accounts(runs=hello.accounts))

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._epoll.unregister(self._sock)
            self._sock.close()
            self._sock = None

    def _greet(self, sock: socket.socket, deadline: float) -> _Hello:
        """Say hello and wait for the answer. OSError when the connection breaks meanwhile."""
        hello = {
            "type": "hello",
            "protocol": PROTOCOL,
            "oldest": ACCEPTED[0],
            "generation": self._generation,
            "version": self._version,
        }
        sock.settimeout(self._wait)
        sock.sendall(_encode(hello) + b"\n")
        self._lines = Lines()
        lines: list[bytes] = []
        while not lines:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = sock.recv(_CHUNK)
            except TimeoutError:
                raise Unavailable(self._starter.explain("the supervisor does not answer")) from None
            if not data:
                raise ConnectionResetError
            lines = self._lines.feed(data)
        self._inbox = []
        try:
            answer = _decode(lines[0])
            for line in lines[1:]:
                self._take(line)
        except _UNREADABLE as error:
            raise Unavailable(_explain_nonsense(error)) from error
        if isinstance(answer, _Error):
            self._refused(answer)
        if not isinstance(answer, _Hello):
            raise Unavailable(f"the supervisor answered something else than hello: {lines[0][:200]!r}")
        return answer

    def _refused(self, answer: _Error) -> None:
        if answer.protocol is not None and answer.protocol not in ACCEPTED:
            raise Unavailable(
                f"the running supervisor is of another version of Rota ({answer.error}); it leaves when its jobs have "
                "ended, and a new one takes over by itself: wait for that, or go back to the version that started it"
            )
        raise Conflict(f"the supervisor does not take orders from this scheduler: {answer.error}")

    def _break(self, reason: str) -> None:
        """From here on until the next `receive`, which connects anew. The dead socket keeps `fileno` readable."""
        self._is_broken = True
        self._out.clear()
        self._inbox.append(Lost(reason=reason))

    def _take_in(self) -> None:
        try:
            reason = self._read()
        except _UNREADABLE as error:
            reason = self._nonsense = _explain_nonsense(error)
            self._hang_up()
            os.eventfd_write(self._news, 1)
        if reason is not None:
            self._break(reason)

    # --- bytes ---

    def _flush(self) -> None:
        if not self._out or self._sock is None:
            return
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            # Reading finds the break too, after whatever the supervisor still said.
            self._out.clear()
        if bool(self._out) is not self._wants_room:
            self._wants_room = bool(self._out)
            events = select.EPOLLIN | select.EPOLLOUT if self._wants_room else select.EPOLLIN
            self._epoll.modify(self._sock, events)

    def _read(self) -> str | None:
        """Take in all there is; the reason if there will be no more."""
        while self._sock is not None:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError:
                return None
            except OSError as error:
                return f"the connection to the supervisor broke: {error.strerror}"
            if not data:
                return "the supervisor closed the connection"
            for line in self._lines.feed(data):
                self._take(line)
            if len(data) < _CHUNK:
                return None  # if there is more, or an end, the descriptor stays readable
        return "closed"

    def _take(self, line: bytes) -> None:
        message = _decode(line)
        if isinstance(message, _Error):
            _log.warning("the supervisor refused an order for run %s: %s", message.run, message.error)
            if message.run is not None and message.order == "start":
                self._inbox.append(Refused(run=RunId(message.run), error=message.error))
        elif message is not None and not isinstance(message, _Hello):
            self._inbox.append(message)

    def _clear_news(self) -> None:
        try:
            os.eventfd_read(self._news)
        except BlockingIOError:
            return


def _encoded(order: Order) -> bytes:
    try:
        return _encode(order)
    except UnicodeEncodeError:
        # Arguments, paths and variables may hold bytes that are not UTF-8. Python carries them as lone
        # surrogates, which only its own encoder passes on.
        return json.dumps(msgspec.to_builtins(order)).encode()


def _explain_nonsense(error: Exception) -> str:
    return f"the supervisor said something that cannot be read ({error}); it is asked again"


def _decode(line: bytes) -> Message | _Hello | _Error | None:
    """None for what a newer supervisor may say and this version does not know."""
    decode = _body.get(_head(line).type)
    return None if decode is None else decode(line)
