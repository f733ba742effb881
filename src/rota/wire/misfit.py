"""What does not fit its form, as a refusal that says where."""

from __future__ import annotations

import re
from types import NoneType

from rota.errors import InvalidInput

_PATH = re.compile(r" - at `\$([^`]*)`$")
"""How msgspec says where."""
_FIELD = re.compile(r"(?:unknown|missing required) field `([^`]*)`")
_GOT = re.compile(r"got `(\w+)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_KINDS = {
    str: "str", int: "int", float: "float", bool: "bool", NoneType: "null", dict: "object", list: "array",
}  # fmt: skip
"""How it calls what is there."""


def misfit(what: str, error: Exception, at: str = "", of: object = None) -> InvalidInput:
    """`at` is where in the request that is which does not fit, `of` what stands there, if that is known."""
    text = _PATH.sub("", f"{error}")
    found = _PATH.search(f"{error}")
    where = "" if found is None else found[1]
    if "[...]" in where and (got := _GOT.search(text)) is not None:
        where = _named(of, where, got[1]) or where
    path = where.partition("[...]")[0]  # a key that msgspec does not name, and that could not be found
    if (field := _FIELD.search(text)) is not None:
        path += f".{field[1]}"
    said = f"{what} cannot be used: {text}"
    return InvalidInput(f"{said} - at `${at}{where}`" if where or at else said).under(at + path)


def _named(value: object, where: str, got: str) -> str | None:
    """The same place with the keys that msgspec leaves out: the first at which there is something of the kind that it
    got, for it reads in this order and goes no further."""
    step = _STEP.match(where)
    if step is None:
        return "" if not where and _KINDS.get(type(value)) == got else None
    name, index = step.groups()
    inner: list[tuple[str, object]] = []
    if index is not None and isinstance(value, list):
        inner = [(f"[{index}]", each) for each in value[int(index) : int(index) + 1]]
    elif isinstance(value, dict):
        inner = [(f".{key}", each) for key, each in value.items() if name in (None, key)]
    rest = where[step.end() :]
    return next((begin + end for begin, each in inner if (end := _named(each, rest, got)) is not None), None)
