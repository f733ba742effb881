"""A command's dealings with one home's scheduler: asks in, JSON out. How they are carried out, `carry` says."""

from __future__ import annotations

import select
import sys
import time

from rota.client.ask import MOST_LISTED, PATIENCE, Ask
from rota.client.carry import Carrier, bring_back, each, run
from rota.client.transport import Answer, HomeSocket, Stream, send
from rota.home import Home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from rota.client.ask import Json
    from rota.client.message import Message
    from rota.client.transport import Place


_SILENCE = 5.0
"""Seconds without an answer after which that is said."""


class Pulled:
    """A stream of a program that blocks."""

    __slots__ = ("stream",)

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @property
    def status(self) -> int:
        return self.stream.status

    @property
    def headers(self) -> dict[str, str]:
        return self.stream.headers

    @property
    def finished(self) -> bool:
        return self.stream.finished

    async def receive(self) -> bytes:
        return self.stream.receive()

    def close(self) -> None:
        self.stream.close()


class Blocking(Carrier):
    def __init__(self, place: Place, home: Home | None, *, starts: bool, away: float | None = 0.0) -> None:
        """`home` is where a scheduler can be started, if that is at the place at all."""
        super().__init__(starts=starts and home is not None, away=away)
        self._place = place
        self._home = home

    async def send(self, ask: Ask) -> Pulled:
        return Pulled(send(self._place, ask))

    async def start(self) -> None:
        assert self._home is not None  # noqa: S101 - else nothing is started
        bring_back(self._home, answered=self.answered, bears=self.bears)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this one blocks, and there is no event loop


class _Talking(Blocking):
    """For a command, before which somebody may sit."""

    def tell(self, text: str) -> None:
        print(f"rota: {text}", file=sys.stderr, flush=True)

    def begun(self, incoming: Any, ask: Ask) -> None:
        """A scheduler that is stopped by a signal, or whose file system does not answer, still takes requests."""
        if ask.patience is None:
            return
        poll = select.poll()
        poll.register(incoming.stream, select.POLLIN)
        if not poll.poll((_SILENCE + ask.patience - PATIENCE) * 1000):
            self.tell(f"the scheduler (pid {incoming.stream.peer}) does not answer; waiting for it")


class Session:
    def __init__(self, home: Home, *, starts: bool = True) -> None:
        self.home = home
        self._carrier = _Talking(HomeSocket(home), home, starts=starts)

    @property
    def answered(self) -> bool:
        """Whether this command has heard from the scheduler. Who reads a stream of `open` says so himself."""
        return self._carrier.answered

    @answered.setter
    def answered(self, is_so: bool) -> None:
        self._carrier.answered = is_so

    def ask(self, ask: Ask) -> Any:
        """The answer's JSON."""
        return self.answer(ask).json()

    def answer(self, ask: Ask) -> Answer:
        """The whole answer."""
        return run(self._carrier.ask(ask))

    def open(self, ask: Ask) -> Stream:
        """The caller reads the answer."""
        incoming = run(self._carrier.open(ask))
        assert isinstance(incoming, Pulled)  # noqa: S101 - as it was sent
        return incoming.stream

    def listen(self, build: Callable[[str | None], Ask]) -> Iterator[Message]:
        """What happens, without end; `build` makes the request from the id of the last message."""
        from rota.client.listen import listen

        return each(listen(self._carrier, build))

    def pages(self, build: Callable[..., Ask], name: str, **asked: object) -> Iterator[Json]:
        """All of a list, page by page."""
        cursor: str | None = None
        while True:
            answer = self.ask(build(**asked, limit=MOST_LISTED, cursor=cursor))
            yield from answer[name]
            cursor = answer.get("next")
            if cursor is None:
                return
