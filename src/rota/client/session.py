"""A command's dealings with one home's scheduler: started where it is missing, asked again where that is safe.

A connection that breaks leaves open whether the request was heard. It is sent again only if that cannot do harm: a
read, a PUT, or a request with an idempotency key.

Who may start the scheduler again? A command that has had no answer yet always does: somebody asked for it just now.
Once it has had one, a missing scheduler is started only if it crashed. One that was stopped on purpose must not be
brought back by a `rota wait` in another terminal. The two are told apart by what is left: in good order the socket
is removed before the lock is let go, so a free lock beside a socket is a crash.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.client.problem import Broken, NotRunning
from rota.client.transport import PATIENCE, Answer, Stream, send
from rota.errors import Unavailable
from rota.home import Home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TRIES = 3
_PERHAPS = "the request had been sent before that and may have been carried out: look with `rota list --all` first"


class Session:
    def __init__(self, home: Home, *, starts: bool = True) -> None:
        self.home = home
        self._starts = starts
        self.answered = False
        """Whether this command has heard from the scheduler. Who reads a stream of `open` says so himself."""

    def ask(
        self,
        method: str,
        target: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = PATIENCE,
    ) -> Answer:
        """Send a request and wait for its whole answer."""
        repeatable = method in ("GET", "PUT", "PATCH") or "Idempotency-Key" in (headers or {})
        was_heard = False
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self.open(method, target, body=body, headers=headers, timeout=timeout) as stream:
                    answer = stream.read()
            except Broken:
                was_heard = True
                if not repeatable or not left:
                    raise
            except Unavailable as error:
                if was_heard and method != "GET":
                    raise Unavailable(f"{error.message}\n{_PERHAPS}") from error
                raise
            else:
                self.answered = True
                return answer
        raise AssertionError("the last try returns or raises")

    def open(
        self,
        method: str,
        target: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = PATIENCE,
    ) -> Stream:
        """Send a request, starting the scheduler first if need be; the caller reads the answer."""
        try:
            return send(self.home, method, target, body=body, headers=headers, timeout=timeout)
        except NotRunning:
            if not self._starts:
                raise
            self._bring_back()
        return send(self.home, method, target, body=body, headers=headers, timeout=timeout)

    def _bring_back(self) -> None:
        from rota.client import autostart

        if self.answered:
            if autostart.comes_back(self.home):
                return
            if not self.home.socket.exists():
                raise Unavailable("the scheduler was stopped meanwhile; `rota up` starts it, then ask again") from None
        autostart.start(self.home)
