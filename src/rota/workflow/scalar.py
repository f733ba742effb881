"""What stands in a document where one value stands: what it is taken for depends on what is wanted there.

A YAML scalar without quotes stays as it is written until somebody asks for a number: `command: [sleep, 0.50]` is to
give the program `0.50`.
"""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_SPECIAL = re.compile(
    r"(?:~|null|Null|NULL|true|True|TRUE|false|False|FALSE|"
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|"
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|"
    r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))?"
)
_NOTHING = ("", "~", "null", "Null", "NULL")
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LONGEST = 300
"""Digits of a number: what has more is text, or a mistake."""


class Plain(str):
    """Written without quotes, and one of YAML 1.2's few words and numbers that are not text."""

    __slots__ = ()


def plain(text: str) -> str:
    """What a scalar without quotes is: `no`, `on` and `1.2.3` are text."""
    return Plain(text) if _SPECIAL.fullmatch(text) else text


def is_nothing(value: object) -> bool:
    """Left empty: as if it were not there."""
    return value is None or (type(value) is Plain and value in _NOTHING)


def text_of(value: object) -> str | None:
    """Numbers, `true` and `false` are taken as they are written; none for lists, maps and nothing."""
    if isinstance(value, str):
        return None if is_nothing(value) else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def whole_of(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    is_number = type(value) is Plain and len(value) <= _LONGEST and _WHOLE.fullmatch(value)
    return _whole(str(value)) if is_number else None


def _whole(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def flag_of(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _FLAGS.get(value) if type(value) is Plain else None


def value_of(value: object) -> Any:
    """As JSON has it. Raises ValueError for what JSON does not have."""
    if type(value) is str or isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, dict):
        return {key: value_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [value_of(each) for each in value]
    if type(value) is not Plain:
        raise ValueError(f"{value} is a date or a time, which JSON does not have; put it in quotes")
    return _number_or_word(value)


def _number_or_word(value: Plain) -> Any:
    if is_nothing(value):
        return None
    if value in _FLAGS:
        return _FLAGS[value]
    if len(value) > _LONGEST:
        raise ValueError("a number has at most 300 digits; put it in quotes")
    if _WHOLE.fullmatch(value):
        return _whole(value)
    number = math.nan if value[-1] in "nNfF" else float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is no number that JSON has; put it in quotes")
    return number
