"""The stream of a slot, cut anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.frame import Frames
from rota.client.problem import BadAnswer

FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just({"slot": {"id": "slot-1"}}), st.just(b"")),
        st.binary(max_size=40).map(lambda data: ({"stream": "stdout", "size": len(data)}, data)),
    )
)


@given(frames=FRAMES, cuts=st.lists(st.integers(1, 9)))
def test_what_goes_in_comes_out_however_it_is_cut(
    frames: list[tuple[dict[str, object], bytes]], cuts: list[int]
) -> None:
    wire = b"".join(json.dumps(head).encode() + b"\n" + payload for head, payload in frames)
    reading, heard = Frames(), []
    for cut in [*cuts, len(wire)]:
        heard += list(reading.feed(wire[:cut]))
        wire = wire[cut:]
    assert heard == frames


def test_a_part_of_a_frame_is_nothing_yet() -> None:
    """What broke off in the middle is asked for again, and must not have been printed."""
    reading = Frames()
    assert list(reading.feed(b'{"stream": "stdout", "size": 4}\nab')) == []
    assert list(reading.feed(b"cd")) == [({"stream": "stdout", "size": 4}, b"abcd")]


def test_what_is_no_stream_is_said() -> None:
    with pytest.raises(BadAnswer, match="cannot be read"):
        list(Frames().feed(b"hello\n"))
