"""TOML. Its reader keeps no lines, so where something stands is looked up in the text, once there is an error."""

from __future__ import annotations

import re
import tomllib

from rota.workflow.fault import Fault, Mark, Path
from rota.workflow.scalar import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_WORD = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = re.compile(rf"{_WORD}(?:[ \t]*\.[ \t]*{_WORD})*")
_WORDS = re.compile(_WORD)
_SKIPPED = re.compile(
    r"\"{3}(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"{3,5})?|'{3}(?:[^']|'(?!''))*(?:'{3,5})?"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
"""What has no brackets that count: texts and comments."""


def parse(text: str) -> Any:
    try:
        return tomllib.loads(text, parse_float=Plain)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(text, str(error)) from None
    except RecursionError:
        raise Fault((), "nested too deep") from None
    except ValueError as error:  # a number of five thousand digits, a day that no month has
        raise Fault((), f"not TOML: {error}") from None


def _syntax(text: str, said: str) -> Fault:
    at = _AT.search(said)
    if at is None:
        return Fault((), f"not TOML: {said}")
    line, column = (int(at[1]), int(at[2])) if at[1] else (text.count("\n") + 1, 0)
    return Fault((), f"not TOML: {said[: at.start()]}", (line, column))


def find_marks(text: str) -> dict[Path, Mark]:
    """Where tables and keys stand. What is written inside a key's value stands where the key does."""
    marks: dict[Path, Mark] = {}
    table: Path = ()
    depth = 0
    for number, (line, blank) in enumerate(zip(text.split("\n"), _blanked(text).split("\n"), strict=True), 1):
        begin = len(line) - len(line.lstrip(" \t"))
        is_header = line.startswith("[", begin)
        if depth == 0 and blank.strip() and (is_header or "=" in blank):
            path = _path(line[begin:].lstrip("[ \t"))
            table, path = (path, path) if is_header else (table, table + path)
            for end in range(1, len(path) + 1):
                marks.setdefault(path[:end], (number, begin + 1))
        if not (depth == 0 and is_header):
            depth = max(0, depth + sum(map(blank.count, "[{")) - sum(map(blank.count, "]}")))
    return marks


def _blanked(text: str) -> str:
    """The same lines, with nothing in them that only looks like TOML."""
    return _SKIPPED.sub(lambda found: "".join("\n" if each == "\n" else "_" for each in found[0]), text)


def _path(text: str) -> Path:
    dotted = _DOTTED.match(text)
    return tuple(_unquoted(word) for word in _WORDS.findall(dotted[0])) if dotted else ()


def _unquoted(word: str) -> str:
    try:
        return str(next(iter(tomllib.loads(f"{word} = 0"))))
    except tomllib.TOMLDecodeError:
        return word
