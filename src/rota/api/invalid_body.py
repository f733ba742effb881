"""Errors of invalid bodies, for the cases in which the decoder does not describe them well enough.

The body is read again by slower means, unless it is too large.
"""

from __future__ import annotations

import json
import re

import msgspec

from rota.api.nul import FREE_FORM_FIELDS, find_text_path
from rota.errors import InvalidInput

_MAX_BYTES = 1 << 20
"""Maximum size of a body that is read again."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?|[\[\]{},]', re.DOTALL)
"""String, which may be cut off, or a structural character."""
_MAX_DEPTH = 500
"""Depth above that of any valid body. The depth at which the decoder fails depends on its caller."""


def decode_or_none(body: bytes) -> object:
    """Return the decoded body; None if it is not JSON, or too large."""
    try:
        return msgspec.json.decode(body) if len(body) <= _MAX_BYTES else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def find_lone_surrogate(body: bytes) -> InvalidInput | None:
    """Return the refusal of a body with half of a surrogate pair; None if it has another error."""
    if len(body) > _MAX_BYTES or b"\\ud" not in body.lower():
        return None
    try:
        path = find_text_path(json.loads(body), _SURROGATE.search)
    except (ValueError, RecursionError):
        return None
    if path is None:
        return None
    message = "a string contains half of a surrogate pair, such as \\ud800; remove it, or write both halves"
    return InvalidInput(message).at_path(path)


def make_too_deep_error(body: bytes) -> InvalidInput:
    """Return the refusal of a body that is nested too deep, with a path if that is not too far behind."""
    return InvalidInput("the request body is nested too deep; make it flatter").at_path(
        _format_path(_path_to_limit(body))
    )


def _path_to_limit(body: bytes) -> list[str | int]:
    """Return the steps down to the first value that is too deep."""
    steps: list[str | int] = []
    last_key = ""
    for match in _TOKEN.finditer(body[:_MAX_BYTES]):
        token = match[0]
        if token in (b"{", b"["):
            if steps and isinstance(steps[-1], str):
                steps[-1] = last_key
            steps.append("" if token == b"{" else 0)
        elif token in (b"}", b"]"):
            del steps[-1:]
        elif token == b",":
            if steps and isinstance(steps[-1], int):
                steps[-1] += 1
        elif _is_key(body, match.end()):
            last_key = match[1].decode("utf-8", "replace")
        if len(steps) > _MAX_DEPTH:
            return steps
    return []


def _is_key(body: bytes, end: int) -> bool:
    return body[end : end + 64].lstrip()[:1] == b":"


def _format_path(steps: list[str | int]) -> str:
    """Format a path, up to a free-form field. Without one, only the top-level field is named."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
        if step in FREE_FORM_FIELDS:
            return path
    first = next(iter(steps), None)
    return f".{first}" if isinstance(first, str) else ""
