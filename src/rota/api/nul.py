"""Refusal of NUL characters in requests. No program can receive one as an argument, and PostgreSQL cannot store one, so
they are refused for both databases. Params can have them: they are stored as JSON, which escapes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from rota.errors import InvalidInput

_NUL = "\x00"
_ESCAPED_NUL = b"\\u0000"
"""JSON always escapes a NUL character."""
FREE_FORM_FIELDS = frozenset(("params", "set_params", "default_params", "set_default_params", "params_schema"))
"""Fields whose values are arbitrary JSON."""


def refuse_in_texts(texts: Mapping[str, str]) -> None:
    """Refuse NUL characters in a path or query."""
    for name, text in texts.items():
        if _NUL in text:
            raise _refusal(f".{name}")


def refuse_in_body(body: bytes) -> None:
    """Refuse NUL characters in a body. Almost no body has any, so it is only decoded again if it may."""
    if _ESCAPED_NUL not in body:
        return
    path = find_text_path(msgspec.json.decode(body), lambda text: _NUL in text, except_fields=FREE_FORM_FIELDS)
    if path is not None:
        raise _refusal(path)


def find_text_path(
    value: object, is_invalid: Callable[[str], object], path: str = "", except_fields: Collection[str] = ()
) -> str | None:
    """Return the path of the first invalid string; None if there is none. The path of a key is that of its object.
    Fields named in `except_fields` are skipped."""
    if isinstance(value, str):
        return path if is_invalid(value) else None
    inner: list[tuple[str, object]] = []
    if isinstance(value, list):
        inner = [(f"{path}[{n}]", item) for n, item in enumerate(value)]
    elif isinstance(value, dict):
        if any(map(is_invalid, value)):
            return path
        inner = [(f"{path}.{name}", item) for name, item in value.items() if name not in except_fields]
    for inner_path, item in inner:
        text_path = find_text_path(item, is_invalid, inner_path, except_fields)
        if text_path is not None:
            return text_path
    return None


def _refusal(path: str) -> InvalidInput:
    return InvalidInput("a string contains a NUL character; remove it").at_path(path)
