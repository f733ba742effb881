"""`python -m rota.api.openapi`: the document, as docs/openapi.json has it."""

from __future__ import annotations

import sys

from rota.api.app import ENDPOINTS
from rota.api.openapi.document import document, written

sys.stdout.write(written(document(ENDPOINTS)))
