"""One file's text as dicts, lists and scalars, whichever of the three forms it has."""

from __future__ import annotations

import json
import re

from rota.workflow.fault import Fault, Mark, Path
from rota.workflow.scalar import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMS = ("yaml", "toml")
MOST_BYTES = 32 << 20

_LOOKS_LIKE_TOML = re.compile(r"""\s*+(?:#[^\n]*+\s*+)*+(?:\[|[A-Za-z0-9_."'-]+[ \t]*=)""")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class Document:
    """What a text says. Where in it something stands is found out when somebody asks."""

    def __init__(self, text: str, form: str) -> None:
        self._text = text
        self._form = form
        self.data: Any = _read(text, form)

    def marks(self) -> dict[Path, Mark]:
        return _marks(self._text, self._form)


def decode(data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise Fault((), f"larger than {MOST_BYTES >> 20} MiB; keep long texts in files of their own that the jobs read")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Fault((), "written as UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Fault((), f"not UTF-8: byte 0x{data[error.start]:02x}; save it as UTF-8", (line, 0)) from None
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Fault((), "has a NUL character, as binary files do; text is expected", (line, 0))
    return text.replace("\r\n", "\n")


def guess(text: str) -> str:
    """Of a text that has no file's name."""
    return "toml" if _LOOKS_LIKE_TOML.match(text) else "yaml"


def _read(text: str, form: str) -> Any:
    if form == "toml":
        from rota.workflow import toml_text

        return toml_text.parse(text)
    if text.lstrip().startswith("{"):
        try:
            return json.loads(
                text, object_pairs_hook=_once, parse_float=Plain, parse_int=Plain, parse_constant=_no_constant
            )
        except (ValueError, RecursionError):
            pass  # it may be YAML all the same; and if not, that says where
    from rota.workflow import yaml_text

    try:
        return yaml_text.compose(text)
    except Fault:
        return yaml_text.compose(text, {})  # fails again, and knows where else something stands


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _marks(text: str, form: str) -> dict[Path, Mark]:
    if form == "toml":
        from rota.workflow import toml_text

        return toml_text.find_marks(text)
    from rota.workflow import yaml_text

    marks: dict[Path, Mark] = {}
    try:
        # JSON writes what is beyond 16 bits as two escapes, which YAML does not know.
        yaml_text.compose(_PAIR.sub(_character, text), marks)
    except Fault:
        return marks
    return marks


def _character(pair: re.Match[str]) -> str:
    return chr(0x10000 + ((int(pair[1], 16) - 0xD800) << 10) + int(pair[2], 16) - 0xDC00)
