"""Server-sent events, cut at any byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.problem import InvalidResponse
from rota.client.sse import SseDecoder, SseMessage

STREAM = (
    'retry: 1000\n\n:\nid: 1\nevent: job.failed\ndata: {"é": 1}\n\n:\n'
    "data: 2\n\nid: 3\n\ndata:x\ndata: y\nevent: two\n\n: a word\n\nevent: nothing\n\n"
).encode()
MESSAGES = [("job.failed", '{"é": 1}', "1"), ("message", "2", "1"), ("two", "x\ny", "3")]


def as_tuples(messages: list[SseMessage]) -> list[tuple[str, str, str | None]]:
    return [(message.event, message.data, message.id) for message in messages]


@given(cuts=st.lists(st.integers(1, 9)))
def test_messages_are_decoded_from_any_chunks(cuts: list[int]) -> None:
    decoder, received, wire = SseDecoder(), [], STREAM
    for cut in [*cuts, len(wire)]:
        received += list(decoder.feed(wire[:cut]))
        wire = wire[cut:]
    assert as_tuples(received) == MESSAGES


def test_incomplete_message_is_not_returned() -> None:
    assert as_tuples(list(SseDecoder().feed(b"id: 1\ndata: 2\n"))) == []


def test_invalid_json_is_an_invalid_response() -> None:
    (message,) = SseDecoder().feed(b"data: {\n\n")
    with pytest.raises(InvalidResponse, match="cannot be decoded"):
        message.json()


def test_endless_line_is_refused() -> None:
    with pytest.raises(InvalidResponse, match="a line that is too long"):
        list(SseDecoder().feed(b"x" * (1 << 24) + b"y"))
