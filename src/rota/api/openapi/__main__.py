"""`python -m rota.api.openapi DIRECTORY`: write openapi.json there, and the table in problems.md."""

from __future__ import annotations

import sys
from pathlib import Path

from rota.api.app import ENDPOINTS
from rota.api.openapi.document import document, problem_rows, written

directory = Path(sys.argv[1])
(directory / "openapi.json").write_text(written(document(ENDPOINTS)))
page = directory / "problems.md"
head, rule, _ = page.read_text().partition("|---|---|---|---|---|---|\n")
page.write_text(f"{head}{rule}{problem_rows()}")
