"""Answers in JSON have the headers that Starlette gives them, made in one go."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from rota.api.problem import Json


@pytest.mark.parametrize("headers", [None, {}, {"Idempotent-Replayed": "true"}])
def test_it_has_the_headers_of_any_answer(headers: dict[str, str] | None) -> None:
    made = Json({"job": "ü"}, 201, headers)
    plain = Response(made.body, 201, headers, media_type="application/json")
    assert (made.raw_headers, made.status_code) == (plain.raw_headers, plain.status_code)
    assert made.body == '{"job":"ü"}'.encode()
    made.headers["Deprecation"] = "true"
    assert made.raw_headers[-1] == (b"deprecation", b"true")
