"""NUL is refused at the door: no program can be given one, PostgreSQL stores no text with one, and what one database
takes the other is to take too. Params may have one: they are stored as JSON, where it is written in other characters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from rota.errors import InvalidInput

_NUL = "\x00"
_WRITTEN = b"\\u0000"
"""In JSON it cannot stand as itself."""
FREE = frozenset(("params", "set_params", "default_params", "set_default_params", "params_schema"))
"""Fields whose values are anybody's JSON."""


def refuse_in_texts(texts: Mapping[str, str]) -> None:
    """Of a path or a query."""
    for name, text in texts.items():
        if _NUL in text:
            raise _refusal(f".{name}")


def refuse_in_body(given: bytes) -> None:
    """Nearly none has one, so it is not looked at twice before it is known that it may."""
    if _WRITTEN not in given:
        return
    path = place_of(msgspec.json.decode(given), lambda text: _NUL in text, leaving=FREE)
    if path is not None:
        raise _refusal(path)


def place_of(
    value: object, is_wrong: Callable[[str], object], path: str = "", leaving: Collection[str] = ()
) -> str | None:
    """Where the first wrong text stands; a key's place is that of its object. Fields of these names are left."""
    if isinstance(value, str):
        return path if is_wrong(value) else None
    inner: list[tuple[str, object]] = []
    if isinstance(value, list):
        inner = [(f"{path}[{n}]", each) for n, each in enumerate(value)]
    elif isinstance(value, dict):
        if any(map(is_wrong, value)):
            return path
        inner = [(f"{path}.{name}", each) for name, each in value.items() if name not in leaving]
    return next(
        (found for below, each in inner if (found := place_of(each, is_wrong, below, leaving)) is not None), None
    )


def _refusal(path: str) -> InvalidInput:
    return InvalidInput("a NUL character stands in a text; remove it").under(path)
