"""What the API says of itself: the OpenAPI document, a page to read it on and try it, and what each problem means.

Nothing here comes from elsewhere: no script, no font, no picture. A browser is told to hold the pages to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from rota.api.accept import JSON, best_of
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.problem_page import page_of, page_of_all
from rota.errors import BY_CODE, NotFound
from rota.wire.problem import Meaning, MeaningsForm, meaning, meanings

_WEB = Path(__file__).parent.parent / "web"
_MEDIA = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HTML = "text/html"
FILES = ("docs.css", "docs.js", "dom.js", "icon.svg", "request.js", "schema.js")
_GUARDS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TAG = "Changes with the document; send it as `If-None-Match` to be told whether it has."


class Tagged(NamedTuple):
    """Something that stays the same until the next version, and what tells one from another."""

    body: bytes
    tag: str

    @classmethod
    def of(cls, body: bytes) -> Tagged:
        return cls(body, f'"{blake2b(body, digest_size=12).hexdigest()}"')


def _unless_known(call: Call[Any, None], tagged: Tagged, media: str) -> Response:
    """Asked for again by who has it, it is not sent again."""
    headers = {**_GUARDS, "ETag": tagged.tag, "Cache-Control": "no-cache"}
    known = call.request.headers.get("if-none-match", "")
    if tagged.tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(tagged.body, headers=headers, media_type=media)


def _wants_page(call: Call[Any, None]) -> bool:
    return best_of(call.request, (JSON, _HTML)) == _HTML


class About:
    def __init__(self, others: Sequence[Endpoint]) -> None:
        """`others` are all endpoints beside its own."""
        self.endpoints = [
            _documented("/openapi.json", self.get_openapi, "application/json", {"openapi": "3.1.0", "…": "…"}),
            _documented("/docs", self.get_docs, _HTML, "<!doctype html>…"),
            _documented("/docs/{file}", self.get_docs_file, tuple(_MEDIA.values()), "…", refuses=(404,)),
            Endpoint(
                "GET", "/problems", self.list_problems, media=_HTML, is_public=True,
                shows={"problems": [meaning(NotFound)]},
            ),
            Endpoint("GET", "/problems/{code}", self.get_problem, media=_HTML, is_public=True, shows=meaning(NotFound)),
        ]  # fmt: skip
        self._described = (*others, *self.endpoints)
        self._made: dict[str, Tagged] = {}

    async def get_openapi(self, call: Call[Nothing, None]) -> Response:
        """Describe the API by OpenAPI 3.1, as this document does."""
        if "" not in self._made:
            self._made[""] = await asyncio.to_thread(self._make)
        return _unless_known(call, self._made[""], "application/json")

    def _make(self) -> Tagged:
        # Most schedulers are never asked: what makes the document is loaded when one is.
        from rota.api.openapi.document import document

        return Tagged.of(msgspec.json.encode(document(self._described)))

    async def get_docs(self, call: Call[Nothing, None]) -> Response:
        """Show the API on a page for people, where it can be tried."""
        return _unless_known(call, await self._file("docs.html"), _HTML)

    async def get_docs_file(self, call: Call[Nothing, None]) -> Response:
        """Give a file that the page for people is made of."""
        name = call.path["file"]
        if name not in FILES:
            raise NotFound(f"the page has no file {name}; it is made of {', '.join(FILES)}")
        return _unless_known(call, await self._file(name), _MEDIA[name.rpartition(".")[2]])

    async def _file(self, name: str) -> Tagged:
        if name not in self._made:
            self._made[name] = Tagged.of(await asyncio.to_thread((_WEB / name).read_bytes))
        return self._made[name]

    async def list_problems(self, call: Call[Nothing, None]) -> Reply[MeaningsForm] | Response:
        """List every kind of problem. As JSON, or as a page for who prefers `text/html`."""
        if _wants_page(call):
            return Response(page_of_all(meanings()), headers=_GUARDS, media_type=_HTML)
        return Reply(MeaningsForm(problems=meanings()))

    async def get_problem(self, call: Call[Nothing, None]) -> Reply[Meaning] | Response:
        """Explain a kind of problem. As JSON, or as a page for who prefers `text/html`."""
        kind = BY_CODE.get(call.path["code"])
        if kind is None:
            raise NotFound(f"no problem has the code {call.path['code']}; GET /problems lists them")
        if _wants_page(call):
            return Response(page_of(meaning(kind)), headers=_GUARDS, media_type=_HTML)
        return Reply(meaning(kind))


def _documented(path: str, handle: Any, media: str | Sequence[str], example: Any, **more: Any) -> Endpoint:
    return Endpoint(
        "GET", path, handle, statuses=(200, 304), media=media, is_public=True, tells={"ETag": _TAG}, shows=example,
        **more,
    )  # fmt: skip
