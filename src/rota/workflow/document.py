"""Parse the text of a workflow file in any of its syntaxes into dicts, lists and scalars."""

from __future__ import annotations

import json
import re

from rota.workflow.fault import DocumentPath, Fault, SourcePosition
from rota.workflow.scalar import PlainScalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SYNTAXES = ("yaml", "toml")
MAX_BYTES = 32 << 20

_LOOKS_LIKE_TOML = re.compile(r"""\s*+(?:#[^\n]*+\s*+)*+(?:\[|[A-Za-z0-9_."'-]+[ \t]*=)""")
_SURROGATE_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class WorkflowDocument:
    """Parsed workflow file. Source positions are computed on demand, because only error messages need them."""

    def __init__(self, text: str, syntax: str) -> None:
        self._text = text
        self._syntax = syntax
        self.data: Any = _parse(text, syntax)

    def positions(self) -> dict[DocumentPath, SourcePosition]:
        return _find_positions(self._text, self._syntax)


def decode_text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise Fault((), f"larger than {MAX_BYTES >> 20} MiB; move long texts to separate files that the jobs read")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Fault((), "encoded as UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Fault((), f"not UTF-8: byte 0x{data[error.start]:02x}; save it as UTF-8", (line, 0)) from None
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Fault((), "has a NUL character like a binary file; use a text file", (line, 0))
    return text.replace("\r\n", "\n")


def guess_syntax(text: str) -> str:
    """Guess the syntax of a text that has no file name."""
    return "toml" if _LOOKS_LIKE_TOML.match(text) else "yaml"


def _parse(text: str, syntax: str) -> Any:
    if syntax == "toml":
        from rota.workflow import toml_text

        return toml_text.parse(text)
    if text.lstrip().startswith("{"):
        try:
            return json.loads(
                text,
                object_pairs_hook=unique_members,
                parse_float=PlainScalar,
                parse_int=PlainScalar,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError):
            pass  # it may still be YAML, and the YAML parser reports a position otherwise
    from rota.workflow import yaml_text

    try:
        return yaml_text.compose(text)
    except Fault:
        return yaml_text.compose(text, {})  # fails again, now with the position of the first duplicate


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict, or raise `ValueError` if it has a duplicate key."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"duplicate key {key!r}")
        members[key] = value
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _find_positions(text: str, syntax: str) -> dict[DocumentPath, SourcePosition]:
    if syntax == "toml":
        from rota.workflow import toml_text

        return toml_text.find_positions(text)
    from rota.workflow import yaml_text

    positions: dict[DocumentPath, SourcePosition] = {}
    try:
        # JSON escapes characters beyond 16 bits as two surrogates, which YAML does not accept.
        yaml_text.compose(_SURROGATE_PAIR.sub(_join_surrogates, text), positions)
    except Fault:
        return positions
    return positions


def _join_surrogates(pair: re.Match[str]) -> str:
    return chr(0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + int(pair[2], 16) - 0xDC00)
