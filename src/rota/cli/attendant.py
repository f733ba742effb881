"""The client of a direct execution: it is there until the command has ended, through restarts of the scheduler.

    reserve ─▶ stream ─▶ … ─▶ ended
                 │ broken off
                 └─▶ come back with the slot's id and how much of its output is here ─▶ stream

The slot hangs on the stream's connection, so whatever becomes of this process nothing of the slot is left behind.
SIGINT and SIGTERM cancel it and wait until it is gone; a second one leaves at once. What else is sent to us is meant
for the command: it is passed on where there is one, and ends the waiting where there is none.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

from rota.cli.outlet import Outlet, SignalPipe, pause, wait_readable
from rota.cli.terminal import talk
from rota.client.absence import STORE_LOOK, StoreAbsence
from rota.client.ask.slot import attend_new_slot, attend_slot, cancel_slot, signal_slot
from rota.client.frame import Frames
from rota.client.problem import Broken
from rota.client.session import Session
from rota.client.transport import Stream
from rota.errors import Conflict, InvalidInput, NotFound, StoreAway, Unavailable, WaitOver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

LEAVE = (signal.SIGINT, signal.SIGTERM)
PASS_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PERHAPS = "the request had been sent before that, and the command may have been started: look with `rota slot list`"
_MOMENT = 0.05
_LOOK_FOR_SCHEDULER = 0.5
"""Seconds: nothing tells that it was started again."""


class Left(Exception):
    """The user does not want to wait any longer."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Attendant:
    def __init__(self, session: Session, say: Callable[[str], None], *, is_all_talk: bool) -> None:
        """`is_all_talk`: our stdout is for something else, so all of the output goes to stderr."""
        self._session = session
        self._say = say
        self._signals = SignalPipe((*LEAVE, *PASS_ON))
        descriptors = {"stdout": 2 if is_all_talk else 1, "stderr": 2}
        self._outlets = {name: Outlet(number, self._signals, self._on_signals) for name, number in descriptors.items()}
        self._copied = dict.fromkeys(descriptors, 0)
        self._slot: str | None = None
        self._form: Json | None = None
        self._deadline: float | None = None
        """When the wait for its turn is over, on our own clock: it goes on while no scheduler is there."""
        self._told: str | None = None
        self._early: list[int] = []
        """Signals that came before it was known which slot they are for."""
        self._leaving: int | None = None
        self._is_away = False
        """There is no scheduler."""
        self._cancelling: Stream | None = None
        self._absence = StoreAbsence()

    def close(self) -> None:
        self._signals.close()
        if self._cancelling is not None:
            self._cancelling.close()

    def attend(self, request: Json) -> Json:
        """How it ended. Raises Left where somebody would not wait for that."""
        while self._is_refused_for_now(request):
            pass
        while self._form is None or self._form["finished_at"] is None:
            self._pause(_MOMENT)
            try:
                self._follow(self._come_back())
            except Broken:
                continue
            except StoreAway as error:
                self._bear(error)
        return self._form

    def _is_refused_for_now(self, request: Json) -> bool:
        """Follow it from its beginning. True where nothing was stored, and it can be asked for again."""
        try:
            self._follow(self._session.open(attend_new_slot(request)))
        except Broken as error:
            if self._slot is None:  # asked again it might be done twice
                raise Unavailable(f"{error.message}\n{_PERHAPS}") from error
        except StoreAway as error:
            self._bear(error)
            return self._slot is None
        return False

    def _bear(self, error: StoreAway) -> None:
        self._absence.bear(error)
        if self._told != error.message:
            self._told = error.message
            self._say(f"{error.message}; waiting for it")
        self._pause(STORE_LOOK)

    def left_by(self, ended: Json) -> int | None:
        """The signal on account of which it was cancelled; none where it ended otherwise."""
        return self._leaving if ended["status"] == "CANCELLED" else None

    # The stream.

    def _follow(self, stream: Stream) -> None:
        """Until it has ended or the stream has."""
        frames = Frames()
        with stream:
            while not stream.finished:
                wait_readable(stream, self._signals, self._on_signals)
                for head, payload in frames.feed(stream.receive()):
                    self._take(head, payload)

    def _take(self, head: Json, payload: bytes) -> None:
        self._session.answered, self._is_away = True, False
        self._absence.over()
        if "stream" in head:
            self._outlets[head["stream"]].write(payload)
            self._copied[head["stream"]] += len(payload)
        elif "slot" in head:
            self._form = head["slot"]
            self._tell(head["slot"])
            early, self._early = self._early, []
            self._handle(early)
        else:
            self._slot, left = head["id"], head.get("wait")
            self._deadline = None if left is None else time.monotonic() + left
            if head.get("warning"):
                self._say(f"warning: {head['warning']}")

    def _tell(self, form: Json) -> None:
        """What holds it, each time that is something else; then that it starts, and why it ended badly."""
        said = None
        if form["status"] == "WAITING":
            said = f"{form['id']}: {form.get('why') or 'waiting for its turn'}{_own_parent(form)}"
        elif form["status"] == "RUNNING":
            said = None if self._told is None else f"{form['id']} starts"
        elif form["reason"] and form["reason"] != f"exit code {form['exit_code']}":
            said = f"{form['id']} {form['status']}: {form['reason']}"
        if said is not None and said != self._told:
            self._told = said
            self._say(said)

    def _come_back(self) -> Stream:
        assert self._slot is not None  # noqa: S101 - who has no slot has nothing to come back to
        self._is_away = True
        told = None
        while True:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            wait = None if left is None else f"{max(0.001, left):.3f}s"
            try:
                stream = self._session.open(attend_slot(self._slot, self._copied, wait=wait))
            except StoreAway:
                raise  # there is a scheduler
            except Unavailable as error:
                if told != error.message:
                    told = error.message
                    self._say(f"{self._slot} waits for the scheduler: {error.message}")
                if left is not None and left <= 0 and not self._is_running:
                    raise WaitOver(f"{self._slot}: its turn did not come in time; nothing of it ran") from None
                self._pause(_LOOK_FOR_SCHEDULER)
                continue
            if self._leaving is not None:
                self._ask_to_cancel()
            return stream

    def _pause(self, seconds: float) -> None:
        pause(seconds, self._signals, self._on_signals)

    # Signals.

    def _on_signals(self) -> None:
        numbers = self._signals.take()
        if self._form is not None:
            self._handle(numbers)
            return
        was_impatient = any(number in LEAVE for number in self._early)
        self._early += numbers
        if was_impatient and any(number in LEAVE for number in numbers):
            raise Left(next(number for number in self._early if number in LEAVE))

    @property
    def _is_running(self) -> bool:
        return self._form is not None and self._form["status"] == "RUNNING"

    def _handle(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in PASS_ON and self._is_running:
                self._pass_on(number)
            else:
                self._leave(number)

    def _leave(self, number: int) -> None:
        if self._is_away:
            self._say(f"{self._slot} ends by itself when the scheduler is back: nobody comes for it")
        if self._is_away or self._leaving is not None:
            raise Left(self._leaving or number)
        self._leaving = number
        self._ask_to_cancel()

    def _ask_to_cancel(self) -> None:
        """The stream tells its end; this is only asked for. Without a scheduler it is asked again when there is one."""
        assert self._slot is not None  # noqa: S101 - as above
        try:
            self._cancelling = self._session.open(cancel_slot(self._slot))
        except Unavailable:
            return

    def _pass_on(self, number: int) -> None:
        assert self._slot is not None  # noqa: S101 - as above
        try:
            self._session.ask(signal_slot(self._slot, signal.Signals(number).name))
        except (Conflict, InvalidInput, NotFound, Unavailable) as refused:
            self._say(refused.message)


def quiet(_text: str) -> None:
    """For who wants to hear the command alone."""


def speaker(*, is_quiet: bool) -> Callable[[str], None]:
    return quiet if is_quiet else talk


def _own_parent(form: Json) -> str:
    """A command inside a job, at a place that this very job has, would wait for itself."""
    parent = os.environ.get("ROTA_JOB") or os.environ.get("ROTA_SLOT")
    if not parent or not re.search(rf"\b{re.escape(parent)}\b", form.get("why") or ""):
        return ""
    return f"; this runs inside {parent}, which has that place: it cannot begin before its wait is over"
