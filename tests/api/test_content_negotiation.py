"""Content negotiation by the `Accept` header."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from rota.api.content_negotiation import negotiate_media_type

STREAM, JSON = "text/event-stream", "application/json"


@pytest.mark.parametrize(
    ("accept", "preferred"),
    [
        ([], STREAM),
        ([""], STREAM),
        (["*/*"], STREAM),
        ([JSON], JSON),
        (["Application/JSON; charset=utf-8"], JSON),
        ([f"{JSON}, */*"], JSON),
        ([f"{STREAM}, {JSON}"], STREAM),
        ([f"{JSON}, {STREAM}"], STREAM),
        ([f"{STREAM};q=0.2, {JSON};q=0.3"], JSON),
        ([f"{STREAM};q=0"], STREAM),
        ([f"{STREAM};q=0, */*"], JSON),
        ([f"{STREAM};q=0, {JSON};q=0.001"], JSON),
        ([f"{STREAM} ; Q=0.5 , application/*"], JSON),
        (["text/*;q=0.1, */*;q=0.05"], STREAM),
        (["text/*", JSON], JSON),
        ([f"{STREAM};q=nonsense, {JSON};q=0.1"], JSON),
        ([f"{STREAM};q=nan, {JSON};q=0.1"], JSON),
        (["image/png"], STREAM),
    ],
)
def test_preferred_media_type_is_selected(accept: list[str], preferred: str) -> None:
    headers = [(b"accept", line.encode()) for line in accept]
    assert negotiate_media_type(Request({"type": "http", "headers": headers}), (STREAM, JSON)) == preferred
