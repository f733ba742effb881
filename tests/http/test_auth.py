"""Access over TCP: requests, and the statuses that they get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.routes import ROUTER
from tests.http.host import LocalServer, read_response, run_server

EVIL = "https://evil.example"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NO_TOKEN = {"authorization": None}


def status(server: LocalServer, method: str, path: str = "/api/jobs", /, **headers: str | None) -> int:
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    options: dict[str, Any] = headers
    response = server.request(method, path, body, **options)
    assert not any(name.startswith("access-control-") for name in response.headers), "no other site is allowed"
    return response.status


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"authorization": None}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic {token}"}, 401),
        ({"authorization": "{token}"}, 401),
        ({"authorization": "bearer {token}"}, 200),
        ({"authorization": "Bearer  {token}"}, 200),
        ({"authorization": "Bearer {token}x"}, 401),
        ({"authorization": "Bearer {token}", "x_api_key": "wrong"}, 200),
        ({"authorization": None, "x_api_key": "{token}"}, 200),
        ({"authorization": None, "x_api_key": "wrong"}, 401),
        ({"authorization": None, "x_api_key": ""}, 401),
        ({"authorization": "Basic cHJveHk6cHJveHk=", "x_api_key": "{token}"}, 200),
        ({"authorization": None, "cookie": "token={token}"}, 401),
        # Pages of other sites, with and without the token.
        ({"origin": EVIL}, 403),
        ({"origin": EVIL, "authorization": None}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "https://127.0.0.1:{port}"}, 403),
        ({"origin": "http://localhost:{port}"}, 403),
        ({"origin": "http://127.0.0.1:{port}.evil.example"}, 403),
        ({"origin": "chrome-extension://abc"}, 403),
        ({"origin": "http://127.0.0.1:{port}"}, 200),
        ({"origin": "http://127.0.0.1:{port}", "authorization": None}, 401),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        # Names of other hosts, with and without the token.
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:{port}"}, 421),
        ({"host": "evil.example:{port}", "authorization": None}, 421),
        ({"host": "evil.example:{port}", "origin": "http://evil.example:{port}"}, 421),
        ({"host": "127.0.0.1.evil.example:{port}"}, 421),
        ({"host": "localhost.evil.example:{port}"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"host": "127.1:{port}"}, 421),
        ({"host": "0.0.0.0:{port}"}, 421),
        ({"host": "192.0.2.7:{port}"}, 421),
        ({"host": "user@127.0.0.1:{port}"}, 421),
        ({"host": "::1:{port}"}, 421),
        ({"host": ":{port}"}, 421),
        ({"host": ""}, 421),
        ({"host": None}, 421),
        ({"host": "localhost:{port}"}, 200),
        ({"host": "LOCALHOST:{port}"}, 200),
        ({"host": "[::1]:{port}"}, 200),
        ({"host": "127.0.0.9:{port}"}, 200),
        ({"host": "localhost:{port}", "origin": "http://localhost:{port}"}, 200),
        ({"host": "evil.example:{port}", "x_forwarded_host": "127.0.0.1:{port}"}, 421),
    ],
)
def test_access_by_token_origin_and_host(
    server: LocalServer, method: str, headers: dict[str, str | None], expected: int
) -> None:
    port = str(server.address[1])
    values = {
        name: None if text is None else text.replace("{token}", server.token).replace("{port}", port)
        for name, text in headers.items()
    }
    assert status(server, method, **values) == expected


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/health", {}, 200),
        ("/docs", {}, 200),
        ("/docs/script.js", {}, 200),
        ("/openapi.json", {}, 200),
        ("/problems", {}, 200),
        ("/problems/conflict", {}, 200),
        ("/docs", {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 200),
        ("/docs", {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, 403),
        ("/docs", {"origin": EVIL}, 403),
        ("/docs", {"host": "evil.example"}, 421),
        ("/health", {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 403),
        ("/ready", {}, 401),
        ("/metrics", {}, 401),
        ("/", {}, 401),
        ("/docsx", {}, 401),
        ("/health/", {}, 401),
        ("//docs", {}, 401),
        ("/api/docs", {}, 401),
        ("/DOCS", {}, 401),
        ("/%64ocs", {}, 200),
        ("/nothing/here", {}, 401),
    ],
)
def test_public_documents_need_no_token(server: LocalServer, path: str, headers: dict[str, str], expected: int) -> None:
    assert status(server, "GET", path, **NO_TOKEN, **headers) == expected
    if expected == 200:
        assert status(server, "POST", path, **NO_TOKEN, **headers) in (401, 403), "only GET is public"


def test_public_endpoints_match_the_openapi_document() -> None:
    document = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    documented, public = set(), set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            documented |= {f"{method} {path}"} if operation.get("security") == [] else set()
            public |= {f"{method} {path}"} if ROUTER.is_public(method.upper(), path) else set()
    assert documented == public
    assert "get /health" in public


def test_health_without_token_has_only_the_status(server: LocalServer) -> None:
    assert server.request("GET", "/health", has_token=False).body == b'{"status":"ok"}'
    assert server.request("GET", "/health").body == b'{"read":0}', "with the token, the application responds"


def test_refusals_say_what_to_do(server: LocalServer) -> None:
    missing = server.request(has_token=False)
    assert (missing.headers["www-authenticate"], missing.code) == ("Bearer", "unauthorized")
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.detail == (
        "the request has no token;"
        " send the header `Authorization: Bearer TOKEN` with the token that `rota token` prints"
    )
    wrong = server.request(authorization="Bearer another-secret")
    assert wrong.detail.startswith("the token is not that of this home; send")
    assert b"another-secret" not in wrong.body
    unknown_host = server.request(host="rota.example.org")
    assert (unknown_host.code, unknown_host.detail) == (
        "misdirected-request",
        (
            "the request is for 'rota.example.org', which is not a name of this scheduler;"
            " if it should be one, add it to server.allowed_hosts in rota.toml"
        ),
    )
    other_origin = server.request(origin=EVIL)
    assert (other_origin.code, other_origin.detail) == (
        "origin-not-allowed",
        "the request comes from a page of https://evil.example; use a page of the scheduler itself",
    )


def test_responses_have_security_headers(server: LocalServer) -> None:
    for response in (server.request(), server.request(has_token=False), server.request("GET", "/docs")):
        assert {
            name: response.headers[name] for name in ("cache-control", "x-frame-options", "x-content-type-options")
        } == {"cache-control": "no-store", "x-frame-options": "DENY", "x-content-type-options": "nosniff"}
        assert response.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON", 200),
        ("application/merge-patch+json", 200),
        ("text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        ("text/x+json", 415),
        ("", 415),
        (None, 415),
    ],
)
def test_body_must_be_declared_as_json(server: LocalServer, media: str | None, expected: int) -> None:
    response = server.request("POST", "/api/jobs", b"{}", content_type=media)
    assert response.status == expected
    if expected == 415:
        assert response.detail.endswith("; send JSON, with the header Content-Type: application/json")
    chunked = server.request(
        "POST",
        "/api/jobs",
        b"2\r\n{}\r\n0\r\n\r\n",
        content_type=media,
        content_length=None,
        transfer_encoding="chunked",
    )
    assert chunked.status == expected


def test_request_without_body_needs_no_content_type(server: LocalServer) -> None:
    assert server.request("POST", "/api/jobs/job-1/cancel").status == 200
    assert server.request("POST", "/api/jobs/job-1/cancel", content_length="0").status == 200


def test_repeated_host_header_is_refused(server: LocalServer) -> None:
    own = server.url.partition("://")[2]
    with server.connect() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n".encode())
        assert read_response(connection).status == 421


def test_host_in_the_target_is_ignored(server: LocalServer) -> None:
    """Only proxies use such a target."""
    own = server.url.partition("://")[2]
    with server.connect() as connection:
        connection.sendall(f"GET http://{own}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        assert read_response(connection).status == 421


def test_allowed_hosts_are_accepted(home: Path) -> None:
    allowed = ("Rota.example.org", "proxy.example.org:8443", "[fd00::2]")
    with run_server(home, allowed_hosts=allowed) as server:
        port = server.address[1]
        for name, expected in (
            ("rota.example.org", 200),
            (f"ROTA.example.org:{port}", 200),
            ("rota.example.org:9", 200),
            ("proxy.example.org:8443", 200),
            ("proxy.example.org", 421),
            ("[fd00::2]:9", 200),
            ("x.rota.example.org", 421),
            ("evil.example", 421),
        ):
            assert server.request(host=name).status == expected, name
        # Behind a proxy that terminates TLS, the origin of a page is the name of the proxy.
        own = "https://rota.example.org"
        assert server.request("POST", body=b"{}", host="rota.example.org", origin=own).status == 200
        assert server.request("POST", body=b"{}", origin=own).status == 200
        assert server.request("POST", body=b"{}", origin="https://x.rota.example.org").status == 403
        assert server.request("POST", body=b"{}", origin="ftp://rota.example.org").status == 403
        server.change_config(allowed_hosts=())
        assert server.request(host="rota.example.org").status == 421, "a change applies while the server runs"
        assert server.address[1] == port, "a change of the names keeps the listener"
