"""The one JSON form of each noun: API, `--json`, webhooks, the Python client and the files in the home say the same."""

from __future__ import annotations

from typing import Any

import msgspec


def encode(form: Any) -> bytes:
    return msgspec.json.encode(form)
