"""Listening without end: what breaks or ends is asked for again, not at once, from the last message on."""

from __future__ import annotations

from contextlib import suppress

import pytest

from cli.stand_in import Server, chunked, problem
from rota.client.ask.event import follow_events
from rota.client.listen import PAUSE
from rota.client.problem import Broken, NoAnswer
from rota.client.session import Blocking, Pulled, Session
from rota.errors import NotFound

END = b"0\r\n\r\n"
FIRST = b"retry: 1000\n\nid: 7\nevent: job.failed\ndata: {}\n\n"
SECOND = b"id: 9\nevent: job.failed\ndata: {}\n\n"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    kept: list[float] = []

    async def pause(_self: Blocking, seconds: float) -> None:
        kept.append(seconds)

    monkeypatch.setattr(Blocking, "pause", pause)
    return kept


def heard(server: Server) -> list[str | None]:
    found: list[str | None] = []
    with suppress(NotFound):
        for message in Session(server.home).listen(lambda last: follow_events(last=last)):
            found.append(message.id)  # noqa: PERF401 - what came before the end is kept
    return found


def test_a_stream_that_ends_or_breaks_is_asked_for_again_after_a_pause(server: Server, pauses: list[float]) -> None:
    server.replies = [
        chunked(FIRST) + END,
        chunked(b"retry: 1000\n\n") + END,  # ends at once
        chunked(b"retry: 1000\n\n"),  # breaks at once
        chunked(SECOND),
        problem(404, "not-found", "enough"),
    ]
    assert heard(server) == ["7", "9"]
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "7", "7", "7", "9"]
    assert pauses == [PAUSE] * 4


def test_a_scheduler_that_breaks_off_or_is_silent_is_asked_again_by_who_has_heard_it(
    server: Server, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = [chunked(FIRST), b"", chunked(SECOND), problem(404, "not-found", "enough")]
    receive, is_silent = Pulled.receive, [True]

    async def received(self: Pulled) -> bytes:
        data = await receive(self)
        if is_silent and SECOND in data:
            is_silent.clear()
            server.replies.insert(0, chunked(SECOND))
            raise NoAnswer("silent")
        return data

    monkeypatch.setattr(Pulled, "receive", received)
    assert heard(server) == ["7", "9"]
    assert pauses == [PAUSE] * 4


def test_who_never_had_an_answer_is_told_at_once(server: Server, pauses: list[float]) -> None:
    server.replies = [b""]
    with pytest.raises(Broken):
        next(Session(server.home).listen(lambda last: follow_events(last=last)))
    assert pauses == []
