"""Decoder of HTTP responses, with any division into chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.problem import InvalidResponse
from rota.client.transport import ResponseDecoder

SIZED = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-Two:  a: b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: yes\r\n\r\n"


@given(raw=st.sampled_from([SIZED, CHUNKED]), cuts=st.sets(st.integers(1, 110)))
def test_response_is_decoded_from_any_chunks(raw: bytes, cuts: set[int]) -> None:
    decoder, body = ResponseDecoder(), b""
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    for start, end in pairwise(edges):
        assert not decoder.is_finished
        body += decoder.feed(raw[start:end])
    assert (decoder.is_finished, body) == (True, b"hello")


def test_status_and_headers_are_decoded() -> None:
    decoder = ResponseDecoder()
    decoder.feed(SIZED)
    assert decoder.status == 201
    assert decoder.headers == {"content-length": "5", "x-two": "a: b"}


def test_response_without_length_ends_with_the_connection() -> None:
    decoder = ResponseDecoder()
    assert decoder.feed(b"HTTP/1.0 200 OK\r\n\r\nhel") == b"hel"
    assert decoder.feed(b"lo") == b"lo"
    assert not decoder.is_finished
    assert decoder.feed(b"") == b""
    assert decoder.is_finished


@pytest.mark.parametrize("head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 202 X\r\nContent-Length: 0\r\n\r\n"])
def test_response_without_body_is_finished(head: bytes) -> None:
    decoder = ResponseDecoder()
    assert decoder.feed(head) == b""
    assert decoder.is_finished


def test_interim_response_is_skipped() -> None:
    decoder = ResponseDecoder()
    assert decoder.feed(b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED) == b"hello"
    assert decoder.status == 201


def test_truncated_response_is_not_finished() -> None:
    decoder = ResponseDecoder()
    decoder.feed(CHUNKED[:-6])
    decoder.feed(b"")
    assert not decoder.is_finished


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
    ],
)
def test_invalid_http_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidResponse):
        ResponseDecoder().feed(raw)
