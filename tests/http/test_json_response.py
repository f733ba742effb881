"""JSON responses have the headers that Starlette gives them, although they are built directly."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from rota.http.problem import JsonResponse


@pytest.mark.parametrize("headers", [None, {}, {"Idempotent-Replayed": "true"}])
def test_json_response_has_the_headers_of_a_plain_response(headers: dict[str, str] | None) -> None:
    response = JsonResponse({"job": "ü"}, 201, headers)
    plain = Response(response.body, 201, headers, media_type="application/json")
    assert (response.raw_headers, response.status_code) == (plain.raw_headers, plain.status_code)
    assert response.body == '{"job":"ü"}'.encode()
    response.headers["Deprecation"] = "true"
    assert response.raw_headers[-1] == (b"deprecation", b"true")
