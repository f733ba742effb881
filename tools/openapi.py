"""`python tools/openapi.py DIRECTORY`: write openapi.json and the table of reference/problems.md there."""

from __future__ import annotations

import sys
from pathlib import Path

from rota.http.openapi.document import build_document, render_document, render_problem_rows
from rota.routes import ENDPOINTS

directory = Path(sys.argv[1])
(directory / "openapi.json").write_text(render_document(build_document(ENDPOINTS)))
page = directory / "reference" / "problems.md"
head, rule, _ = page.read_text().partition("|---|---|---|---|---|---|\n")
page.write_text(f"{head}{rule}{render_problem_rows()}")
