"""Progress messages of a command that waits for processes to end."""

from __future__ import annotations

from rota.cli.terminal import print_notice
from rota.client.requests.scheduler import get_scheduler
from rota.client.session import SchedulerSession
from rota.errors import RotaError

END_WAIT_SECONDS = 8
"""Seconds in which a cancelled process usually exits: `kill_after` and a margin."""


class EndProgress:
    """Printer of the subject that a command waits for; one message for each change of the supervisor's health."""

    def __init__(self, session: SchedulerSession, subject: str) -> None:
        self._session = session
        self._subject = subject
        self._last_text = ""

    def print_changes(self) -> None:
        silence = silence_notice(self._session)
        text = f"waiting for {self._subject} to end" + (f"; {silence}" if silence else "")
        if text != self._last_text:
            print_notice(text)
        self._last_text = text


def silence_notice(session: SchedulerSession) -> str | None:
    """Return the notice that the supervisor does not respond, empty if it responds, or None without a scheduler."""
    try:
        status = session.request_json(get_scheduler())
    except RotaError:
        return None
    if not status.get("supervisor_silent_since"):
        return ""
    return next((str(text) for text in status["errors"] if f"(pid {status['supervisor_pid']})" in text), "")
