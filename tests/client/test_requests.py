"""Requests are immutable values, and know whether they can be repeated."""

from __future__ import annotations

import pytest

from rota.client.requests import Request


def test_request_is_immutable() -> None:
    request = Request("GET", "/")
    with pytest.raises(AttributeError, match="is immutable"):
        request.method = "POST"
    assert repr(request) == "Request(GET /)"


def test_retriable_http_methods() -> None:
    """A PATCH is not repeatable: a repeated rename is refused."""
    assert [method for method in ("GET", "PUT", "PATCH", "POST", "DELETE") if Request(method, "/").is_repeatable] == [
        "GET",
        "PUT",
    ]
    assert all(Request(method, "/", key="k").is_repeatable for method in ("PATCH", "POST"))
