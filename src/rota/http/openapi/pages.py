"""Documentation of the API: the OpenAPI document, an HTML page to read and try it, and pages on the kinds of problems.

The pages load no script, font or image from another host. Their headers make the browser enforce this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from rota.errors import BY_CODE, NotFound
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.http.problem_schemas import ProblemKind, ProblemKindList, describe_problem, list_problem_kinds

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Rota</title>
<link rel="icon" href="/docs/icon.svg">
<link rel="stylesheet" href="/docs/docs.css">
</head>
<body class="sheet">
<main>
<p><a href="{up}">← {above}</a></p>
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""
_TABLE = """<div class="scroll"><table>
<thead><tr><th>Status</th><th>Code</th><th>Title</th><th>Meaning</th></tr></thead>
<tbody>{rows}</tbody>
</table></div>"""
_PROBLEM = """<p>{meaning}</p>
<p>{remedy}</p>
<dl>
<dt>Code</dt><dd><code>{code}</code></dd>
<dt>HTTP status</dt><dd>{status}</dd>
<dt>Exit code of commands</dt><dd>{exit_code}</dd>
</dl>"""
_WEB = Path(__file__).parent.parent / "web"
_MEDIA_BY_SUFFIX = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HTML = "text/html"
DOCS_FILES = ("docs.css", "docs.js", "dom.js", "icon.svg", "request.js", "schema.js")
_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_ETAG_DESCRIPTION = "Version of the document. A request that sends it as `If-None-Match` gets 304 until it changes."


class ApiDocs:
    """Endpoints that document the API."""

    def __init__(self, other_endpoints: Sequence[Endpoint]) -> None:
        """Create the endpoints. `other_endpoints` are all other endpoints of the API."""
        self.endpoints = [
            _docs_endpoint("/openapi.json", self.get_openapi, "application/json", {"openapi": "3.1.0", "…": "…"}),
            _docs_endpoint("/docs", self.get_docs, _HTML, "<!doctype html>…"),
            _docs_endpoint("/docs/{file}", self.get_docs_file, tuple(_MEDIA_BY_SUFFIX.values()), "…", errors=(404,)),
            Endpoint(
                "GET",
                "/problems",
                self.list_problems,
                media=_HTML,
                is_public=True,
                response_example={"problems": [describe_problem(NotFound)]},
            ),
            Endpoint(
                "GET",
                "/problems/{code}",
                self.get_problem,
                media=_HTML,
                is_public=True,
                response_example=describe_problem(NotFound),
            ),
        ]
        self._documented_endpoints = (*other_endpoints, *self.endpoints)
        self._cache: dict[str, CachedDocument] = {}

    async def get_openapi(self, call: Invocation[NoQuery, None]) -> Response:
        """Return this document, which describes the API in the format of OpenAPI 3.1."""
        if "" not in self._cache:
            self._cache[""] = await asyncio.to_thread(self._build_openapi)
        return _respond_unless_cached(call, self._cache[""], "application/json")

    def _build_openapi(self) -> CachedDocument:
        # Imported on demand: most schedulers never serve the document.
        from rota.http.openapi.document import build_document

        return CachedDocument.from_body(msgspec.json.encode(build_document(self._documented_endpoints)))

    async def get_docs(self, call: Invocation[NoQuery, None]) -> Response:
        """Show the API as an HTML page, on which requests can be tried."""
        return _respond_unless_cached(call, await self._load_file("docs.html"), _HTML)

    async def get_docs_file(self, call: Invocation[NoQuery, None]) -> Response:
        """Return a file that belongs to the HTML page."""
        name = call.path_values["file"]
        if name not in DOCS_FILES:
            raise NotFound(f"unknown file {name}; the files are {', '.join(DOCS_FILES)}")
        return _respond_unless_cached(call, await self._load_file(name), _MEDIA_BY_SUFFIX[name.rpartition(".")[2]])

    async def _load_file(self, name: str) -> CachedDocument:
        if name not in self._cache:
            self._cache[name] = CachedDocument.from_body(await asyncio.to_thread((_WEB / name).read_bytes))
        return self._cache[name]

    async def list_problems(self, call: Invocation[NoQuery, None]) -> JsonReply[ProblemKindList] | Response:
        """List all kinds of problems. The response is JSON, or an HTML page if `Accept` names `text/html`."""
        if call.names_media_type(_HTML):
            return Response(render_problem_list(list_problem_kinds()), headers=_SECURITY_HEADERS, media_type=_HTML)
        return JsonReply(ProblemKindList(problems=list_problem_kinds()))

    async def get_problem(self, call: Invocation[NoQuery, None]) -> JsonReply[ProblemKind] | Response:
        """Explain a kind of problem. The response is JSON, or an HTML page if `Accept` names `text/html`."""
        kind = BY_CODE.get(call.path_values["code"])
        if kind is None:
            raise NotFound(f"no problem has the code {call.path_values['code']}; GET /problems lists them")
        if call.names_media_type(_HTML):
            return Response(render_problem(describe_problem(kind)), headers=_SECURITY_HEADERS, media_type=_HTML)
        return JsonReply(describe_problem(kind))


def _docs_endpoint(path: str, handler: Any, media: str | Sequence[str], example: Any, **options: Any) -> Endpoint:
    return Endpoint(
        "GET",
        path,
        handler,
        statuses=(200, 304),
        media=media,
        is_public=True,
        response_headers={"ETag": _ETAG_DESCRIPTION},
        response_example=example,
        **options,
    )


class CachedDocument(NamedTuple):
    """Document that does not change until the next version, with its ETag."""

    body: bytes
    etag: str

    @classmethod
    def from_body(cls, body: bytes) -> CachedDocument:
        return cls(body, f'"{blake2b(body, digest_size=12).hexdigest()}"')


def _respond_unless_cached(call: Invocation[Any, None], document: CachedDocument, media: str) -> Response:
    """Return the document, or 304 if the client has it."""
    headers = {**_SECURITY_HEADERS, "ETag": document.etag, "Cache-Control": "no-cache"}
    known_etags = call.request.headers.get("if-none-match", "")
    if document.etag in (etag.strip().removeprefix("W/") for etag in known_etags.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(document.body, headers=headers, media_type=media)


def render_problem_list(problems: Iterable[ProblemKind]) -> str:
    table = _TABLE.format(rows="".join(map(_render_problem_row, problems)))
    return _PAGE.format(title="Problems", up="/docs", above="The API", content=table)


def _render_problem_row(problem: ProblemKind) -> str:
    cells = (
        problem.status,
        f'<a href="{problem.type}"><code>{problem.code}</code></a>',
        escape(problem.title),
        _render_code_spans(problem.meaning),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def render_problem(problem: ProblemKind) -> str:
    content = _PROBLEM.format(
        meaning=_render_code_spans(problem.meaning),
        remedy=_render_code_spans(problem.remedy),
        code=problem.code,
        status=problem.status,
        exit_code=problem.exit_code,
    )
    return _PAGE.format(title=escape(problem.title), up="/problems", above="All problems", content=content)


def _render_code_spans(text: str) -> str:
    """Render the text between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
