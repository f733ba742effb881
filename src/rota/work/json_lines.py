"""JSON documents in a file: one on each line, as an array, or in an envelope; each with its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec


class JsonDocument(NamedTuple):
    """Source text of one JSON value."""

    line: int
    text: bytes


class _Envelope(msgspec.Struct):
    schema_version: msgspec.Raw
    data: msgspec.Raw


class _ItemList(msgspec.Struct):
    items: msgspec.Raw


_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_item_list = msgspec.json.Decoder(_ItemList).decode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Errors of decoding bytes that are not JSON."""
_BOM = b"\xef\xbb\xbf"


def split_documents(data: bytes) -> Iterator[JsonDocument]:
    """Yield the documents of a file. A malformed line is a document too, whose decoding fails."""
    data = data.removeprefix(_BOM)
    if _is_one_document(data):
        yield from _expand(data, 1)
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if text := line.strip():
            yield from _expand(text, number)


def _is_one_document(data: bytes) -> bool:
    """Return whether the whole file is one value that spans several lines."""
    begin = data.lstrip()
    if begin[:1] not in (b"[", b"{") or _is_json(begin.partition(b"\n")[0]):
        return False
    return _is_json(data)


def _is_json(text: bytes) -> bool:
    try:
        _decode_any(text)
    except DECODE_ERRORS:
        return False
    return True


def _expand(text: bytes, line: int) -> Iterator[JsonDocument]:
    """Yield the elements of an array, also of one in an envelope, or else the value itself."""
    inner = _unwrap(text) if text.lstrip()[:1] == b"{" else None
    if inner is not None:
        line += text.count(b"\n", 0, text.rindex(inner))
        text = inner
    try:
        elements = _decode_array(text)
    except DECODE_ERRORS:
        value = text.lstrip()
        yield JsonDocument(line + text.count(b"\n", 0, len(text) - len(value)), value)
        return
    position = 0
    for element in elements:
        raw = bytes(element)
        begin = text.index(raw, position)
        line += text.count(b"\n", position, begin)
        yield JsonDocument(line, raw)
        line += raw.count(b"\n")
        position = begin + len(raw)


def _unwrap(text: bytes) -> bytes | None:
    """Return the content of an envelope, or of a map with `items`."""
    if b'"schema_version"' in text and b'"data"' in text:
        try:
            return bytes(_decode_envelope(text).data)
        except DECODE_ERRORS:
            return None
    if b'"items"' in text:
        try:
            inner = bytes(_decode_item_list(text).items)
        except DECODE_ERRORS:
            return None
        return inner if inner.lstrip()[:1] == b"[" else None
    return None
