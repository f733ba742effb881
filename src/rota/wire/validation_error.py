"""Validation errors: a request that does not match its schema, with the location of the error."""

from __future__ import annotations

import re

from rota.errors import InvalidInput

_PATH_PATTERN = re.compile(r" - at `\$([^`]*)`$")
"""Location of the error in a message of msgspec."""
_FIELD_PATTERN = re.compile(r"(?:unknown|missing required) field `([^`]*)`")


def make_validation_error(subject: str, error: Exception, prefix: str = "") -> InvalidInput:
    """Make a refusal from an error of msgspec. `subject` is the invalid part of the request, and `prefix` its
    location."""
    text = _PATH_PATTERN.sub("", f"{error}")
    match = _PATH_PATTERN.search(f"{error}")
    location = "" if match is None else match[1]
    path = location.partition("[...]")[0]  # msgspec does not report keys of mappings
    if (field := _FIELD_PATTERN.search(text)) is not None:
        path += f".{field[1]}"
    message = f"{subject} cannot be used: {text}"
    return InvalidInput(f"{message} - at `${prefix}{location}`" if location or prefix else message).at_path(
        prefix + path
    )
