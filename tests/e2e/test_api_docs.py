"""API documentation that a running scheduler serves: the OpenAPI document, the page, the problem types."""

from __future__ import annotations

import json
import re
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from rota.errors import BY_CODE
from tests.e2e.rig import Rota

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def get(rota: Rota, target: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = rota.connection()
    try:
        connection.request("GET", target, headers={key.replace("_", "-"): text for key, text in headers.items()})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_openapi_document_supports_etags(read_only_rota: Rota) -> None:
    response, body = get(read_only_rota, "/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert json.loads(body) == json.loads(DOCUMENT.read_text())
    cached, empty = get(read_only_rota, "/openapi.json", If_None_Match=f'"other", W/{response.headers["etag"]}')
    assert (cached.status, empty) == (304, b"")
    changed, complete = get(read_only_rota, "/openapi.json", If_None_Match='"other"')
    assert (changed.status, complete) == (200, body)


def test_docs_page_loads_only_local_files(read_only_rota: Rota) -> None:
    response, page = get(read_only_rota, "/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = page.decode()
    assert "<style" not in text, "style must come from a file"
    assert re.findall(r"<script(?! type=\"module\" src=\"/docs/)", text) == [], "scripts must come from files"
    visited, pending = set(), [*re.findall(r'(?:src|href)="(/docs/[^"#]+)"', text)]
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        part, content = get(read_only_rota, name)
        assert part.status == 200, name
        assert "https://" not in content.decode(), f"{name} links to an external site"
        pending += [f"/docs/{other}" for other in re.findall(r'from "\./([^"]+)"', content.decode())]
    assert {"/docs/docs.js", "/docs/docs.css", "/docs/dom.js", "/docs/schema.js", "/docs/request.js"} <= visited
    assert get(read_only_rota, "/docs/none.js")[0].status == 404
    assert get(read_only_rota, "/docs/..%2fapi%2fabout.py")[0].status == 404


def problems(rota: Rota) -> list[dict[str, Any]]:
    listing: list[dict[str, Any]] = rota.api("GET", "/problems").json()["problems"]
    return listing


def test_problem_type_url_describes_the_problem(read_only_rota: Rota) -> None:
    refused = read_only_rota.api("GET", "/api/jobs/job-99")
    assert refused.status == 404
    explained = read_only_rota.api("GET", refused.json()["type"]).json()
    assert (explained["code"], explained["status"]) == ("not-found", 404)
    assert explained["title"] == refused.json()["title"]
    assert sorted(problem["code"] for problem in problems(read_only_rota)) == sorted(BY_CODE)
    assert [read_only_rota.api("GET", problem["type"]).json() for problem in problems(read_only_rota)] == problems(
        read_only_rota
    )
    assert read_only_rota.api("GET", "/problems/none").json()["code"] == "not-found"


def test_problems_are_html_for_a_browser(read_only_rota: Rota) -> None:
    for target in ("/problems", "/problems/request-in-progress"):
        response, page = get(read_only_rota, target, Accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert b"<code>request-in-progress</code>" in page
        assert b"`" not in page, "code must be rendered as code"


def test_post_to_documentation_is_not_allowed(read_only_rota: Rota) -> None:
    for target in ("/openapi.json", "/docs", "/problems"):
        refused = read_only_rota.api("POST", target)
        assert (refused.status, refused.json()["code"]) == (405, "method-not-allowed")
