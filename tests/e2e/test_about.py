"""What the API says of itself, from a scheduler as it runs: the document, the page, the problems."""

from __future__ import annotations

import json
import re
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from e2e.rig import Rota
from rota.errors import BY_CODE

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def ask(rota: Rota, target: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = rota.connection()
    try:
        connection.request("GET", target, headers={key.replace("_", "-"): text for key, text in headers.items()})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def test_the_document_is_served_and_not_sent_twice(untouched: Rota) -> None:
    response, body = ask(untouched, "/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert json.loads(body) == json.loads(DOCUMENT.read_text())
    again, nothing = ask(untouched, "/openapi.json", If_None_Match=f'"other", W/{response.headers["etag"]}')
    assert (again.status, nothing) == (304, b"")
    changed, whole = ask(untouched, "/openapi.json", If_None_Match='"other"')
    assert (changed.status, whole) == (200, body)


def test_the_page_brings_all_that_it_is_made_of(untouched: Rota) -> None:
    response, page = ask(untouched, "/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = page.decode()
    assert "<style" not in text, "style comes from a file"
    assert re.findall(r"<script(?! type=\"module\" src=\"/docs/)", text) == [], "and so do scripts"
    seen, waiting = set(), [*re.findall(r'(?:src|href)="(/docs/[^"#]+)"', text)]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        part, content = ask(untouched, name)
        assert part.status == 200, name
        assert "https://" not in content.decode(), f"{name} leads outside"
        waiting += [f"/docs/{other}" for other in re.findall(r'from "\./([^"]+)"', content.decode())]
    assert {"/docs/docs.js", "/docs/docs.css", "/docs/dom.js", "/docs/schema.js", "/docs/request.js"} <= seen
    assert ask(untouched, "/docs/none.js")[0].status == 404
    assert ask(untouched, "/docs/..%2fapi%2fabout.py")[0].status == 404


def problems(rota: Rota) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = rota.api("GET", "/problems").json()["problems"]
    return listed


def test_each_problem_is_explained_at_the_address_that_it_names(untouched: Rota) -> None:
    refused = untouched.api("GET", "/api/jobs/job-99")
    assert refused.status == 404
    explained = untouched.api("GET", refused.json()["type"]).json()
    assert (explained["code"], explained["status"]) == ("not-found", 404)
    assert explained["title"] == refused.json()["title"]
    assert sorted(one["code"] for one in problems(untouched)) == sorted(BY_CODE)
    assert [untouched.api("GET", one["type"]).json() for one in problems(untouched)] == problems(untouched)
    assert untouched.api("GET", "/problems/none").json()["code"] == "not-found"


def test_a_browser_gets_the_problems_as_pages(untouched: Rota) -> None:
    for target in ("/problems", "/problems/in-flight"):
        response, page = ask(untouched, target, Accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert b"<code>in-flight</code>" in page
        assert b"`" not in page, "what is code is shown as such"


def test_what_cannot_be_asked_like_this_says_how(untouched: Rota) -> None:
    for target in ("/openapi.json", "/docs", "/problems"):
        refused = untouched.api("POST", target)
        assert (refused.status, refused.json()["code"]) == (405, "method-not-allowed")
