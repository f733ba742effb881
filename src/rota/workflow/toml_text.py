"""TOML parser. `tomllib` reports no positions, so after an error they are searched in the text."""

from __future__ import annotations

import re
import tomllib

from rota.workflow.fault import DocumentPath, Fault, SourcePosition
from rota.workflow.scalar import PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ERROR_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED_KEY = re.compile(rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*")
_KEYS = re.compile(_KEY)
_LITERALS_AND_COMMENTS = re.compile(
    r"\"{3}(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"{3,5})?|'{3}(?:[^']|'(?!''))*(?:'{3,5})?"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""Strings and comments, in which brackets have no meaning."""


def parse(text: str) -> Any:
    try:
        return tomllib.loads(text, parse_float=PlainScalar)
    except tomllib.TOMLDecodeError as error:
        raise _make_syntax_fault(text, str(error)) from None
    except RecursionError:
        raise Fault((), "nested too deeply") from None
    except ValueError as error:  # such as a number of 5,000 digits, or an invalid date
        raise Fault((), f"not TOML: {error}") from None


def _make_syntax_fault(text: str, message: str) -> Fault:
    match = _ERROR_POSITION.search(message)
    if match is None:
        return Fault((), f"not TOML: {message}")
    line, column = (int(match[1]), int(match[2])) if match[1] else (text.count("\n") + 1, 0)
    return Fault((), f"not TOML: {message[: match.start()]}", (line, column))


def find_positions(text: str) -> dict[DocumentPath, SourcePosition]:
    """Return the positions of tables and keys. Everything in the value of a key has the position of the key."""
    positions: dict[DocumentPath, SourcePosition] = {}
    table: DocumentPath = ()
    depth = 0
    for number, (line, blank) in enumerate(zip(text.split("\n"), _blank_literals(text).split("\n"), strict=True), 1):
        begin = len(line) - len(line.lstrip(" \t"))
        is_header = line.startswith("[", begin)
        if depth == 0 and blank.strip() and (is_header or "=" in blank):
            path = _parse_key(line[begin:].lstrip("[ \t"))
            table, path = (path, path) if is_header else (table, table + path)
            for end in range(1, len(path) + 1):
                positions.setdefault(path[:end], (number, begin + 1))
        if not (depth == 0 and is_header):
            depth = max(0, depth + sum(map(blank.count, "[{")) - sum(map(blank.count, "]}")))
    return positions


def _blank_literals(text: str) -> str:
    """Replace strings and comments with underscores and keep the lines."""
    return _LITERALS_AND_COMMENTS.sub(lambda match: "".join("\n" if char == "\n" else "_" for char in match[0]), text)


def _parse_key(text: str) -> DocumentPath:
    dotted = _DOTTED_KEY.match(text)
    return tuple(_unquote(word) for word in _KEYS.findall(dotted[0])) if dotted else ()


def _unquote(word: str) -> str:
    try:
        return str(next(iter(tomllib.loads(f"{word} = 0"))))
    except tomllib.TOMLDecodeError:
        return word
