"""Refusal of a JSON body with two equal keys in one object: a decoder silently keeps the last of them.

msgspec does not report duplicates, and a decoder that does is ten times slower. But a duplicate loses at least one
string, its key. So the body is decoded and encoded again, and the strings of both texts are counted. Only a body that
lost some is read by a slower decoder, to find the key.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rota.errors import InvalidInput

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def refuse_duplicate_keys(body: bytes) -> None:
    """Refuse a body with two equal keys in one object. The body is valid JSON."""
    if _count_strings(body) != _count_strings(_encoder.encode(_decoder.decode(body))):
        path, key = _find(json.loads(body, object_pairs_hook=_Pairs), "")
        raise InvalidInput(f"the key {key!r} occurs twice in one object; send it once").at_path(path)


def _count_strings(text: bytes) -> int:
    """Return the number of unescaped quotes in a JSON text, which is twice the number of its strings."""
    if b"\\" not in text:
        return text.count(b'"')
    unescaped = text.replace(b"\\\\", b"")
    return unescaped.count(b'"') - unescaped.count(b'\\"')


class _Pairs(list[tuple[str, Any]]):
    """Members of a JSON object in their order, repeated keys included."""


def _find(value: object, path: str) -> tuple[str, str]:
    """Return the path and name of the first repeated key; both are empty if there is none."""
    if isinstance(value, _Pairs):
        known: set[str] = set()
        for key, item in value:
            item_path = f"{path}.{key}"
            if key in known:
                return item_path, key
            known.add(key)
            if (duplicate := _find(item, item_path))[0]:
                return duplicate
    elif isinstance(value, list):
        for n, item in enumerate(value):
            if (duplicate := _find(item, f"{path}[{n}]"))[0]:
                return duplicate
    return "", ""
