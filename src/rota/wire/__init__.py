"""JSON representations. The API, `--json`, webhooks, the Python client and the files in the home share them."""

from __future__ import annotations

from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)
