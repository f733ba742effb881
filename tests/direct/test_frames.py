"""Frames of a reservation stream, cut at any byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.problem import InvalidResponse
from rota.direct.client import FrameDecoder

FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just({"reservation": {"id": "reservation-1"}}), st.just(b"")),
        st.binary(max_size=40).map(lambda data: ({"stream": "stdout", "size": len(data)}, data)),
    )
)


@given(frames=FRAMES, cuts=st.lists(st.integers(1, 9)))
def test_frames_are_decoded_from_any_chunks(frames: list[tuple[dict[str, object], bytes]], cuts: list[int]) -> None:
    wire = b"".join(json.dumps(head).encode() + b"\n" + payload for head, payload in frames)
    decoder, received = FrameDecoder(), []
    for cut in [*cuts, len(wire)]:
        received += list(decoder.feed(wire[:cut]))
        wire = wire[cut:]
    assert received == frames


def test_incomplete_frame_is_not_returned() -> None:
    """A broken frame is requested again, so a part of it must not be printed."""
    decoder = FrameDecoder()
    assert list(decoder.feed(b'{"stream": "stdout", "size": 4}\nab')) == []
    assert list(decoder.feed(b"cd")) == [({"stream": "stdout", "size": 4}, b"abcd")]


def test_invalid_frame_header_is_refused() -> None:
    with pytest.raises(InvalidResponse, match="cannot be decoded"):
        list(FrameDecoder().feed(b"hello\n"))
