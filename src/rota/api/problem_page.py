"""What problems mean, as pages for people."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from rota.wire.problem import Meaning

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
_ONE = """<p>{meaning}</p>
<p>{remedy}</p>
<dl>
<dt>Code</dt><dd><code>{code}</code></dd>
<dt>HTTP status</dt><dd>{status}</dd>
<dt>Exit code of commands</dt><dd>{exit_code}</dd>
</dl>"""


def page_of_all(problems: Iterable[Meaning]) -> str:
    table = _TABLE.format(rows="".join(map(_row, problems)))
    return _PAGE.format(title="Problems", up="/docs", above="The API", content=table)


def _row(one: Meaning) -> str:
    cells = (one.status, f'<a href="{one.type}"><code>{one.code}</code></a>', escape(one.title), _marked(one.meaning))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def page_of(one: Meaning) -> str:
    content = _ONE.format(
        meaning=_marked(one.meaning), remedy=_marked(one.remedy), code=one.code, status=one.status,
        exit_code=one.exit_code,
    )  # fmt: skip
    return _PAGE.format(title=escape(one.title), up="/problems", above="All problems", content=content)


def _marked(text: str) -> str:
    """What stands between backticks, as code: every second part."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
