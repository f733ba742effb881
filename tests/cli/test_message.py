"""Server-sent events, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.message import Message, Messages
from rota.client.problem import BadAnswer

STREAM = (
    'retry: 1000\n\n:\nid: 1\nevent: job.failed\ndata: {"é": 1}\n\n:\n'
    "data: 2\n\nid: 3\n\ndata:x\ndata: y\nevent: two\n\n: a word\n\nevent: nothing\n\n"
).encode()
HEARD = [("job.failed", '{"é": 1}', "1"), ("message", "2", "1"), ("two", "x\ny", "3")]


def shown(messages: list[Message]) -> list[tuple[str, str, str | None]]:
    return [(each.event, each.data, each.id) for each in messages]


@given(cuts=st.lists(st.integers(1, 9)))
def test_what_goes_in_comes_out_however_it_is_cut(cuts: list[int]) -> None:
    reading, heard, wire = Messages(), [], STREAM
    for cut in [*cuts, len(wire)]:
        heard += list(reading.feed(wire[:cut]))
        wire = wire[cut:]
    assert shown(heard) == HEARD


def test_what_is_not_whole_is_not_told() -> None:
    assert shown(list(Messages().feed(b"id: 1\ndata: 2\n"))) == []


def test_data_that_is_no_json_is_the_schedulers_fault() -> None:
    (message,) = Messages().feed(b"data: {\n\n")
    with pytest.raises(BadAnswer, match="cannot be read"):
        message.json()


def test_a_line_without_an_end_is_given_up() -> None:
    with pytest.raises(BadAnswer, match="no end of line"):
        list(Messages().feed(b"x" * (1 << 24) + b"y"))
