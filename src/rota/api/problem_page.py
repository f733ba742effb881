"""HTML pages that explain the kinds of problems."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from rota.wire.problem import ProblemKind

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


def render_problem_list(problems: Iterable[ProblemKind]) -> str:
    table = _TABLE.format(rows="".join(map(_render_row, problems)))
    return _PAGE.format(title="Problems", up="/docs", above="The API", content=table)


def _render_row(problem: ProblemKind) -> str:
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
