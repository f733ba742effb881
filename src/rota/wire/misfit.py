"""What does not fit its form, as a refusal that says where."""

from __future__ import annotations

import re

from rota.errors import InvalidInput

_PATH = re.compile(r" - at `\$([^`]*)`$")
"""How msgspec says where."""
_FIELD = re.compile(r"(?:unknown|missing required) field `([^`]*)`")


def misfit(what: str, error: Exception, at: str = "") -> InvalidInput:
    """`at` is where in the request that is which does not fit."""
    text = _PATH.sub("", f"{error}")
    found = _PATH.search(f"{error}")
    where = "" if found is None else found[1]
    path = where.partition("[...]")[0]  # a key that msgspec does not name
    if (field := _FIELD.search(text)) is not None:
        path += f".{field[1]}"
    said = f"{what} cannot be used: {text}"
    return InvalidInput(f"{said} - at `${at}{where}`" if where or at else said).under(at + path)
