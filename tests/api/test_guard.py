"""Who may ask over TCP, as a table: what a request says of itself, and what it is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.host import Host, hosting, read
from rota.api.app import ROUTER

EVIL = "https://evil.example"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
NO_TOKEN = {"authorization": None}


def status(host: Host, method: str, path: str = "/api/jobs", /, **headers: str | None) -> int:
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    given: dict[str, Any] = headers
    said = host.ask(method, path, body, **given)
    assert not any(name.startswith("access-control-") for name in said.headers), "no other site is given leave"
    return said.status


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
        # Pages of other sites, with the token or without.
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
        # Names that are not ours, with the token or without.
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
)  # fmt: skip
def test_the_matrix(host: Host, method: str, headers: dict[str, str | None], expected: int) -> None:
    filled = {
        name: None if text is None else text.replace("{token}", host.token).replace("{port}", str(host.address[1]))
        for name, text in headers.items()
    }
    assert status(host, method, **filled) == expected


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
def test_what_is_the_same_for_everybody_needs_no_token(
    host: Host, path: str, headers: dict[str, str], expected: int
) -> None:
    assert status(host, "GET", path, **NO_TOKEN, **headers) == expected
    if expected == 200:
        assert status(host, "POST", path, **NO_TOKEN, **headers) in (401, 403), "only to be read"


def test_the_open_ones_are_those_that_the_document_says_are() -> None:
    document = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    said, found = set(), set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            said |= {f"{method} {path}"} if operation.get("security") == [] else set()
            found |= {f"{method} {path}"} if ROUTER.is_public(method.upper(), path) else set()
    assert said == found
    assert "get /health" in found


def test_what_health_says_to_a_stranger(host: Host) -> None:
    assert host.ask("GET", "/health", has_token=False).body == b'{"status":"ok"}'
    assert host.ask("GET", "/health").body == b'{"read":0}', "to who has the token, what the application says"


def test_a_refusal_says_what_to_do(host: Host) -> None:
    missing = host.ask(has_token=False)
    assert (missing.headers["www-authenticate"], missing.code) == ("Bearer", "unauthorized")
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.detail == (
        "this needs the token of the home; send the header `Authorization: Bearer TOKEN`, and `rota token` prints it"
    )
    wrong = host.ask(authorization="Bearer somebodys-secret")
    assert wrong.detail.startswith("this is not the token of this home; send")
    assert b"somebodys-secret" not in wrong.body
    strange = host.ask(host="rota.example.org")
    assert (strange.code, strange.detail) == (
        "misdirected",
        (
            "the request is for 'rota.example.org', which is no name of this scheduler;"
            " if it is to be one, add it to server.allowed_hosts in rota.toml"
        ),
    )
    page = host.ask(origin=EVIL)
    assert (page.code, page.detail) == (
        "foreign-origin", "a page of https://evil.example asks; only pages of the scheduler's own are answered",
    )  # fmt: skip


def test_no_answer_is_for_a_cache_a_frame_or_another_site(host: Host) -> None:
    for said in (host.ask(), host.ask(has_token=False), host.ask("GET", "/docs")):
        assert {
            name: said.headers[name] for name in ("cache-control", "x-frame-options", "x-content-type-options")
        } == {
            "cache-control": "no-store",
            "x-frame-options": "DENY",
            "x-content-type-options": "nosniff",
        }
        assert said.headers["cross-origin-resource-policy"] == "same-origin"


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
def test_a_body_is_said_to_be_json(host: Host, media: str | None, expected: int) -> None:
    said = host.ask("POST", "/api/jobs", b"{}", content_type=media)
    assert said.status == expected
    if expected == 415:
        assert said.detail.endswith("; send JSON, with the header Content-Type: application/json")
    chunked = host.ask("POST", "/api/jobs", b"2\r\n{}\r\n0\r\n\r\n", content_type=media, content_length=None,
                       transfer_encoding="chunked")  # fmt: skip
    assert chunked.status == expected


def test_without_a_body_nothing_need_be_said_of_it(host: Host) -> None:
    assert host.ask("POST", "/api/jobs/job-1/cancel").status == 200
    assert host.ask("POST", "/api/jobs/job-1/cancel", content_length="0").status == 200


def test_two_hosts_are_none(host: Host) -> None:
    own = host.url.partition("://")[2]
    with host.connect() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n".encode())
        assert read(connection).status == 421


def test_the_host_in_the_target_is_not_asked(host: Host) -> None:
    """Only a proxy is asked like this."""
    own = host.url.partition("://")[2]
    with host.connect() as connection:
        connection.sendall(f"GET http://{own}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        assert read(connection).status == 421


def test_names_that_are_allowed(home: Path) -> None:
    allowed = ("Rota.example.org", "proxy.example.org:8443", "[fd00::2]")
    with hosting(home, allowed_hosts=allowed) as host:
        port = host.address[1]
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
            assert host.ask(host=name).status == expected, name
        # A proxy that speaks TLS to the world: the page's origin is its name.
        assert host.ask("POST", body=b"{}", host="rota.example.org", origin="https://rota.example.org").status == 200
        assert host.ask("POST", body=b"{}", origin="https://rota.example.org").status == 200
        assert host.ask("POST", body=b"{}", origin="https://x.rota.example.org").status == 403
        assert host.ask("POST", body=b"{}", origin="ftp://rota.example.org").status == 403
        host.change(allowed_hosts=())
        assert host.ask(host="rota.example.org").status == 421, "taken up while running"
        assert host.address[1] == port, "and nobody was cut off for that"
