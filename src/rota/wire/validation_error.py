"""Validation errors: a request that does not match its schema, with the location of the error."""

from __future__ import annotations

import re
from types import NoneType

from rota.errors import InvalidInput

_PATH_PATTERN = re.compile(r" - at `\$([^`]*)`$")
"""Location of the error in a message of msgspec."""
_FIELD_PATTERN = re.compile(r"(?:unknown|missing required) field `([^`]*)`")
_ACTUAL_TYPE_PATTERN = re.compile(r"got `(\w+)`$")
_PATH_STEP_PATTERN = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_JSON_TYPE_NAMES = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    NoneType: "null",
    dict: "object",
    list: "array",
}
"""Names of JSON types in messages of msgspec."""


def make_validation_error(subject: str, error: Exception, prefix: str = "", value: object = None) -> InvalidInput:
    """Make a refusal from an error of msgspec. `subject` is the invalid part of the request, `prefix` its location, and
    `value` its content if known."""
    text = _PATH_PATTERN.sub("", f"{error}")
    match = _PATH_PATTERN.search(f"{error}")
    location = "" if match is None else match[1]
    if "[...]" in location and (actual_type := _ACTUAL_TYPE_PATTERN.search(text)) is not None:
        location = _resolve_keys(value, location, actual_type[1]) or location
    path = location.partition("[...]")[0]  # without a key that could not be resolved
    if (field := _FIELD_PATTERN.search(text)) is not None:
        path += f".{field[1]}"
    message = f"{subject} cannot be used: {text}"
    return InvalidInput(f"{message} - at `${prefix}{location}`" if location or prefix else message).at_path(
        prefix + path
    )


def _resolve_keys(value: object, path: str, actual_type: str) -> str | None:
    """Return the path with the object keys that msgspec omits. The first value of the reported type is the invalid one,
    because msgspec reads in the same order and stops there."""
    step = _PATH_STEP_PATTERN.match(path)
    if step is None:
        return "" if not path and _JSON_TYPE_NAMES.get(type(value)) == actual_type else None
    name, index = step.groups()
    inner: list[tuple[str, object]] = []
    if index is not None and isinstance(value, list):
        inner = [(f"[{index}]", item) for item in value[int(index) : int(index) + 1]]
    elif isinstance(value, dict):
        inner = [(f".{key}", item) for key, item in value.items() if name in (None, key)]
    rest = path[step.end() :]
    return next(
        (begin + end for begin, item in inner if (end := _resolve_keys(item, rest, actual_type)) is not None), None
    )
