"""What is wrong with a body that could not be decoded, where the decoder says too little of it.

It is read once more, by slower means, so only where that is not much work.
"""

from __future__ import annotations

import json
import re

import msgspec

from rota.api.nul import FREE, place_of
from rota.errors import InvalidInput

_MOST = 1 << 20
"""Bytes of a body that is read again."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)"?|[\[\]{},]', re.DOTALL)
"""A text, though its end may be cut off, or a sign."""
_TOO_DEEP = 500
"""Levels that nothing has which is taken; where the decoder gives up depends on who calls it."""


def readable(given: bytes) -> object:
    """The body as it is; none where it is no JSON, or too much."""
    try:
        return msgspec.json.decode(given) if len(given) <= _MOST else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def half_character(given: bytes) -> InvalidInput | None:
    """The refusal of a body that is JSON but for half of a surrogate pair; none if it is not."""
    if len(given) > _MOST or b"\\ud" not in given.lower():
        return None
    try:
        path = place_of(json.loads(given), _SURROGATE.search)
    except (ValueError, RecursionError):
        return None
    if path is None:
        return None
    said = "half of a surrogate pair, as \\ud800, stands in a text and is no character; remove it, or write both halves"
    return InvalidInput(said).under(path)


def too_deep(given: bytes) -> InvalidInput:
    """The refusal of a body that is, with its place if that is not too far behind."""
    return InvalidInput("the request body is nested too deep; make it flatter").under(_shown(_deep(given)))


def _deep(given: bytes) -> list[str | int]:
    """The steps down to where it is too deep."""
    steps: list[str | int] = []
    last = ""
    for token in _TOKEN.finditer(given[:_MOST]):
        sign = token[0]
        if sign in (b"{", b"["):
            if steps and isinstance(steps[-1], str):
                steps[-1] = last
            steps.append("" if sign == b"{" else 0)
        elif sign in (b"}", b"]"):
            del steps[-1:]
        elif sign == b",":
            if steps and isinstance(steps[-1], int):
                steps[-1] += 1
        elif _is_key(given, token.end()):
            last = token[1].decode("utf-8", "replace")
        if len(steps) > _TOO_DEEP:
            return steps
    return []


def _is_key(given: bytes, end: int) -> bool:
    return given[end : end + 64].lstrip()[:1] == b":"


def _shown(steps: list[str | int]) -> str:
    """Up to what is anybody's JSON; where nothing is, the field of the body."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
        if step in FREE:
            return path
    first = next(iter(steps), None)
    return f".{first}" if isinstance(first, str) else ""
