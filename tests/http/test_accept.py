"""Selection of a response's format by the `Accept` header."""

from __future__ import annotations

from typing import Any, cast

import pytest
from starlette.requests import Request

from rota.engine.metrics import OPEN_METRICS_FORMAT
from rota.http.context import Context
from rota.http.endpoint import Invocation

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;"
    "q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "media_type", "is_named"),
    [
        ([], "text/html", False),
        ([""], "text/html", False),
        (["*/*"], "text/html", False),
        (["text/*"], "text/html", False),
        ([BROWSER], "text/html", True),
        ([PROMETHEUS], OPEN_METRICS_FORMAT.partition(";")[0], True),
        (["Application/JSON; charset=utf-8"], "application/json", True),
        (["text/*", "application/json"], "application/json", True),
        (["application/json-seq"], "application/json", False),
    ],
)
def test_accept_header_names_media_type(accept: list[str], media_type: str, is_named: bool) -> None:
    request = Request({"type": "http", "headers": [(b"accept", line.encode()) for line in accept]})
    call: Invocation[Any, Any] = Invocation(
        request, cast("Context", None), path_values={}, query=None, body=None, key=None
    )
    assert call.names_media_type(media_type) is is_named
